"""Which weights of candidates may be deleted."""

from __future__ import annotations

from workbench_training.state.training_state import State


def test_the_best_stay_and_of_equal_ones_the_earlier() -> None:
    state = State(
        offered={step: {"": f"w{step}"} for step in ("2", "4", "6", "10", "12")},
        scores={"2": 0.5, "4": 0.7, "6": 0.5, "10": 0.7},
    )
    assert state.losers(1) == {"w2", "w6", "w10"}
    assert state.losers(3) == {"w6"}, "the weights of step 12 are not scored yet"
    assert state.losers(9) == set()


def test_weights_that_a_better_candidate_shares_stay() -> None:
    """Of two policies one did not change."""
    state = State(
        offered={"2": {"a": "same", "b": "b2"}, "4": {"a": "same", "b": "b4"}},
        scores={"2": 0.5, "4": 0.7},
    )
    assert state.losers(1) == {"b2"}
