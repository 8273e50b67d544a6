"""Planted problems: the simulated task's optimum is known, so an optimizer's choice has a true value without noise."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench import Workflow
from workbench.plugins import plugins
from workbench_testing import HELPFUL, SimulatedLM, run_simulated

BASELINE, OPTIMUM = 0.35, 0.35 + 0.30 + 0.04 * 8
SEEDS = range(6)
CALLS = 260


def skill(workflow: Workflow) -> float:
    """The simulated model's true accuracy under a workflow (the formula of `SimulatedLM`)."""
    demos, shown = workflow.get("nodes.sort.demos", []), workflow.get("nodes.sort.retrieve", 0)
    count = min(len(demos), shown) if shown else len(demos)
    return BASELINE + 0.30 * (HELPFUL in workflow.get("nodes.sort.instructions")) + 0.04 * min(count, 8)


def skills(name: str, folder: Path, calls: int = CALLS) -> list[float]:
    optimizer = plugins().get("optimizers", name)()
    return [skill(run_simulated(optimizer, folder / f"{name}{s}", calls=calls, seed=s).report.winner) for s in SEEDS]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


@pytest.fixture(scope="module")
def random_skills(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    return skills("random", tmp_path_factory.mktemp("random"))


def test_the_formula_is_the_models(tmp_path: Path) -> None:
    """What `skill` says is what the simulated model does, on many rows."""
    run = run_simulated(plugins().get("optimizers", "random")(), tmp_path, calls=200)
    assert skill(run.report.winner) > BASELINE and pytest.approx(0.97) == OPTIMUM


@pytest.mark.slow
@pytest.mark.parametrize("name", ["optuna", "bootstrap"])
def test_at_the_same_budget_not_worse_than_random(name: str, random_skills: list[float], tmp_path: Path) -> None:
    """bootstrap does not touch instructions, so its own optimum is 0.67; random may find both levers."""
    found = skills(name, tmp_path)
    reach = OPTIMUM if name == "optuna" else OPTIMUM - 0.30
    regret, random_regret = reach - mean(found), OPTIMUM - mean(random_skills)
    assert regret <= random_regret + 0.03, (found, random_skills)
    assert min(found) > BASELINE


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dspy_bootstrap", "dspy_mipro", "dspy_gepa"])
def test_dspys_optimizers_find_what_they_are_made_for(name: str, tmp_path: Path) -> None:
    found = skills(name, tmp_path, calls=700)
    assert mean(found) > BASELINE + 0.08, found


#: Optimizers that search by different means; each runs twice in a world where nothing helps.
SEARCHING = ("random", "optuna", "bootstrap", "evolve", "fgo", "mcts", "memory", "prompt_mcts", "rewrite", "textgrad")


@pytest.mark.slow
def test_where_nothing_helps_no_gain_is_claimed(tmp_path: Path) -> None:
    """The negative control: of 20 runs on the null problem at most one may claim a gain (5%)."""
    claims = []
    for name in SEARCHING:
        for seed in range(2):
            optimizer, folder = plugins().get("optimizers", name)(), tmp_path / f"{name}{seed}"
            run = run_simulated(optimizer, folder, lm=SimulatedLM(helps=False), calls=CALLS, seed=seed)
            if run.report.gain_shown:
                claims.append((name, seed))
    assert len(claims) <= 1, claims
