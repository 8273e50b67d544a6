"""The gallery's designs with agents and worlds behind HTTP: right as they are, wrong where the mechanism is taken out.

The numbers in the names are those of the documents that list the designs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.gallery_tried import searched, tried

TURN = "nodes.talk.nodes.turn.source"
#: The turn of the file: the tasks that are given, then those done, those that wait, and who speaks next.
BEGUN = """
def turn(state, content, to, team, waiting, speaker):
    given = [{"agent": one, "task": content} for one in to if one in team]
"""
NONE_WAITS = f"""{BEGUN}
    return {{"tasks": given if state == "sync" else [], "waiting": [], "speaker": (to or [speaker])[0]}}
"""
ONE_SPEAKS = f"""{BEGUN}
    done = given if state == "sync" else waiting if state == "pause" else []
    waiting = waiting + given if state == "async" else [] if state == "pause" else waiting
    return {{"tasks": done, "waiting": waiting, "speaker": speaker}}
"""


def test_187_strangers_join_by_their_cards_and_talk_in_states(tmp_path: Path) -> None:
    whole = tried("internet_of_agents", tmp_path)
    assert whole.right == [True, True]
    first, second = (dict(run.prediction) for run in whole.outcomes)
    assert first["team"] == ["grocer", "carrier", "reckoner"] and second["team"] == ["reckoner"]
    assert first["talk"] == [
        "Postage to Rome?",
        "What does tea cost? tea costs 4",
        "Let us wait. postage to Rome is 9",
        "Please add it up.",
        "3 * 4 + 9 that is 21",
        "We are done.",
    ], "who is given a task without waiting has done it at the pause"
    spoke = [str(r.messages[-1]["content"]) for r in whole.script.requests if "It is your turn" in str(r.messages[0])]
    assert not any("Good with numbers" in told for told in spoke if "speaker: grocer" in told), "its own card alone"


@pytest.mark.parametrize(
    ("change", "right"),
    [
        pytest.param({"nodes.discover.of.query": "question"}, [False, False], id="not found by skill"),
        pytest.param({TURN: NONE_WAITS}, [False, True], id="no tasks that wait"),
        pytest.param({TURN: ONE_SPEAKS}, [False, True], id="nobody passes the word"),
        pytest.param({"nodes.talk.rounds": 3}, [False, True], id="three turns"),
    ],
)
def test_187_each_part_is_needed(change: dict[str, Any], right: list[bool], tmp_path: Path) -> None:
    assert tried("internet_of_agents", tmp_path, change).right == right


@pytest.mark.slow
def test_187_the_search_finds_the_turns_that_a_team_needs(tmp_path: Path) -> None:
    report = searched("internet_of_agents", "nodes.talk.rounds", 3, tmp_path)
    assert report.winner.get("nodes.talk.rounds") == 12 and report.baseline["val"] < 1.0 == report.best["val"]


def test_052_agentgym_an_agent_acts_in_a_world_behind_the_common_form(tmp_path: Path) -> None:
    whole = tried("agentgym", tmp_path)
    assert whole.right == [True, True]
    assert whole.outcomes[0].prediction["actions"] == [
        "Action: get 1 log",
        "Action: craft 4 plank using 1 log",
        "Action: craft 4 stick using 2 plank",
    ]
    assert tried("agentgym", tmp_path, {"nodes.craft.history": 0}).right == [False, False]
    assert tried("agentgym", tmp_path, {"nodes.craft.max_steps": 3}).right == [True, False]


def test_052_what_the_server_calls_an_error_is_no_zero(tmp_path: Path) -> None:
    """A world that fails says nothing of the player: its row is left out."""
    (outcome, *_) = tried("agentgym", tmp_path, {"nodes.craft.settings.key": "env_idx"}).outcomes
    assert outcome.failure == "environment" and "The id None is not valid" in str(outcome.message)


@pytest.mark.slow
def test_052_the_search_finds_that_it_must_remember(tmp_path: Path) -> None:
    report = searched("agentgym", "nodes.craft.history", 0, tmp_path)
    assert report.winner.get("nodes.craft.history") == 12 and report.baseline["val"] < report.best["val"]
