"""Tests for authors of plugins: does your optimizer keep its contract?

    from workbench.testing.optimizers import check_optimizer
    check_optimizer(MyOptimizer)

or, one test per check:

    @pytest.mark.parametrize("check", optimizer_checks(), ids=lambda check: check.__name__)
    def test_contract(check):
        check(MyOptimizer())
"""

from workbench.testing.optimizers import check_optimizer, optimizer_checks
from workbench.testing.simulated import (
    HELPFUL,
    Killed,
    SimulatedLM,
    SimulatedPool,
    SimulatedRun,
    run_simulated,
    write_task,
)

__all__ = [
    "Killed",
    "SimulatedLM",
    "SimulatedPool",
    "SimulatedRun",
    "check_optimizer",
    "optimizer_checks",
    "run_simulated",
    "write_task",
    "HELPFUL",
]
