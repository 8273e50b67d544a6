"""Which weights of candidates may be deleted."""

from __future__ import annotations

from workbench_training.state.checkpoints import list_losers


def test_the_best_stay_and_of_equal_ones_the_earlier() -> None:
    submitted = {step: {f"w{step}"} for step in ("2", "4", "6", "10", "12")}
    scores = {"2": 0.5, "4": 0.7, "6": 0.5, "10": 0.7}
    assert list_losers(submitted, scores, 1) == {"w2", "w6", "w10"}
    assert list_losers(submitted, scores, 3) == {"w6"}, "the weights of step 12 are not scored yet"
    assert list_losers(submitted, scores, 9) == set()


def test_weights_that_a_better_candidate_shares_stay() -> None:
    """Of two policies one did not change."""
    assert list_losers({"2": {"same", "b2"}, "4": {"same", "b4"}}, {"2": 0.5, "4": 0.7}, 1) == {"b2"}
