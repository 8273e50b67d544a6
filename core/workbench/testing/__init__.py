"""For authors of plugins: does your optimizer keep the promises that users rely on?

    from workbench.testing.optimizers import check_optimizer
    check_optimizer(MyOptimizer)

or, one test for each promise:

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
