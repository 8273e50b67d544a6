"""`contest`: standings decide who is asked and what a vote weighs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.helpers.scripted import run_node
from tests.helpers.teams import role_of, says, team


def test_the_best_by_their_standing_are_asked(tmp_path: Path) -> None:
    said = says({"ann": "a", "bob": "b", "cid": "c", "dan": "b"})
    node = team("contest", standing={"ann": 0.9, "cid": 0.6}, adopt=2)
    outcome, script = run_node(node, {"question": "q"}, tmp_path, said)
    assert outcome.prediction["answer"] == "a" and [role_of(r) for r in script.requests] == ["ann", "cid"]
    outcome, _ = run_node(team("contest", standing={"ann": 0.9}), {"question": "q"}, tmp_path, said)
    assert outcome.prediction["answer"] == "b"  # two votes of 0.5 outweigh one of 0.9


@pytest.mark.parametrize(("ann", "wins"), [(0.9, "a"), (0.5, "b")])
def test_a_vote_weighs_what_its_members_standing_says(ann: float, wins: str, tmp_path: Path) -> None:
    """One against two: only the weights decide, and those who are asked are the same."""
    said = says({"ann": "a", "bob": "b", "cid": "b", "dan": "c"})
    node = team("contest", standing={"ann": ann, "bob": 0.3, "cid": 0.3, "dan": 0.1})
    outcome, script = run_node(node, {"question": "q"}, tmp_path, said)
    assert outcome.prediction["answer"] == wins and len(script.requests) == 4
