"""Faults of several searchers on one study: one is killed in the middle, or the storage cannot be reached."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import PlantedLM, plant
from tests.helpers.searchers import doomed, hurry, search_together
from tests.plugins.optuna.test_optuna import SPACE, skill
from tests.plugins.optuna.test_shared_study import trials_of

from workbench.errors import StoreError
from workbench.run import Options, resume
from workbench.store import Store
from workbench_optuna import searchers
from workbench_optuna.account import Account
from workbench_optuna.account_log import FileLog
from workbench_optuna.searchers import CANDIDATE, OWNER, REPEATS, ROWS


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda file: None)  # of each line of the journal
    hurry(monkeypatch, lease=20.0)  # who lives is not silent for so long, however busy the machine


def only_run(folder: Path) -> str:
    store = Store(folder / "run.db", create=False)
    try:
        return store.find_run("last")["run"]
    finally:
        store.close()


@pytest.mark.fault("killed-searcher")
def test_one_of_three_is_killed_and_neither_its_trial_nor_its_share_is_lost(tmp_path: Path) -> None:
    log, calls, trials = tmp_path / "search.log", 600, 11
    with doomed(tmp_path / "killed", str(log), calls=calls, after=90, trials=trials) as kill:
        sent = kill()
    dead = only_run(tmp_path / "killed")
    (begun,) = [t for t in trials_of(log) if t.state.name == "RUNNING"]
    before = FileLog(f"{log}.account", "planted").read().members[dead]
    assert sent <= before.mark["calls"] <= sent + 4 < before.share["calls"], "what is in flight is billed"

    settings = {"trials": trials}
    found = search_together(tmp_path, 2, skill, str(log), calls=calls, search=SPACE, settings=settings)
    account = FileLog(f"{log}.account", "planted").read()
    total = sent + sum(lm.requests for _, lm in found)
    assert total <= account.spent()["calls"] <= calls
    assert account.members[dead].share == account.members[dead].mark == before.mark
    proofs = [(r.test_rows, r.candidates, r.spent["calls"], r.elsewhere, r.warnings) for r, _ in found]
    assert sum(tested == 40 for tested, *_ in proofs) == 1, (proofs, account)

    tried = trials_of(log)
    assert tried[begun.number].state.name == "FAIL" and len({*account.begun} - {"baseline"}) == trials
    (again,) = [t for t in tried if t.user_attrs.get(REPEATS) == begun.number]
    assert again.params == begun.params and again.state.name in ("COMPLETE", "PRUNED")
    assert again.user_attrs[OWNER] != dead and again.user_attrs[CANDIDATE] == begun.user_attrs[CANDIDATE]

    lm = PlantedLM(skill)
    late = resume(dead, database=tmp_path / "killed" / "run.db", pool=lm)
    assert late.elsewhere and late.status == "finished" and len(trials_of(log)) == len(tried)
    assert lm.requests == 0 and FileLog(f"{log}.account", "planted").read().members[dead].mark["calls"] == sent


@pytest.mark.slow
@pytest.mark.fault("killed-searcher")
def test_a_killed_searcher_that_is_resumed_goes_on_with_its_trial(tmp_path: Path) -> None:
    log, calls = tmp_path / "search.log", 250
    with doomed(tmp_path / "killed", str(log), calls=calls, after=90) as kill:
        sent = kill()
    (begun,) = [t for t in trials_of(log) if t.state.name == "RUNNING"]
    lm, larger = PlantedLM(skill), Options(sets=[("budget.calls", calls + 200)])
    place = tmp_path / "killed" / "run.db"
    report = resume(only_run(tmp_path / "killed"), database=place, pool=lm, options=larger)
    trials = trials_of(log)
    assert trials[begun.number].state.name in ("COMPLETE", "PRUNED") and report.test_rows == 40
    evaluated = [t.user_attrs[CANDIDATE] for t in trials if ROWS in t.user_attrs]
    assert len(evaluated) == len({*evaluated}) and not any(REPEATS in t.user_attrs for t in trials)
    assert calls < sent + lm.requests <= calls + 200, "the larger budget holds"
    assert report.spent["calls"] + report.spent["unknown"] == sent + lm.requests


class Unreachable:
    """A log whose storage is away for some operations."""

    def __init__(self, log: FileLog, away: int):
        self.log, self.away = log, away

    def apply(self, operation: Mapping[str, Any]) -> tuple[Account, str]:
        if operation["do"] == "begin" and self.away > 0:
            self.away -= 1
            raise OSError("connection refused")
        return self.log.apply(operation)

    def read(self) -> Account:
        return self.log.read()

    def close(self) -> None:
        self.log.close()


@pytest.mark.fault("lost-storage")
@pytest.mark.parametrize("away", [3, 10_000])
def test_a_storage_that_is_away_is_waited_for_and_then_ends_the_run_which_can_be_resumed(
    away: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, log = searchers.open_storage, str(tmp_path / "search.log")
    monkeypatch.setattr(searchers, "PAUSES", (0.01, 0.01, 0.01))

    def open_unreachable(*given: Any) -> tuple[Any, Any]:
        storage, found = opened(*given)
        return storage, Unreachable(found, away)

    settings = {"optuna": {"trials": 5, "storage": log}}
    with monkeypatch.context() as patch:
        patch.setattr(searchers, "open_storage", open_unreachable)
        if away == 3:
            report, _ = plant(tmp_path, skill, settings, calls=500, search=SPACE)
            assert report.status == "finished" and report.candidates == 6
            return
        with pytest.raises(StoreError, match="account of the study cannot be reached: connection refused"):
            plant(tmp_path, skill, settings, calls=500, search=SPACE)
    again = resume(only_run(tmp_path), database=tmp_path / "run.db", pool=PlantedLM(skill))
    assert again.status == "finished" and again.candidates == 6
