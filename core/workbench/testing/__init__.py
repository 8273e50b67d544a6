"""Tests for authors of plugins: does your plugin keep its contract?

    from workbench.testing import check_optimizer
    check_optimizer(MyOptimizer)

and likewise `check_node`, `check_metric`, `check_reader`, `check_lm`, `check_exporter`, `check_sandbox` and
`check_executor`. Or, one test for each check:

    @pytest.mark.parametrize("check", optimizer_checks(), ids=lambda check: check.__name__)
    def test_contract(check):
        check(MyOptimizer())

`workbench plugin new NAME --kind KIND` writes a project with such a test.
"""

from workbench.testing.executors import check_executor as check_executor
from workbench.testing.executors import executor_checks as executor_checks
from workbench.testing.exporters import ExporterCase as ExporterCase
from workbench.testing.exporters import check_exporter as check_exporter
from workbench.testing.exporters import exporter_checks as exporter_checks
from workbench.testing.lms import LMCase as LMCase
from workbench.testing.lms import check_lm as check_lm
from workbench.testing.lms import lm_checks as lm_checks
from workbench.testing.metrics import MetricCase as MetricCase
from workbench.testing.metrics import check_metric as check_metric
from workbench.testing.metrics import metric_checks as metric_checks
from workbench.testing.nodes import NodeCase as NodeCase
from workbench.testing.nodes import check_node as check_node
from workbench.testing.nodes import node_checks as node_checks
from workbench.testing.optimizers import check_optimizer as check_optimizer
from workbench.testing.optimizers import optimizer_checks as optimizer_checks
from workbench.testing.readers import ReaderCase as ReaderCase
from workbench.testing.readers import check_reader as check_reader
from workbench.testing.readers import reader_checks as reader_checks
from workbench.testing.sandboxes import check_sandbox as check_sandbox
from workbench.testing.sandboxes import sandbox_checks as sandbox_checks
from workbench.testing.simulated import HELPFUL as HELPFUL
from workbench.testing.simulated import Killed as Killed
from workbench.testing.simulated import SimulatedLM as SimulatedLM
from workbench.testing.simulated import SimulatedPool as SimulatedPool
from workbench.testing.simulated import run_simulated as run_simulated
from workbench.testing.simulated import write_task as write_task
