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

from workbench.testing.executors import check_executor, executor_checks
from workbench.testing.exporters import ExporterCase, check_exporter, exporter_checks
from workbench.testing.lms import LMCase, check_lm, lm_checks
from workbench.testing.metrics import MetricCase, check_metric, metric_checks
from workbench.testing.nodes import NodeCase, check_node, node_checks
from workbench.testing.optimizers import check_optimizer, optimizer_checks
from workbench.testing.readers import ReaderCase, check_reader, reader_checks
from workbench.testing.sandboxes import check_sandbox, sandbox_checks
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
    "check_optimizer",
    "optimizer_checks",
    "check_node",
    "node_checks",
    "NodeCase",
    "check_metric",
    "metric_checks",
    "MetricCase",
    "check_reader",
    "reader_checks",
    "ReaderCase",
    "check_lm",
    "lm_checks",
    "LMCase",
    "check_exporter",
    "exporter_checks",
    "ExporterCase",
    "check_sandbox",
    "sandbox_checks",
    "check_executor",
    "executor_checks",
    "Killed",
    "SimulatedLM",
    "SimulatedPool",
    "SimulatedRun",
    "run_simulated",
    "write_task",
    "HELPFUL",
]
