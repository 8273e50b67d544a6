"""workbench: optimize LLM agent workflows under one budget, and prove the gain on sealed data.

Everything public is imported on first use, so that `import workbench` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from workbench._version import __version__ as __version__

#: The public names of each room.
_HOMES = {
    "workbench.api": ("aevaluate", "aoptimize", "evaluate", "optimize"),
    "workbench.cli.progress": ("ProgressLines",),
    "workbench.errors": ("BudgetSpent", "LMError", "NodeError", "PluginError", "SpecError", "WorkbenchError"),
    "workbench.evaluation": ("EvalReport",),
    "workbench.inference": ("Prediction", "PredictionError", "load"),
    "workbench.lm": ("LM", "Request", "Response"),
    "workbench.plugins": ("hookimpl",),
    "workbench.proof": ("Report",),
    "workbench.run": ("resume",),
    "workbench.runtime": ("Context",),
    "workbench.spec": ("load_spec",),
    "workbench.study": ("Evaluation", "Optimizer", "Study"),
    "workbench.task": ("Dataset", "Example", "Metric", "Score"),
    "workbench.workflow": ("NodeKind", "Patch", "Workflow"),
}

if TYPE_CHECKING:
    from workbench.api import aevaluate as aevaluate, aoptimize as aoptimize, evaluate as evaluate, optimize as optimize
    from workbench.cli.progress import ProgressLines as ProgressLines
    from workbench.errors import (
        BudgetSpent as BudgetSpent,
        LMError as LMError,
        NodeError as NodeError,
        PluginError as PluginError,
        SpecError as SpecError,
        WorkbenchError as WorkbenchError,
    )
    from workbench.evaluation import EvalReport as EvalReport
    from workbench.inference import Prediction as Prediction, PredictionError as PredictionError, load as load
    from workbench.lm import LM as LM, Request as Request, Response as Response
    from workbench.plugins import hookimpl as hookimpl
    from workbench.proof import Report as Report
    from workbench.run import resume as resume
    from workbench.runtime import Context as Context
    from workbench.spec import load_spec as load_spec
    from workbench.study import Evaluation as Evaluation, Optimizer as Optimizer, Study as Study
    from workbench.task import Dataset as Dataset, Example as Example, Metric as Metric, Score as Score
    from workbench.workflow import NodeKind as NodeKind, Patch as Patch, Workflow as Workflow


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'workbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List all names for completion in notebooks. They are imported on first use."""
    return sorted([*globals(), *(name for names in _HOMES.values() for name in names)])
