"""The level of the proof where nothing is gained, over hundreds of runs in each world: false claims stay below 5%.

The worlds are those of contrib/bench/promises/proof.py, which takes 1,000 runs of each and also measures coverage and
power. Here graded ones, which take longest and are farthest from the bound, have 400.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "contrib" / "bench" / "promises"))

import proof as bench

NULLS = [world for world in bench.worlds() if not world.gain]
#: Half a minute and more each. Two of few rows stay with the gate.
MANY = [w for w in NULLS if re.search("n=60|n=200|clusters|graded", w.name) and w.name != "graded skewed 5%, n=20"]
LONG = [pytest.param(world, marks=pytest.mark.long) if world in MANY else world for world in NULLS]


@pytest.mark.slow
@pytest.mark.parametrize("world", LONG, ids=lambda world: world.name)
def test_at_most_one_null_run_in_twenty_claims_a_gain(world: bench.World) -> None:
    row = bench.measure(world, 1000 if world.name.startswith("0/1") else 400, seed=7)
    assert row["shown95"][1] <= 0.05, row
    assert row["covered95"][1] >= 0.93, row


@pytest.mark.long
@pytest.mark.slow
def test_a_test_that_grows_by_resumes_keeps_its_level() -> None:
    row = bench.partial(1000, seed=7)
    assert row["shown95"][1] <= 0.05, row


@pytest.mark.slow
@pytest.mark.parametrize(
    "world", [w for w in NULLS if "skewed" in w.name and "n=20" in w.name], ids=lambda world: world.name
)
def test_few_rows_claim_no_gain_that_is_none(world: bench.World) -> None:
    assert bench.measure(world, 20, seed=3)["shown"] <= 0.1


def test_a_world_with_a_gain_is_told_from_one_without() -> None:
    rng = np.random.default_rng(5)
    worlds = {world.name: world for world in bench.worlds()}
    gain = sum(bench.proof_of(worlds["0/1 gain 0.2, n=200"], rng).shown for _ in range(30))
    none = sum(bench.proof_of(worlds["0/1, n=200"], rng).shown for _ in range(30))
    assert gain >= 25 and none <= 3
