"""Tests for authors of plugins: does your plugin keep its contract?

    from workbench_testing import check_optimizer
    check_optimizer(MyOptimizer)

and likewise `check_node`, `check_metric`, `check_reader`, `check_lm`, `check_exporter`, `check_sandbox` and
`check_executor`. Or, one test for each check:

    @pytest.mark.parametrize("check", optimizer_checks(), ids=lambda check: check.__name__)
    def test_contract(check):
        check(MyOptimizer())

`workbench plugin new NAME --kind KIND` writes a project with such a test. The checks of executors need the extra
`executors`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from workbench_testing.exporters import (
    ExporterCase as ExporterCase,
    check_exporter as check_exporter,
    exporter_checks as exporter_checks,
)
from workbench_testing.lms import LMCase as LMCase, check_lm as check_lm, lm_checks as lm_checks
from workbench_testing.metrics import (
    MetricCase as MetricCase,
    check_metric as check_metric,
    metric_checks as metric_checks,
)
from workbench_testing.nodes import NodeCase as NodeCase, check_node as check_node, node_checks as node_checks
from workbench_testing.optimizers import check_optimizer as check_optimizer, optimizer_checks as optimizer_checks
from workbench_testing.readers import (
    ReaderCase as ReaderCase,
    check_reader as check_reader,
    reader_checks as reader_checks,
)
from workbench_testing.sandboxes import check_sandbox as check_sandbox, sandbox_checks as sandbox_checks
from workbench_testing.simulated import (
    HELPFUL as HELPFUL,
    Killed as Killed,
    SimulatedLM as SimulatedLM,
    SimulatedPool as SimulatedPool,
    run_simulated as run_simulated,
    write_task as write_task,
)

if TYPE_CHECKING:
    from workbench_testing.executors import check_executor as check_executor, executor_checks as executor_checks


def __getattr__(name: str) -> Any:
    """The checks of executors, which alone need the extra `executors`."""
    if name in ("check_executor", "executor_checks"):
        return getattr(importlib.import_module("workbench_testing.executors"), name)
    raise AttributeError(f"module 'workbench_testing' has no attribute {name!r}")
