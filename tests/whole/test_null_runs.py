"""A small version of contrib/bench/promises/null_runs.py: whole runs in worlds that are set up wrongly."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "contrib" / "bench" / "promises"))

from null_runs import WITHOUT_GAIN, claims  # type: ignore[import-not-found]


@pytest.mark.slow
@pytest.mark.parametrize(
    "world",
    [
        "remembers",
        "cache, latency",
        "copies, a word",
        "copies, unseen",
        pytest.param("conversations", marks=pytest.mark.long),
        pytest.param("val reused", marks=pytest.mark.long),
        "branches",
        "rare dear rows",
        "winner silent",
        pytest.param("graded, skewed", marks=pytest.mark.long),
    ],
)
def test_a_world_without_a_gain_shows_none_and_one_with_it_does(world: str) -> None:
    """At a level of 2.5%, more than 2 claims of 12 come once in 300 worlds."""
    assert sum(claims((world, 500 + seed, False)) for seed in range(12)) <= 2
    if world not in WITHOUT_GAIN:
        assert sum(claims((world, 500 + seed, True)) for seed in range(6)) >= 3
