"""The errors of workbench as a tree, the kinds of failures, and what lint finds."""

from workbench.errors.defects import PAPER_CODES, Defect, DefectKind
from workbench.errors.failures import FailureKind
from workbench.errors.tree import (
    MOST_LISTED,
    BudgetSpent,
    Interrupted,
    LMError,
    NodeError,
    PluginError,
    SandboxError,
    SealBroken,
    SearchStopped,
    ServerDead,
    ShareSpent,
    SpecError,
    StoreError,
    WorkbenchError,
    collect_errors,
    errors_at,
    merge_errors,
    suggest,
)

__all__ = [
    "BudgetSpent",
    "Defect",
    "DefectKind",
    "FailureKind",
    "Interrupted",
    "LMError",
    "MOST_LISTED",
    "NodeError",
    "PAPER_CODES",
    "PluginError",
    "SandboxError",
    "SealBroken",
    "SearchStopped",
    "ServerDead",
    "ShareSpent",
    "SpecError",
    "StoreError",
    "WorkbenchError",
    "collect_errors",
    "errors_at",
    "merge_errors",
    "suggest",
]
