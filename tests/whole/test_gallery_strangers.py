"""The gallery's designs with agents and worlds behind HTTP: right as they are, wrong where the mechanism is taken out.

The numbers in the names are those of the documents that list the designs.
"""

from __future__ import annotations

from pathlib import Path

from tests.helpers.gallery_tried import tried

ROWS = [
    ({"question": "What do 3 tins of tea cost, sent to Rome?"}, {"answer": "21"}),
    ({"question": "How much is 6 times 7?"}, {"answer": "42"}),
]


def test_187_strangers_join_by_their_cards_and_talk_in_states(tmp_path: Path) -> None:
    whole = tried("internet_of_agents", tmp_path, ROWS)
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


def test_052_what_the_server_calls_an_error_is_no_zero(tmp_path: Path) -> None:
    """A world that fails says nothing of the player: its row is left out."""
    rows = [({"question": "Craft it.", "data_idx": 1}, {"score": "1.0"})]
    (outcome,) = tried("agentgym", tmp_path, rows, {"nodes.craft.settings.key": "env_idx"}).outcomes
    assert outcome.failure == "environment" and "The id None is not valid" in str(outcome.message)
