"""The run database: one SQLite file. All SQL of core is in this room.

This room does not know budgets or optimizers.
"""

from workbench.store.candidates import (
    Candidates as Candidates,
    find_choices as find_choices,
)
from workbench.store.content import (
    parse_json as parse_json,
    read_options as read_options,
    read_report as read_report,
    read_spec as read_spec,
    told_apart as told_apart,
)
from workbench.store.database import (
    IN_MEMORY as IN_MEMORY,
    LISTED as LISTED,
    TABLES as TABLES,
    Store as Store,
    dumps as dumps,
    kind_of as kind_of,
    tags_of as tags_of,
    typed as typed,
)
from workbench.store.earlier_calls import (
    EarlierCalls as EarlierCalls,
    Usual as Usual,
    read_usual_calls as read_usual_calls,
)
from workbench.store.evaluations import (
    Evaluations as Evaluations,
    ResultRow as ResultRow,
    read_usual_row as read_usual_row,
)
from workbench.store.journal import LARGE_TEXT as LARGE_TEXT, Journal as Journal
from workbench.store.read_only import ReadOnlyStore as ReadOnlyStore, is_run_database as is_run_database
from workbench.store.runs import (
    Orders as Orders,
    RunLock as RunLock,
    RunRecord as RunRecord,
    add_run as add_run,
    find_exact_run as find_exact_run,
    find_or_add_run as find_or_add_run,
    find_runs as find_runs,
    is_result as is_result,
    list_attributions as list_attributions,
    list_run_heads as list_run_heads,
    new_run_name as new_run_name,
    remove_unused_texts as remove_unused_texts,
)
from workbench.store.schema import SCHEMA as SCHEMA, SCHEMA_VERSION as SCHEMA_VERSION
from workbench.store.sealed_tests import SealedTests as SealedTests, SeenRows as SeenRows
