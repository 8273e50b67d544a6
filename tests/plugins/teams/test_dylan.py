"""`dylan`: consensus, the ranker, and the importance of each member."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tests.helpers.scripted import run_node
from tests.helpers.teams import ROLES, notes, says, spoke, team

from workbench_teams.dylan import compute_importance


def test_consensus_ends_it_at_the_exact_vote(tmp_path: Path) -> None:
    """More than floor(2/3 n) of n: with four members three votes, not two."""
    three = says({"ann": "x", "bob": "x", "cid": "x", "dan": "y"})
    outcome, script = run_node(team("dylan"), {"question": "q"}, tmp_path, three)
    assert outcome.prediction["answer"] == "x" and len(script.requests) == 4 and notes(outcome)["rounds"] == 1
    two = says({"ann": "x", "bob": "x", "cid": "z", "dan": "y"}, ranker="1, 2")
    outcome, script = run_node(team("dylan", rounds=2), {"question": "q"}, tmp_path, two)
    assert notes(outcome)["rounds"] == 2 and len(script.requests) == 8


def test_the_ranker_keeps_members_by_name_and_those_alone_go_on(tmp_path: Path) -> None:
    said = says({"ann": "a", "bob": "b", "cid": "c", "dan": "d"}, ranker="The best are 4 and 2.")
    outcome, script = run_node(team("dylan"), {"question": "q"}, tmp_path, said)
    assert spoke(outcome)[-2:] == ["bob", "dan"] and len(spoke(outcome)) == 4 + 4 + 2
    assert set(notes(outcome)["importance"]) == set(ROLES)
    heard = str(next(r for r in script.requests if "answers_of_others" in str(r.messages)).messages[-1]["content"])
    assert all(f"- {x}" in heard for x in "abcd")


def test_a_ranker_that_cannot_be_read_keeps_those_with_most_votes(tmp_path: Path) -> None:
    said = says({"ann": "a", "bob": "b", "cid": "c", "dan": "b"}, ranker="none of them")
    outcome, _script = run_node(team("dylan"), {"question": "q"}, tmp_path, said)
    assert spoke(outcome)[-2:] == ["bob", "dan"]
    assert notes(outcome)["unreadable"] == "none of them"


def test_importance_adds_up_and_ranks_who_was_right_and_heeded(tmp_path: Path) -> None:
    """ann is right from the start and convinces bob and cid; dan never says anything."""
    said = says({"ann": "7", "bob": ["1", "7"], "cid": ["2", "7"], "dan": ""})
    outcome, _ = run_node(team("dylan", consensus=1.0, rounds=2), {"question": "q"}, tmp_path, said)
    worth = notes(outcome)["importance"]
    assert math.fsum(worth.values()) == pytest.approx(1, abs=1e-5)  # told with six digits
    assert max(worth, key=worth.__getitem__) == "ann" and worth.get("dan", 0.0) == 0.0


def test_importance_by_hand() -> None:
    layers = [{"a": 1, "b": 1}, {"a": 1, "b": 1}]
    owed = [{"a": {"a": 0.75, "b": 0.25}, "b": {"a": 0.5, "b": 0.5}}]
    assert compute_importance(layers, owed, {"a"}) == {"a": (1 + 0.75) / 2, "b": 0.25 / 2}
    assert compute_importance(layers, owed, {"a", "b"}) == {"a": (0.5 + 0.625) / 2, "b": (0.5 + 0.375) / 2}
    assert compute_importance([{"a": 1}], [], {"a"}) == {"a": 1.0}


def test_ratings_that_cannot_be_read_count_alike(tmp_path: Path) -> None:
    members = ("ann", "bob")
    for told, expected in [("5 1", (0.5 + 5 / 6) / 2), ("no idea", 0.5)]:
        said = says({"ann": "x", "bob": "y"}, rates={"all": told})
        outcome, _ = run_node(team("dylan", members, rate=True, rounds=2), {"question": told}, tmp_path, said)
        assert notes(outcome)["importance"]["ann"] == pytest.approx(
            (1 + (5 / 6 if told == "5 1" else 0.5)) / 2, abs=1e-5
        ), expected
