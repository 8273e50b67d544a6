"""A run that begins at a candidate of another one: what it takes over, what both record, how it is started."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from workbench.cli import cli
from workbench.errors import SpecError, StoreError
from workbench.proof import Report
from workbench.run import Options, branch_run, optimize, resume
from workbench.store import Candidates, Orders, Store, read_options
from workbench_testing import SimulatedLM, SimulatedPool, write_task
from workbench_testing.simulated import Killed


def improve(folder: Path, **options: Any) -> Report:
    """A run of the random optimizer on the simulated task."""
    path = write_task(folder, budget={"calls": 400})
    spec = json.loads(path.read_text())
    path.write_text(json.dumps({**spec, "optimize": [{"random": {"trials": 4}}]}))
    return optimize(
        path,
        database=folder / "run.db",
        pool=SimulatedPool(SimulatedLM()),
        options=Options(out=str(folder / "out.yaml")),
        **options,
    )


def go_on(folder: Path, run: str, lm: SimulatedLM | None = None) -> Report:
    pool, options = SimulatedPool(lm or SimulatedLM()), Options(out=str(folder / f"{run}.yaml"))
    return resume(run, database=folder / "run.db", pool=pool, options=options)


def losers(store: Store, run: str) -> list[str]:
    """Candidates that are neither the first nor the last."""
    return [c["hash"] for c in Candidates(store, store.find_run(run)["id"]).read_all()][1:-1]


def test_a_branch_begins_at_the_candidate_and_is_measured_against_it(tmp_path: Path) -> None:
    first = improve(tmp_path)
    store = Store(tmp_path / "run.db")
    chosen = losers(store, first.run)[0]
    name = branch_run(store, first.run, chosen[:10])
    row = store.find_run(name)
    assert row["status"] == "ready" and row["data_hash"] == store.find_run(first.run)["data_hash"]
    assert read_options(row)["branched_from"] == {"run": first.run, "candidate": chosen}
    assert Candidates(store, row["id"]).read_all() == [], "nothing is evaluated yet"
    report = go_on(tmp_path, name)
    assert report.run == name and report.status == "finished"
    assert report.baseline["workflow"] == chosen, "gains are measured against the candidate"
    assert Candidates(store, row["id"]).find_baseline() == chosen
    assert len(Candidates(store, row["id"]).read_all()) > 1, "it searches as the first run did"
    last = Orders(store, store.find_run(first.run)["id"]).read_all()[-1]
    assert (last["kind"], last["outcome"]) == ("branch", "done")
    assert last["data"] == {"candidate": chosen, "run": name}


def test_a_branch_that_is_killed_goes_on_to_the_same_end(tmp_path: Path) -> None:
    first = improve(tmp_path)
    store = Store(tmp_path / "run.db")
    names = [branch_run(store, first.run, losers(store, first.run)[0]) for _ in range(2)]
    with suppress(Killed, BaseExceptionGroup):
        go_on(tmp_path, names[0], SimulatedLM(kill_at=60))
    assert store.find_run(names[0])["status"] == "failed", "it was killed before its end"
    cut, whole = (go_on(tmp_path, name) for name in names)
    assert cut.winner == whole.winner and cut.best["test"] == whole.best["test"]
    assert cut.spent["calls"] == whole.spent["calls"]


def test_a_run_that_goes_on_is_branched_and_ends_as_it_would(tmp_path: Path) -> None:
    """The order is part of what happened in the run, and nothing that it takes up."""
    (tmp_path / "alone").mkdir()
    whole, made = improve(tmp_path / "alone"), list[str]()

    def branch(event: str, data: dict[str, Any]) -> None:
        if event == "candidate_evaluated" and not made:
            store = Store(tmp_path / "run.db")
            made.append(branch_run(store, "last", "baseline"))
            store.close()

    report = improve(tmp_path, listener=branch)
    assert report.winner == whole.winner and report.spent["calls"] == whole.spent["calls"]
    assert made and go_on(tmp_path, made[0]).baseline["workflow"] == report.baseline["workflow"]


def test_settings_of_a_branch_are_its_own(tmp_path: Path) -> None:
    first = improve(tmp_path)
    store = Store(tmp_path / "run.db")
    name = branch_run(store, first.run, None, [("budget.calls", 90), ("seed", 5)])
    report = go_on(tmp_path, name)
    assert report.spent["calls"] <= 90 < first.spent["calls"]
    assert store.find_run(name)["seed"] == 5


def test_a_budget_that_cannot_pay_for_the_proof_is_refused_as_of_any_run_that_begins(tmp_path: Path) -> None:
    first = improve(tmp_path)
    store = Store(tmp_path / "run.db")
    name = branch_run(store, first.run, None, [("budget.calls", 10)])
    with pytest.raises(SpecError, match="budget"):
        go_on(tmp_path, name)


def test_the_winner_and_the_baseline_are_known_by_these_names(tmp_path: Path) -> None:
    first = improve(tmp_path)
    store = Store(tmp_path / "run.db")
    found = {name: branch_run(store, first.run, name) for name in ("winner", "baseline")}
    origins = {name: read_options(store.find_run(run))["branched_from"]["candidate"] for name, run in found.items()}
    assert origins == {"winner": first.best["workflow"], "baseline": first.baseline["workflow"]}
    with pytest.raises(StoreError, match="has no candidates yet"):
        branch_run(store, found["winner"], "winner")
    store.execute("update runs set report = null, checksum = null where run = ?", first.run)
    with pytest.raises(StoreError, match="has no winner yet"):
        branch_run(store, first.run, None)


@pytest.mark.parametrize(
    ("candidate", "sets", "error"),
    [("none", (), StoreError), (None, [("budget.cals", 1)], SpecError), (None, [("budget.calls", "x")], SpecError)],
)
def test_a_branch_that_cannot_be_is_refused_and_adds_nothing(
    candidate: str | None, sets: Any, error: type[Exception], tmp_path: Path
) -> None:
    first = improve(tmp_path)
    store = Store(tmp_path / "run.db")
    with pytest.raises(error):
        branch_run(store, first.run, candidate, sets)
    assert len(store.list_runs()) == 1 and not Orders(store, store.find_run(first.run)["id"]).read_all()


def test_a_branch_sees_that_a_file_changed_after_it_began(tmp_path: Path) -> None:
    first = improve(tmp_path)
    store = Store(tmp_path / "run.db")
    name = branch_run(store, first.run, None)
    assert "referred" not in read_options(store.find_run(name))
    with suppress(Killed, BaseExceptionGroup):
        go_on(tmp_path, name, SimulatedLM(kill_at=20))
    assert read_options(store.find_run(name))["referred"], "what it refers to is known from its beginning"
    (tmp_path / "val.jsonl").write_text((tmp_path / "train.jsonl").read_text())
    with pytest.raises(StoreError, match="data of run .* have changed"):
        go_on(tmp_path, name)


def test_the_terminal_adds_and_tells(tmp_path: Path) -> None:
    first, db = improve(tmp_path), str(tmp_path / "run.db")

    def call(*words: str) -> str:
        done = CliRunner().invoke(cli, [*words, "--db", db], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    said = call("branch", first.run, "baseline")
    name = said.split()[1]
    assert said == f"run {name} is ready; to start it: workbench resume {name} --db {db}\n"
    assert f"from {first.run}:{first.baseline['workflow'][:8]}" in call("runs", "list").splitlines()[0]
    shown = call("show", name)
    assert "Nothing has been called yet" in shown and f"of run {first.run}" in shown
    assert json.loads(call("branch", first.run, "--json"))["run"] != name
    listed = call("steer", first.run, "list")
    assert f"branch  {first.baseline['workflow'][:8]}  {name}  done" in listed
    call("runs", "rm", first.run, "--yes")
    assert json.loads(call("runs", "list", "--json"))[0]["branched_from"]["run"] == first.run, (
        "known, though it was removed"
    )
