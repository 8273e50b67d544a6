"""Orders to a running run: what they do, where, and that a resumed run takes them up at the same place."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner
from tests.helpers.planted import PlantedLM, plant

from workbench.cli import cli
from workbench.errors import BudgetSpent, Interrupted, SpecError, StoreError
from workbench.lm import Request
from workbench.proof import Report
from workbench.run import resume
from workbench.steering import ACTIONS, give_order
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
    """An order once a candidate with these instructions was evaluated; SELF stands for its hash."""

    def order(instructions: str, hash_: str) -> tuple[str, dict[str, Any]] | None:
        filled = {key: hash_ if value == "SELF" else value for key, value in data.items()}
        return (kind, filled) if instructions == text else None

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


def test_a_pinned_candidate_wins_over_better_ones(tmp_path: Path) -> None:
    report, _, _ = steered(tmp_path, at("Level 3.", "pin", candidate="SELF"))
    assert level(report) == "Level 3." and report.candidates == 6
    assert any("was pinned by its user" in warning for warning in report.warnings)
    assert report.best["val"] < max(_val_scores(tmp_path))


def test_a_dropped_candidate_cannot_win(tmp_path: Path) -> None:
    """It is the last one, so the order takes effect at the end of the search."""
    report, _, _ = steered(tmp_path, at("Level 5.", "drop", candidate="SELF"))
    assert level(report) == "Level 4." and any("dropped by the user" in warning for warning in report.warnings)


def _val_scores(folder: Path) -> list[float]:
    return [row["score"] for row in Store(folder / "run.db").rows("select score from evaluations where split = 'val'")]


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


def test_a_candidate_written_by_hand_is_evaluated_and_may_win(tmp_path: Path) -> None:
    by_hand = {"nodes.sort.instructions": "Level 5. By hand."}
    report, _, told = steered(tmp_path, at("Level 2.", "add", parent="SELF", set=by_hand))
    assert told[0]["outcome"] == "done" and report.candidates == 7
    row = Store(tmp_path / "run.db").row("select * from candidates where optimizer = 'hand'")
    assert row is not None and row["note"] == "by hand" and "Level 5. By hand." in row["tree"]


@pytest.mark.parametrize(
    ("address", "value", "said"),
    [
        ("nodes.sort.types", {"X": "python:evil.py:X"}, "cannot be written by hand"),
        ("nodes.sort.lm", "openai/other", "cannot be written by hand"),
    ],
)
def test_what_needs_a_trusted_file_is_not_written_by_hand(address: str, value: Any, said: str, tmp_path: Path) -> None:
    report, _, told = steered(tmp_path, at("Level 2.", "add", parent="SELF", set={address: value}))
    assert said in told[0]["outcome"] and level(report) == "Level 5." and report.candidates == 6


ORDERS = {
    "stop": at("Level 2.", "stop"),
    "pin": at("Level 3.", "pin", candidate="SELF"),
    "drop": at("Level 4.", "drop", candidate="SELF"),
    "budget": at("Plain.", "budget", calls=400),
    "add": at("Level 2.", "add", parent="SELF", set={"nodes.sort.instructions": "Level 4. By hand."}),
}


@pytest.mark.parametrize(
    "kind", [kind if kind in ("budget", "add") else pytest.param(kind, marks=pytest.mark.slow) for kind in ORDERS]
)
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
                ("pin", {}),
                ("pin", {"candidate": "zzzz"}),
                ("budget", {}),
                ("budget", {"calls": -1}),
                ("budget", {"pounds": 3}),
                ("add", {"parent": hash_, "set": {}}),
                ("add", {"parent": hash_, "set": {"nodes.nothere.instructions": "x"}}),
                ("add", {"parent": hash_, "set": {"lm.api_base": "http://evil.example"}}),
                ("stop", {"now": True}),
            ):
                with pytest.raises(SpecError) as said:
                    give_order(inner, "last", kind, data)
                refused.append(str(said.value))
            row = inner.row("select hash from candidates order by seq limit 1")
            assert row is not None
            with pytest.raises(SpecError, match="the baseline cannot be dropped"):
                give_order(inner, "last", "drop", {"candidate": row["hash"][:8]})
            inner.close()

    steered(tmp_path / "b", try_all)
    assert len(refused) == 10 and "fly" in refused[0] and "no candidate begins with 'zzzz'" in refused[2]


def test_the_command_line_gives_and_lists_orders(tmp_path: Path) -> None:
    said: list[str] = []

    def order(text: str, hash_: str) -> None:
        if text == "Level 3.":
            call = ["steer", "last", "pin", hash_[:8], "--db", str(tmp_path / "run.db")]
            said.append(CliRunner().invoke(cli, call).output)

    report, _, _ = steered(tmp_path, order)
    assert level(report) == "Level 3." and said[0].startswith("order 1 sent")
    db = ["--db", str(tmp_path / "run.db")]
    listed = CliRunner().invoke(cli, ["steer", "last", "list", *db])
    assert "pin" in listed.output and "done" in listed.output
    for wrong in (["stop", "now"], ["pin"], ["add", "c0"], ["budget"], ["list"][:0]):
        found = CliRunner().invoke(cli, ["steer", "last", *wrong, *db])
        assert found.exit_code == 2, wrong


def test_a_setting_inside_a_setting_can_be_written_and_others_are_refused_by_their_address() -> None:
    from workbench.steering.steered import _check_writable

    class Agent:
        learnable: ClassVar = {"slots.system.text": "text", "demos": "demos", "command": "code"}

    parent: Any = SimpleNamespace(enabled_nodes={"agent": Agent()})
    _check_writable(parent, "nodes.agent.slots.system.text")
    _check_writable(parent, "nodes.agent.demos.0")
    for address in ("nodes.agent.slots.system.match", "nodes.agent.slots", "nodes.agent.command", "lm"):
        with pytest.raises(SpecError, match="cannot be written by hand") as said:
            _check_writable(parent, address)
        assert address == "lm" or "nodes.agent.slots.system.text, nodes.agent.demos." in str(said.value)


def test_orders_are_listed_as_they_are_given_and_the_baseline_has_its_name(tmp_path: Path) -> None:
    def order(text: str, hash_: str) -> None:
        if text == "Level 3.":
            db = ["--db", str(tmp_path / "run.db")]
            for words in (["budget", "calls=5"], ["add", "baseline", "nodes.sort.instructions=Level 4. Mine."]):
                assert CliRunner().invoke(cli, ["steer", "last", *words, *db]).exit_code == 0

    steered(tmp_path, order)
    listed = CliRunner().invoke(cli, ["steer", "last", "list", "--db", str(tmp_path / "run.db")]).output
    assert "budget  calls=5  refused: ceilings are raised and never lowered, and the run has calls=2000" in listed
    assert "  nodes.sort.instructions=Level 4. Mine.  done" in listed


def test_every_action_is_carried_out_by_name() -> None:
    from workbench.steering.steered import Steering

    for action in set(ACTIONS) - {"pause", "continue"}:
        assert asyncio.iscoroutinefunction(getattr(Steering, f"_{action}")), action


def test_a_pin_does_not_reach_a_search_on_other_rows(tmp_path: Path) -> None:
    """An optimizer may search on a part of the rows first, where the pinned candidate was never evaluated."""

    class Inner(Ladder):
        async def optimize(self, study: Study) -> Workflow:
            await super().optimize(study)
            part = study.narrow(val=study.train[:8])
            await part.evaluate(study.workflow.patched({"nodes.sort.instructions": "Level 4. Inner."}))
            assert part.best.get("nodes.sort.instructions") == "Level 4. Inner."
            return study.best

    report, _, _ = steered(tmp_path, at("Level 2.", "pin", candidate="SELF"), optimizer=Inner())
    assert level(report) == "Level 2."


def test_a_wrong_name_of_the_database_makes_none(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["steer", "last", "pause", "--db", str(tmp_path / "none.db")])
    assert isinstance(done.exception, StoreError) and not (tmp_path / "none.db").exists()
