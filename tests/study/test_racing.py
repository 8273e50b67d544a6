"""Racing: what is stopped early, and what never."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from workbench.study import paired_race

# Races

_grades = st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0])
_pairs = st.lists(st.tuples(_grades, _grades), min_size=1, max_size=40)


@given(reference=st.lists(_grades, min_size=1, max_size=40), seen=st.integers(1, 40))
def test_an_equal_candidate_is_never_stopped(reference: list[float], seen: int) -> None:
    assert paired_race(reference)(reference[:seen]) is False


@pytest.mark.slow
@given(pairs=_pairs, seen=st.integers(1, 40), p=st.sampled_from([0.05, 0.1, 0.5]))
def test_a_race_stops_only_what_cannot_win_or_is_surely_worse(
    pairs: list[tuple[float, float]], seen: int, p: float
) -> None:
    from scipy.stats import wilcoxon

    reference, scores = [b for _, b in pairs], [a for a, _ in pairs][:seen]
    stopped = paired_race(reference, p=p, least=8)(scores)
    tenths = round(10 * math.fsum(scores)) + 10 * (len(reference) - len(scores))
    hopeless = tenths < round(10 * math.fsum(reference))
    differences = [a - b for a, b in zip(scores, reference, strict=False)]
    behind = len(scores) >= 8 and any(differences) and sum(differences) <= 0
    surely = behind and wilcoxon(differences, alternative="less", zero_method="zsplit").pvalue < p
    assert stopped == (hopeless or surely), "not even full marks on the rest would do, or the test says so"


def test_a_clear_loser_is_stopped_and_a_better_one_is_not() -> None:
    race = paired_race([1.0] * 10 + [0.0] * 30)
    assert race([0.0] * 7) is False, "seven rows are too few, and the rest could still make up for them"
    assert race([0.0] * 8) is True
    assert race([1.0] * 10 + [0.0] * 20) is False
    assert paired_race([0.0] * 40)([1.0] * 8) is False
    # six losses, one win, three ties: p is 0.06 on the side that is asked about, 0.125 on both
    assert paired_race([1.0] * 6 + [0.0] * 34)([0.0] * 6 + [1.0] + [0.0] * 3) is True


def test_who_is_ahead_by_one_large_win_is_not_stopped() -> None:
    """Nine small losses have the smaller ranks, and the sum of all differences is what counts in the end."""
    reference = [0.1] * 10 + [0.0] * 30
    assert paired_race(reference)([0.0] * 8 + [1.0]) is False
    assert paired_race(reference)([0.0] * 8 + [0.2]) is True


def test_ties_speak_for_a_candidate() -> None:
    """Four losses are much among eight rows and little among 34."""
    reference = [1.0] * 4 + [0.0] * 60
    assert paired_race(reference)([0.0] * 34) is False
    assert paired_race([1.0] * 4 + [0.0] * 4, p=0.5)([0.0] * 8) is True
