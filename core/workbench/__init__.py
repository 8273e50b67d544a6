"""workbench: optimize LLM agent workflows under one budget, and prove the gain on sealed data.

Everything public is imported on first use, so that `import workbench` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from workbench._version import __version__

_EXPORTS = {
    "hookimpl": "workbench.plugins",
    "BudgetSpent": "workbench.errors",
    "Context": "workbench.runtime",
    "Dataset": "workbench.task",
    "Evaluation": "workbench.study",
    "Example": "workbench.task",
    "LM": "workbench.lm",
    "LMError": "workbench.errors",
    "Metric": "workbench.task",
    "NodeError": "workbench.errors",
    "NodeKind": "workbench.workflow",
    "Optimizer": "workbench.study",
    "Patch": "workbench.workflow",
    "PluginError": "workbench.errors",
    "Request": "workbench.lm",
    "Response": "workbench.lm",
    "Score": "workbench.task",
    "SpecError": "workbench.errors",
    "Study": "workbench.study",
    "Workflow": "workbench.workflow",
    "WorkbenchError": "workbench.errors",
    "Prediction": "workbench.inference",
    "PredictionError": "workbench.inference",
    "load": "workbench.inference",
    "load_spec": "workbench.spec",
    "EvalReport": "workbench.evaluation",
    "Report": "workbench.proof",
    "optimize": "workbench.api",
    "aoptimize": "workbench.api",
    "evaluate": "workbench.api",
    "aevaluate": "workbench.api",
    "resume": "workbench.run",
}
__all__ = [
    "hookimpl",
    "__version__",
    "BudgetSpent",
    "Context",
    "Dataset",
    "Evaluation",
    "Example",
    "LM",
    "LMError",
    "Metric",
    "NodeError",
    "NodeKind",
    "Optimizer",
    "Patch",
    "PluginError",
    "Request",
    "Response",
    "Score",
    "SpecError",
    "Study",
    "Workflow",
    "WorkbenchError",
    "Prediction",
    "PredictionError",
    "load",
    "load_spec",
    "EvalReport",
    "Report",
    "optimize",
    "aoptimize",
    "evaluate",
    "aevaluate",
    "resume",
]

if TYPE_CHECKING:
    from workbench.api import aevaluate, aoptimize, evaluate, optimize
    from workbench.errors import BudgetSpent, LMError, NodeError, PluginError, SpecError, WorkbenchError
    from workbench.evaluation import EvalReport
    from workbench.inference import Prediction, PredictionError, load
    from workbench.lm import LM, Request, Response
    from workbench.plugins import hookimpl
    from workbench.proof import Report
    from workbench.run import resume
    from workbench.runtime import Context
    from workbench.spec import load_spec
    from workbench.study import Evaluation, Optimizer, Study
    from workbench.task import Dataset, Example, Metric, Score
    from workbench.workflow import NodeKind, Patch, Workflow


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'workbench' has no attribute {name!r}")
