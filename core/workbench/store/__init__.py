"""The run database: one SQLite file. All SQL of core stands here.

This room knows no budget and no optimizer.
"""

from workbench.store.candidates import Candidates, find_choices, read_trees, read_val_scores
from workbench.store.content import parse_json, read_options, read_report, read_spec
from workbench.store.database import IN_MEMORY, LISTED, REMOVED, TABLES, Store, dumps, kind_of, now, tags_of
from workbench.store.earlier_calls import EarlierCalls, Usual, read_usual_calls
from workbench.store.evaluations import Evaluations, ResultRow
from workbench.store.journal import LARGE_TEXT, Journal
from workbench.store.read_only import ReadOnlyStore, is_run_database
from workbench.store.runs import (
    Orders,
    RunLock,
    RunRecord,
    add_run,
    find_exact_run,
    find_or_add_run,
    find_runs,
    find_started_run,
    is_result,
    list_attributions,
    list_run_heads,
    new_run_name,
    remove_unused_texts,
)
from workbench.store.schema import SCHEMA, SCHEMA_VERSION
from workbench.store.sealed_tests import SealedTests, SeenRows

__all__ = [
    "Store",
    "ReadOnlyStore",
    "is_run_database",
    "RunLock",
    "Journal",
    "EarlierCalls",
    "Usual",
    "read_usual_calls",
    "LARGE_TEXT",
    "RunRecord",
    "Orders",
    "add_run",
    "new_run_name",
    "kind_of",
    "tags_of",
    "LISTED",
    "REMOVED",
    "remove_unused_texts",
    "find_or_add_run",
    "find_started_run",
    "find_exact_run",
    "find_runs",
    "list_run_heads",
    "is_result",
    "list_attributions",
    "Candidates",
    "read_trees",
    "find_choices",
    "read_val_scores",
    "Evaluations",
    "ResultRow",
    "SealedTests",
    "SeenRows",
    "parse_json",
    "read_options",
    "read_report",
    "read_spec",
    "dumps",
    "now",
    "TABLES",
    "IN_MEMORY",
    "SCHEMA",
    "SCHEMA_VERSION",
]
