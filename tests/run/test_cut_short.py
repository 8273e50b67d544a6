"""A sealed test that the budget cuts short is no whole one, and a larger budget tests the rest."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.planted import PlantedLM, plant

from workbench.lm import Request
from workbench.run import Options, resume
from workbench.store import Store

#: Baseline and one candidate take 48 calls, which is what is not reserved for the proof; the proof has to do with 52.
CALLS, ROWS = 100, (8, 24, 40)


def better(request: Request) -> float:
    return 0.95 if "Better." in str(request.messages[0]["content"]) else 0.3


def stored_tests(folder: Path) -> set[tuple[int, int]]:
    """(n, complete) of the stored evaluations on test."""
    store = Store(folder / "run.db")
    try:
        return {(row["n"], row["complete"]) for row in store.rows("select * from evaluations where split = 'test'")}
    finally:
        store.close()


def test_a_test_cut_short_ends_by_its_budget_and_a_larger_one_tests_the_rest(tmp_path: Path) -> None:
    search = {"nodes.sort.instructions": ["Plain.", "Better."]}
    report, _ = plant(tmp_path, better, {"random": {"trials": 2}}, calls=CALLS, rows=ROWS, search=search)
    assert report.changes and 0 < report.test_rows < 40 and report.spent["calls"] <= CALLS
    assert report.status == "budget" and stored_tests(tmp_path) == {(report.test_rows, 0)}
    options = Options([("budget.calls", 400)], out=str(tmp_path / "out.yaml"))
    whole = resume("last", database=tmp_path / "run.db", options=options, pool=(lm := PlantedLM(better)))
    assert (whole.status, whole.test_rows) == ("finished", 40) and stored_tests(tmp_path) == {(40, 1)}
    assert report.spent["calls"] + lm.requests == 2 * ROWS[1] + 2 * ROWS[2], "nothing is paid for twice"
