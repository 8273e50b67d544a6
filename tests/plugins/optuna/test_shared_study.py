"""Several runs search one study on a planted problem: trials are shared; budget, proof and report are each run's."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend, JournalStorage
from tests.helpers.planted import PlantedLM, candidates, evaluations, plant
from tests.helpers.searchers import doomed, only_run, search_together
from tests.plugins.optuna.test_optuna import SPACE, skill

from workbench.errors import SpecError, StoreError
from workbench.run import Options, resume
from workbench.study import make_optimizer
from workbench_optuna.shared import CANDIDATE, OWNER


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda file: None)  # of each line of the journal: half of a test's time


def studies_of(log: Path) -> dict[str, list[Any]]:
    """The trials in a journal file, by the name of their study."""
    storage = JournalStorage(JournalFileBackend(str(log)))
    names = optuna.get_all_study_names(storage)
    return {name: optuna.load_study(study_name=name, storage=storage).get_trials(deepcopy=False) for name in names}


def trials_of(log: Path) -> list[Any]:
    (found,) = studies_of(log).values()
    return found


def evaluated(trials: list[Any], owner: str | None = None) -> list[str]:
    """The candidates of trials that a run, or any, has evaluated."""
    ended = [t for t in trials if t.state.name in ("COMPLETE", "PRUNED") and OWNER in t.user_attrs]
    return [t.user_attrs[CANDIDATE] for t in ended if owner in (None, t.user_attrs[OWNER])]


def test_one_run_with_a_storage_finds_what_it_finds_without(tmp_path: Path) -> None:
    common = {"calls": 500, "search": SPACE, "seed": 3}
    alone, lm = plant(tmp_path / "alone", skill, {"optuna": {"trials": 12}}, **common)
    storage = str(tmp_path / "search.log")
    shared, other = plant(tmp_path / "shared", skill, {"optuna": {"trials": 12, "storage": storage}}, **common)
    assert candidates(tmp_path / "alone") == candidates(tmp_path / "shared") and lm.requests == other.requests
    assert [tuple(e) for e in evaluations(tmp_path / "alone")] == [tuple(e) for e in evaluations(tmp_path / "shared")]
    assert shared.gain_shown == alone.gain_shown and shared.best == alone.best | {"cost": shared.best["cost"]}


def test_two_runs_search_one_study_each_with_its_own_budget_and_report(tmp_path: Path) -> None:
    found = search_together(tmp_path, 2, skill, str(tmp_path / "search.log"), calls=400, search=SPACE)
    (name,) = studies_of(tmp_path / "search.log")
    assert name.startswith("planted ")
    for report, lm in found:
        assert report.status in ("finished", "budget") and report.proof is not None
        assert 20 <= report.test_rows <= 40, "the run plans its test by its search, which the other one's trials change"
        assert 200 < lm.requests <= 400 and report.spent["calls"] == lm.requests, "a budget of its own"
        assert len(evaluated(trials_of(tmp_path / "search.log"), report.run)) >= 2
    assert {path.parent.name for path in tmp_path.glob("searcher*/out.yaml")} == {"searcher0", "searcher1"}


def test_what_another_run_evaluated_is_not_tried_again_and_its_best_can_win(tmp_path: Path) -> None:
    log = tmp_path / "search.log"
    first, _ = search_together(tmp_path / "first", 1, skill, str(log), calls=1000, search=SPACE)[0]
    of_first = evaluated(trials_of(log), first.run)
    settings = {"trials": 3, "race": False}
    late, lm = search_together(tmp_path / "late", 1, skill, str(log), calls=400, search=SPACE, settings=settings)[0]
    assert not {*of_first} & {*evaluated(trials_of(log), late.run)} and len(evaluated(trials_of(log), late.run)) == 3
    assert late.best["val"] >= first.best["val"], "the best of all runs was evaluated here, too"
    assert lm.requests == 24 * 5 + 80, "baseline, three trials, the best of the other run; and the sealed rows"


def test_runs_of_other_files_search_studies_of_their_own(tmp_path: Path) -> None:
    storage, common = str(tmp_path / "search.log"), {"calls": 250, "search": SPACE}
    changed: list[dict[str, Any]] = [
        {},
        {"search": {"nodes.sort.instructions": ["Plain.", "One."]}},
        {"rows": (40, 20, 40)},
        {"settings": {"study": "tickets"}},
    ]
    for place, more in enumerate(changed):
        search_together(tmp_path / str(place), 1, skill, storage, **common | more)
    found = studies_of(tmp_path / "search.log")
    assert Counter(name.rpartition(" ")[0] for name in found) == {"planted": 3, "tickets": 1}
    assert all(len({t.user_attrs[OWNER] for t in trials if OWNER in t.user_attrs}) == 1 for trials in found.values())


def test_other_optimizers_and_rounds_stand_beside_a_shared_study(tmp_path: Path) -> None:
    shared = {"optuna": {"storage": str(tmp_path / "search.log"), "trials": 4}}
    report, _ = plant(tmp_path, skill, shared, calls=900, search=SPACE, optimize=[{"random": {"trials": 3}}, shared])
    assert report.status == "finished" and len(evaluated(trials_of(tmp_path / "search.log"))) == 4


def test_a_storage_that_cannot_be_used_is_named_before_anything_is_paid(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no journal\n")
    for storage, said in (
        ("none/search.log", r"journal file .*/none/search\.log cannot be used"),
        (".", "cannot be used: .*directory"),
        ("text", "text is not a journal file of Optuna"),
    ):
        given = {"listener": None}
        settings = {"optuna": {"storage": str(tmp_path / storage)}}
        report, lm = plant(tmp_path / "run", skill, settings, calls=300, search=SPACE, given=given)
        assert report.status == "failed" and lm.requests == 0
        with pytest.raises(StoreError, match=said):
            raise StoreError(str(report.error))
    assert (tmp_path / "text").read_text() == "no journal\n"


def test_what_cannot_be_shared_is_refused_at_its_place(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="say where it is kept"):
        make_optimizer({"optuna": {"study": "tickets"}})
    with pytest.raises(ValueError, match="remove its storage"):
        make_optimizer({"tune": {"optimizer": {"optuna": {"storage": "s.log"}}, "search": {"patience": [1, 2]}}})
    with pytest.raises(SpecError, match="PGPASSWORD") as refused:
        plant(tmp_path, skill, {"optuna": {"storage": "postgresql://me:hunter2@db/x"}}, calls=300, search=SPACE)
    assert "hunter2" not in str(refused.value) and not (tmp_path / "run.db").exists()


@pytest.mark.fault("killed-searcher")
def test_a_killed_run_that_is_resumed_goes_on_with_its_trial(tmp_path: Path) -> None:
    """Another run has searched in between, so that the sampler would draw otherwise."""
    log, calls = tmp_path / "search.log", 250
    with doomed(tmp_path / "killed", str(log), calls=calls, after=90) as kill:
        sent = kill()
    (begun,) = [t for t in trials_of(log) if t.state.name == "RUNNING"]
    dead = only_run(tmp_path / "killed")
    before = evaluated(trials_of(log), dead)
    search_together(tmp_path, 1, skill, str(log), calls=calls, search=SPACE)
    lm, larger = PlantedLM(skill), Options(sets=[("budget.calls", calls + 200)])
    report = resume(dead, database=tmp_path / "killed" / "run.db", pool=lm, options=larger)
    trials = trials_of(log)
    assert trials[begun.number].state.name in ("COMPLETE", "PRUNED")
    assert 20 <= report.test_rows <= 40, "the run plans its test by its search, whose draws depend on its random name"
    own = evaluated(trials, dead)
    assert own[: len(before)] == before and begun.user_attrs[CANDIDATE] in own and len(own) == len({*own})
    assert calls < sent + lm.requests <= calls + 200, "the larger budget holds"
    assert report.spent["calls"] + report.spent["unknown"] == sent + lm.requests, "no call was paid twice"


@pytest.mark.fault("lost-storage")
def test_a_storage_that_is_lost_ends_the_run_which_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"optuna": {"trials": 5, "storage": str(tmp_path / "search.log")}}
    append, appended = JournalFileBackend.append_logs, list[Any]()

    def lost(self: JournalFileBackend, logs: list[dict[str, Any]]) -> None:
        appended.extend(logs)
        if len(appended) > 80:
            raise OSError("connection refused")
        append(self, logs)

    with monkeypatch.context() as patch:
        patch.setattr(JournalFileBackend, "append_logs", lost)
        with pytest.raises(StoreError, match="the storage of the study cannot be used: connection refused"):
            plant(tmp_path, skill, settings, calls=500, search=SPACE)
    lm = PlantedLM(skill)
    again = resume(only_run(tmp_path), database=tmp_path / "run.db", pool=lm)
    assert (
        again.status == "finished" and again.candidates == 6 and len(evaluated(trials_of(tmp_path / "search.log"))) == 5
    )
    assert lm.requests < 5 * 24 + 80, "what was answered before is not paid again"
