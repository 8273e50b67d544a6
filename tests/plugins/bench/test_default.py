"""What `workbench plugin bench` compares: chains, the default, and differences by an interval that fits them."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from workbench.cli import cli
from workbench_bench.commands import _row
from workbench_bench.run_world import Result, run_world
from workbench_bench.worlds import WORLDS

sys.path.insert(0, str(Path(__file__).parents[3] / "contrib" / "bench" / "promises"))

import default_optimizer


def test_the_difference_to_random_search_has_the_interval_of_a_paired_t_test() -> None:
    from scipy.stats import ttest_rel

    ours, theirs = [0.7, 0.62, 0.81, 0.74, 0.66], [0.6, 0.6, 0.7, 0.71, 0.6]
    own, reference = ([Result(score, 300, True, best=0.9) for score in scores] for scores in (ours, theirs))
    found = _row("rules", "evolve", 400, own, reference)["vs_random"]
    low, high = ttest_rel(ours, theirs).confidence_interval()
    assert found["diff"] == pytest.approx(statistics.mean(ours) - statistics.mean(theirs))
    assert found["ci95"] == pytest.approx([low, high])
    assert low > 0, "with bounds of +-1 for each difference, as for a proof, it could not be"


def test_the_default_of_a_world_is_a_file_that_names_no_optimizer() -> None:
    """Its calls of the proposer come from what was chosen."""
    chosen = run_world(WORLDS["rules"], "default", calls=400, seed=5)
    assert chosen == run_world(WORLDS["rules"], ["textgrad", "evolve"], calls=400, seed=5)
    assert chosen.measured and chosen.proposer["calls"] > 0


@pytest.mark.slow
def test_a_chain_and_the_default_stand_in_the_table() -> None:
    flags = ["--world", "facets", "--budget-calls", "400", "--seeds", "2", "--jobs", "1", "--json"]
    done = CliRunner().invoke(
        cli, ["plugin", "bench", *flags, "--optimizers", "default,[{optuna: {trials: 2}}, random]"]
    )
    assert done.exit_code == 0 and '"default"' in done.output and '"optuna(trials=2) + random"' in done.output
    wrong = CliRunner().invoke(cli, ["plugin", "bench", *flags, "--optimizers", "[optuna, no_such]"])
    assert wrong.exit_code != 0 and "no_such" in str(wrong.exception)


@pytest.mark.slow
def test_the_default_is_near_the_best_and_never_below_the_former_one() -> None:
    """The small tier of contrib/bench/promises/default_optimizer.py, on seeds that are not reported."""
    found = default_optimizer.measure(["rules", "deceptive", "retrieval"], range(40, 44))
    assert not default_optimizer.missed(found, target=0.12), found


def test_a_missed_target_is_named() -> None:
    regrets = {"rules": {"default": [0.2, 0.2], "bootstrap": [0.1, 0.1]}}
    assert default_optimizer.missed(regrets) == ["mean regret 0.200 > 0.08", "rules: worse than bootstrap alone"]
    assert default_optimizer.missed({"rules": {"default": [0.05], "bootstrap": [0.05]}}) == []
