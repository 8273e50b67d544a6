"""For authors of plugins: does your optimizer keep the promises that users rely on?

    from workbench.testing import check_optimizer
    check_optimizer(MyOptimizer)

or, one test for each promise:

    @pytest.mark.parametrize("check", optimizer_checks(), ids=lambda check: check.__name__)
    def test_contract(check):
        check(MyOptimizer())
"""

from workbench.testing.checks import check_optimizer, optimizer_checks
from workbench.testing.simulated import Killed, SimulatedLM, SimulatedPool, run_simulated

__all__ = ["Killed", "SimulatedLM", "SimulatedPool", "check_optimizer", "optimizer_checks", "run_simulated"]
