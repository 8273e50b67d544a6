"""The errors of workbench as a tree, the kinds of failures, and the defects that lint finds."""

from workbench.errors.defects import PAPER_CODES as PAPER_CODES, Defect as Defect, DefectKind as DefectKind
from workbench.errors.failures import (
    FailureKind as FailureKind,
    count_missing as count_missing,
    describe_missing as describe_missing,
)
from workbench.errors.tree import (
    MAX_LISTED as MAX_LISTED,
    NOTHING as NOTHING,
    BudgetSpent as BudgetSpent,
    Interrupted as Interrupted,
    LMError as LMError,
    NodeError as NodeError,
    PluginError as PluginError,
    SandboxError as SandboxError,
    SealBroken as SealBroken,
    SearchStopped as SearchStopped,
    ServerDead as ServerDead,
    ShareSpent as ShareSpent,
    SpecError as SpecError,
    StoreError as StoreError,
    WorkbenchError as WorkbenchError,
    collect_errors as collect_errors,
    current_place as current_place,
    errors_at as errors_at,
    merge_errors as merge_errors,
    placed_at as placed_at,
    suggest as suggest,
)
