"""The run database: one SQLite file. All SQL of core stands here.

This room knows no budget and no optimizer.
"""

from workbench.store.candidates import Candidates as Candidates
from workbench.store.candidates import find_choices as find_choices
from workbench.store.candidates import read_trees as read_trees
from workbench.store.candidates import read_val_scores as read_val_scores
from workbench.store.content import parse_json as parse_json
from workbench.store.content import read_options as read_options
from workbench.store.content import read_report as read_report
from workbench.store.content import read_spec as read_spec
from workbench.store.database import IN_MEMORY as IN_MEMORY
from workbench.store.database import LISTED as LISTED
from workbench.store.database import TABLES as TABLES
from workbench.store.database import Store as Store
from workbench.store.database import dumps as dumps
from workbench.store.database import kind_of as kind_of
from workbench.store.database import tags_of as tags_of
from workbench.store.earlier_calls import EarlierCalls as EarlierCalls
from workbench.store.earlier_calls import Usual as Usual
from workbench.store.earlier_calls import read_usual_calls as read_usual_calls
from workbench.store.evaluations import Evaluations as Evaluations
from workbench.store.evaluations import ResultRow as ResultRow
from workbench.store.journal import LARGE_TEXT as LARGE_TEXT
from workbench.store.journal import Journal as Journal
from workbench.store.read_only import ReadOnlyStore as ReadOnlyStore
from workbench.store.read_only import is_run_database as is_run_database
from workbench.store.runs import Orders as Orders
from workbench.store.runs import RunLock as RunLock
from workbench.store.runs import RunRecord as RunRecord
from workbench.store.runs import add_run as add_run
from workbench.store.runs import find_exact_run as find_exact_run
from workbench.store.runs import find_or_add_run as find_or_add_run
from workbench.store.runs import find_runs as find_runs
from workbench.store.runs import is_result as is_result
from workbench.store.runs import list_attributions as list_attributions
from workbench.store.runs import list_run_heads as list_run_heads
from workbench.store.runs import new_run_name as new_run_name
from workbench.store.runs import remove_unused_texts as remove_unused_texts
from workbench.store.schema import SCHEMA as SCHEMA
from workbench.store.schema import SCHEMA_VERSION as SCHEMA_VERSION
from workbench.store.sealed_tests import SealedTests as SealedTests
from workbench.store.sealed_tests import SeenRows as SeenRows
