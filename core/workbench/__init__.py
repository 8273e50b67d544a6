"""workbench: optimize LLM agent workflows under one budget, and prove the gain on sealed data.

Everything public is imported on first use, so that `import workbench` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from workbench._version import __version__
from workbench.hookspecs import hookimpl

_EXPORTS = {
    "BudgetSpent": "workbench.errors",
    "Context": "workbench.runtime",
    "Dataset": "workbench.data",
    "Evaluation": "workbench.evaluate",
    "Example": "workbench.data",
    "LM": "workbench.lm",
    "LMError": "workbench.errors",
    "Metric": "workbench.metric",
    "NodeError": "workbench.errors",
    "NodeKind": "workbench.nodes",
    "Optimizer": "workbench.study",
    "Patch": "workbench.workflow",
    "PluginError": "workbench.errors",
    "Request": "workbench.lm",
    "Response": "workbench.lm",
    "Score": "workbench.data",
    "SpecError": "workbench.errors",
    "Study": "workbench.study",
    "Workflow": "workbench.workflow",
    "WorkbenchError": "workbench.errors",
    "load_spec": "workbench.spec",
    "optimize": "workbench.run",
    "resume": "workbench.run",
}
__all__ = ["hookimpl", "__version__", *_EXPORTS]

if TYPE_CHECKING:
    from workbench.data import Dataset, Example, Score
    from workbench.errors import BudgetSpent, LMError, NodeError, PluginError, SpecError, WorkbenchError
    from workbench.evaluate import Evaluation
    from workbench.lm import LM, Request, Response
    from workbench.metric import Metric
    from workbench.nodes import NodeKind
    from workbench.run import optimize, resume
    from workbench.runtime import Context
    from workbench.spec import load_spec
    from workbench.study import Optimizer, Study
    from workbench.workflow import Patch, Workflow


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'workbench' has no attribute {name!r}")
