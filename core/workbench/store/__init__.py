"""The run database: one SQLite file. All SQL of core stands here.

This room knows no budget and no optimizer.
"""

from workbench.store.candidates import Candidates, read_trees, read_val_scores
from workbench.store.content import check_sum, parse_json
from workbench.store.database import IN_MEMORY, TABLES, Store, dumps, now
from workbench.store.evaluations import Evaluations, ResultRow
from workbench.store.journal import Journal
from workbench.store.run_lock import RunLock
from workbench.store.runs import RunRecord, add_run, find_started_run, list_runs
from workbench.store.schema import M001_INITIAL
from workbench.store.sealed_tests import SealedTests

__all__ = [
    "Store",
    "RunLock",
    "Journal",
    "RunRecord",
    "add_run",
    "list_runs",
    "find_started_run",
    "Candidates",
    "read_trees",
    "read_val_scores",
    "Evaluations",
    "ResultRow",
    "SealedTests",
    "check_sum",
    "parse_json",
    "dumps",
    "now",
    "TABLES",
    "IN_MEMORY",
    "M001_INITIAL",
]
