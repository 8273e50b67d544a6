"""Orders to a running run: what they do, where, and that a resumed run takes them up at the same place."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.helpers.planted import PlantedLM, plant

from workbench.cli import cli
from workbench.errors import BudgetSpent, Interrupted, SpecError, StoreError
from workbench.lm import Request
from workbench.proof import Report
from workbench.run import give_order, resume
from workbench.store import Orders, Store
from workbench.study import Optimizer, Study
from workbench.workflow import Workflow

LEVELS = (2, 3, 1, 4, 5)


class Ladder(Optimizer):
    """Tries instructions of known quality, each made from the best so far; goes on after an end of the budget, as no
    optimizer should."""

    stubborn: bool = False

    async def optimize(self, study: Study) -> Workflow:
        for level in LEVELS:
            try:
                await study.evaluate(study.best.patched({"nodes.sort.instructions": f"Level {level}."}, f"{level}"))
            except BudgetSpent:
                if not self.stubborn:
                    raise
        return study.best


def skill(request: Request) -> float:
    found = re.search(r"Level (\d)", str(request.messages[0]["content"]))
    return 0.15 * int(found.group(1)) + 0.2 if found else 0.1


def level(report: Report) -> str:
    return str(report.winner.get("nodes.sort.instructions"))


def steered(
    folder: Path,
    orders: Callable[[str, str], tuple[str, dict[str, Any]] | None],
    *,
    calls: int = 2000,
    stop_after: int | None = None,
    optimizer: Optimizer | None = None,
    seconds: float = 0.0,
) -> tuple[Report, PlantedLM, list[dict[str, Any]]]:
    """A run of Ladder that is given orders when a candidate was evaluated: orders(instructions, its hash).

    They take effect after the next one. stop_after: evaluations after which it is interrupted, and resumed. seconds: of
    each call.
    """
    given: set[str] = set()
    seen: list[str] = []
    told: list[dict[str, Any]] = []

    def listen(event: str, data: dict[str, Any]) -> None:
        if event == "steered":
            told.append(data)
        if event != "candidate_evaluated":
            return
        candidate = data["evaluation"].workflow
        text = str(candidate.get("nodes.sort.instructions"))
        if text not in given and (order := orders(text, candidate.hash)) is not None:
            given.add(text)
            store = Store(folder / "run.db")
            give_order(store, "last", *order)
            store.close()
        seen.append(text)
        if len(seen) == stop_after:
            raise Interrupted("for the test")

    ladder = [("ladder", optimizer or Ladder())]

    def slow(request: Request) -> float:
        time.sleep(seconds)
        return skill(request)

    report, lm = plant(folder, slow, {"random": {}}, calls=calls, given={"listener": listen, "optimizers": ladder})
    if stop_after is not None:
        assert report.status == "interrupted"
        told.clear()
        report = resume("last", database=folder / "run.db", pool=lm, listener=listen, optimizers=ladder)
    return report, lm, told


def at(text: str, kind: str, **data: Any) -> Callable[[str, str], tuple[str, dict[str, Any]] | None]:
    """An order once a candidate with these instructions was evaluated."""

    def order(instructions: str, hash_: str) -> tuple[str, dict[str, Any]] | None:
        return (kind, data) if instructions == text else None

    return order


def test_without_orders_the_best_candidate_wins(tmp_path: Path) -> None:
    report, _, told = steered(tmp_path, lambda text, hash_: None)
    assert (level(report), report.candidates, told) == ("Level 5.", 6, [])


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_stopped_search_is_proved_at_once(stubborn: bool, tmp_path: Path) -> None:
    report, _, told = steered(tmp_path, at("Level 2.", "stop"), optimizer=Ladder(stubborn=stubborn))
    assert (report.status, level(report)) == ("finished", "Level 3.")
    assert report.proof is not None and report.proof.n == 40 and told[0]["outcome"] == "done"
    evaluated = _val_scores(tmp_path)
    assert len(evaluated) == 3, "baseline, level 2, level 3"


def _val_scores(folder: Path) -> list[float]:
    with Store(folder / "run.db") as store:
        return [row["score"] for row in store.rows("select score from evaluations where split = 'val'")]


def test_a_raised_budget_lets_the_search_go_on(tmp_path: Path) -> None:
    """Two candidates are paid for; with the order, given in time, all are."""
    poor, _, _ = steered(tmp_path / "poor", lambda text, hash_: None, calls=170)
    rich, _, told = steered(tmp_path / "rich", at("Plain.", "budget", calls=400), calls=170)
    assert poor.status == "budget" and level(poor) != "Level 5."
    assert (rich.status, level(rich), rich.budget) == ("finished", "Level 5.", {"calls": 400})
    assert told[0]["outcome"] == "done"


def test_a_lower_budget_is_refused(tmp_path: Path) -> None:
    report, _, told = steered(tmp_path, at("Level 2.", "budget", calls=100))
    assert (
        report.budget == {"calls": 2000}
        and "raised and never lowered, and the run has calls=2000" in told[0]["outcome"]
    )


ORDERS = {"stop": at("Level 2.", "stop"), "budget": at("Plain.", "budget", calls=400)}


@pytest.mark.parametrize("kind", ["budget", pytest.param("stop", marks=pytest.mark.slow)])
def test_a_resumed_run_takes_orders_up_at_the_same_place(kind: str, tmp_path: Path) -> None:
    """Interrupted before, at and after the order, it ends with the winner, the candidates and the calls of a run that
    was not."""
    calls = 170 if kind == "budget" else 2000
    whole, paid, _ = steered(tmp_path / "whole", ORDERS[kind], calls=calls)
    for stop_after in (1, 3, 5):
        if len(_val_scores(tmp_path / "whole")) < stop_after:
            continue  # the run has ended by then
        parted, paid_again, told = steered(tmp_path / str(stop_after), ORDERS[kind], calls=calls, stop_after=stop_after)
        assert (level(parted), parted.candidates, parted.status) == (level(whole), whole.candidates, whole.status)
        assert parted.as_dict()["gain"] == whole.as_dict()["gain"] and parted.budget == whole.budget
        assert paid_again.requests == paid.requests, f"a call was paid twice, interrupted after {stop_after}"
        assert [order["outcome"] for order in told] == ["done"]


def test_a_paused_run_begins_no_row_until_it_goes_on(tmp_path: Path) -> None:
    """The pause takes no minutes of the budget."""
    counts: list[int] = []

    def order(text: str, hash_: str) -> tuple[str, dict[str, Any]] | None:
        if text == "Level 2.":
            threading.Thread(target=go_on).start()
            return "pause", {}
        return None

    def go_on() -> None:
        store = Store(tmp_path / "run.db")
        paused = Orders(store, 1)
        while not any(o["outcome"] for o in paused.read_all()):
            time.sleep(0.02)
        time.sleep(0.5)  # rows that had begun end
        counts.append(_calls(store))
        time.sleep(1.2)
        counts.append(_calls(store))
        give_order(store, "last", "continue")
        store.close()

    begun = time.monotonic()
    report, lm, told = steered(tmp_path, order, seconds=0.008)
    assert report.spent["seconds"] <= time.monotonic() - begun - 1.2
    assert counts[0] == counts[1] < lm.requests and level(report) == "Level 5."
    assert [o["action"] for o in told] == ["pause", "continue"]


def _calls(store: Store) -> int:
    row = store.row("select count(*) n from calls")
    assert row is not None
    return int(row["n"])


def test_orders_that_cannot_be_taken_up_are_refused(tmp_path: Path) -> None:
    report, _, _ = steered(tmp_path, lambda text, hash_: None)
    store = Store(tmp_path / "run.db")
    with pytest.raises(StoreError, match="is not running"):
        give_order(store, report.run, "stop")
    with pytest.raises(StoreError, match="is not in"):
        give_order(store, "nothere", "stop")
    refused: list[str] = []

    def try_all(text: str, hash_: str) -> None:
        if text == "Level 2.":
            inner = Store(tmp_path / "b/run.db")
            for kind, data in (
                ("fly", {}),
                ("pin", {"candidate": hash_}),
                ("budget", {}),
                ("budget", {"calls": -1}),
                ("budget", {"pounds": 3}),
                ("stop", {"now": True}),
            ):
                with pytest.raises(SpecError) as said:
                    give_order(inner, "last", kind, data)
                refused.append(str(said.value))
            inner.close()

    steered(tmp_path / "b", try_all)
    assert len(refused) == 6 and "fly" in refused[0] and "'pin' cannot be ordered" in refused[1]


def test_the_command_line_gives_and_lists_orders(tmp_path: Path) -> None:
    said: list[str] = []
    db = ["--db", str(tmp_path / "run.db")]

    def order(text: str, hash_: str) -> None:
        if text == "Level 2.":
            said.extend(CliRunner().invoke(cli, ["steer", "last", *words, *db]).output for words in WORDS)

    report, _, _ = steered(tmp_path, order)
    assert level(report) == "Level 3." and said[0].startswith("order 1 sent")
    listed = CliRunner().invoke(cli, ["steer", "last", "list", *db]).output
    assert "budget  calls=5  refused: ceilings are raised and never lowered, and the run has calls=2000" in listed
    assert "stop  done" in listed
    for wrong in (["stop", "now"], ["stop", "calls=5"], ["budget", "5"], ["budget"], ["list"][:0]):
        found = CliRunner().invoke(cli, ["steer", "last", *wrong, *db])
        assert found.exit_code == 2, wrong


WORDS = (["budget", "calls=5"], ["stop"])


def test_an_order_of_an_earlier_version_is_refused_and_the_run_goes_on(tmp_path: Path) -> None:
    """A run that was cut off may have stored orders that are gone: `pin`, `drop` and `add`."""

    def order(text: str, hash_: str) -> None:
        store = Store(tmp_path / "run.db")
        if text == "Level 3." and not Orders(store, 1).read_all():
            Orders(store, 1).add("pin", {"candidate": hash_})
        store.close()

    report, _, told = steered(tmp_path, order, stop_after=5)
    assert (report.status, level(report)) == ("finished", "Level 5.")
    assert [one["outcome"] for one in told] == ["refused: this version of workbench has no `pin`"]


def test_a_wrong_name_of_the_database_makes_none(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["steer", "last", "pause", "--db", str(tmp_path / "none.db")])
    assert isinstance(done.exception, StoreError) and not (tmp_path / "none.db").exists()
