"""The errors of workbench as a tree, the kinds of failures, and what lint finds."""

from workbench.errors.defects import PAPER_CODES as PAPER_CODES
from workbench.errors.defects import Defect as Defect
from workbench.errors.defects import DefectKind as DefectKind
from workbench.errors.failures import FailureKind as FailureKind
from workbench.errors.tree import MOST_LISTED as MOST_LISTED
from workbench.errors.tree import BudgetSpent as BudgetSpent
from workbench.errors.tree import Interrupted as Interrupted
from workbench.errors.tree import LMError as LMError
from workbench.errors.tree import NodeError as NodeError
from workbench.errors.tree import PluginError as PluginError
from workbench.errors.tree import SandboxError as SandboxError
from workbench.errors.tree import SealBroken as SealBroken
from workbench.errors.tree import SearchStopped as SearchStopped
from workbench.errors.tree import ServerDead as ServerDead
from workbench.errors.tree import ShareSpent as ShareSpent
from workbench.errors.tree import SpecError as SpecError
from workbench.errors.tree import StoreError as StoreError
from workbench.errors.tree import WorkbenchError as WorkbenchError
from workbench.errors.tree import collect_errors as collect_errors
from workbench.errors.tree import errors_at as errors_at
from workbench.errors.tree import merge_errors as merge_errors
from workbench.errors.tree import suggest as suggest
