"""Causal statements of `memory` (CLIN): what the figures contradict is weakened and then dropped."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.helpers.memory_worlds import RECALL, World, plain_rows, run_world
from tests.helpers.planted import candidates

from workbench.lm import Request
from workbench_memory import optimizer as memory
from workbench_memory.causal_claims import MAYBE, NOTHING, Doubts, read_claim, sign_test_p


def test_a_statement_that_is_contradicted_is_weakened_and_then_dropped_though_the_proposer_insists(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The more is said of colours, the worse the answers; the proposer says it each time as if it were sure."""
    told: list[str] = []

    def skill(request: Request) -> float:
        notes = str(request.messages[-1]["content"])
        return 0.1 if "Colour is necessary" in notes else 0.3 if "Colour may help" in notes else 0.7

    def propose(request: Request) -> str:
        told.append(str(request.messages[-1]["content"]))
        return "- Colour is necessary for the label\n- The size does not contribute to the label"

    lists: dict[float, list[list[str]]] = {}
    for p in (0.0, 0.05):
        told.clear()
        monkeypatch.setattr(memory, "QUARANTINE", p)
        run_world(
            tmp_path / str(p),
            plain_rows(0, (40, 40, 20)),
            World(skill, propose),
            {"memory": {"kinds": ["insights"], "trials": 4}},
            nodes=RECALL,
            calls=1500,
        )
        stores = [[e["text"] for e in values["nodes.look.entries"]] for values in candidates(tmp_path / str(p))]
        lists[p] = [store for i, store in enumerate(stores) if store not in stores[:i]]
    certain, size = "Colour is necessary for the label", "The size does not contribute to the label"
    assert all(certain in store for store in lists[0.0]), "left alone, the proposer insists"
    assert lists[0.05] == [[certain, size], ["Colour may help with the label"]], lists
    assert "worse with these notes than without:\n- Colour is necessary" in told[1]


def test_what_the_figures_do_not_speak_against_may_be_said_as_before() -> None:
    doubts = Doubts()
    lines = ["Heat is necessary for steam.", "Salt may help with taste", "Topics matter", "Ice is not needed for steam"]
    assert doubts.settle(lines) == lines
    assert doubts.settle(["heat is necessary for Steam", *lines]) == lines, "of two on the same, the later one"
    assert doubts.settle([lines[0], "Heat does not contribute to steam"]) == ["Heat does not contribute to steam"]
    for line in lines[:3]:
        doubts.contradict(line)
    assert doubts.settle(lines) == ["Heat may help with steam", lines[3]]
    doubts.contradict("Heat may help with steam")
    assert doubts.settle(["Heat is needed for steam", "Salt does not contribute to taste"]) == [
        "Salt does not contribute to taste"
    ]
    assert sign_test_p([-1, -1, -1, -1, -1, 0]) == 1 / 32 and sign_test_p([1, -1, 0]) == 0.75
    assert sign_test_p([0, 0]) == 1


@pytest.mark.parametrize(
    "statement",
    ["Long answers do not help with sums", "Guessing never helps with sums", "Details are not needed for sums"],
)
def test_what_denies_is_not_turned_round(statement: str) -> None:
    assert read_claim(statement).strength == NOTHING


def test_what_cannot_be_weakened_in_words_is_only_dropped() -> None:
    doubts = Doubts()
    statement = "Naming what is needed helps with accuracy"
    assert read_claim(statement).strength == MAYBE and doubts.settle([statement]) == [statement]
    doubts.contradict(statement)
    assert doubts.settle([statement]) == []
