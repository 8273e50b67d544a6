"""How `mcts` selects a parent and when it converges, by AFlow's rules."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings, strategies as st

from workbench_kit.searching import softmix
from workbench_mcts.search import ALPHA, MIX, Convergence


def test_the_golden_vector_of_aflow() -> None:
    """From a public log of AFlow (issue 22): alpha 0.2, lambda 0.3, and ours are these."""
    assert softmix([0.69760, 0.12431], mix=MIX, alpha=ALPHA) == pytest.approx([0.84999, 0.15001], abs=1e-5)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0, 1), st.floats(0, 5), st.floats(-3, 3))
@settings(max_examples=60, deadline=None)
def test_soft_mixed_probabilities(scores: list[float], mix: float, alpha: float, shift: float) -> None:
    found = softmix(scores, mix=mix, alpha=alpha)
    assert math.fsum(found) == pytest.approx(1) and min(found) >= mix / len(scores) - 1e-12
    assert found == pytest.approx(softmix([s + shift for s in scores], mix=mix, alpha=alpha), abs=1e-6)
    assert [found[i] for i in sorted(range(len(scores)), key=lambda i: scores[i])] == sorted(found)


def rounds_until(scores: Sequence[Sequence[float]], patience: int, top: int = 3) -> int | None:
    """The round in which the convergence fires, counted from 1."""
    ended, seen = Convergence(patience, top), list[float]()
    for number, new in enumerate(scores, 1):
        seen += new
        if ended.tell(seen):
            return number
    return None


def test_convergence_fires_when_the_best_stay_the_same() -> None:
    flat = [[0.1]] * 30
    rising = [[0.1 + i / 50] for i in range(30)]
    assert rounds_until([[0.5, 0.6, 0.7], *flat], patience=5) == 6
    assert rounds_until(rising, patience=5) is None
    # A new third best is a change of the mean of three; a new fourth best is none.
    late = [[0.5, 0.6, 0.7], [0.1], [0.1], [0.55], *flat]
    assert rounds_until(late, patience=5) == 9
    assert rounds_until([[0.5, 0.6, 0.7], [0.1], [0.1], [0.4], *flat], patience=5) == 6


@given(st.integers(1, 6), st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_convergence_never_fires_before_four_rounds(patience: int, top: int) -> None:
    found = rounds_until([[0.5]] * 20, patience, top)
    assert found == max(patience + 1, 4)
