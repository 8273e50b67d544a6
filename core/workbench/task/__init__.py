"""The content of a workflow file: workflow, data, metric and search space, each checked against the others.

Everything that can be done with a file before a call is paid for.
"""

from workbench.task.alternatives import variants
from workbench.task.attacks import attacked_row, poisoned
from workbench.task.data import load_data
from workbench.task.dataset import Dataset, Example, Score, SealedRows, content_id, make_examples
from workbench.task.found_powers import FoundPowers, choices_of, find_powers, put
from workbench.task.known_rows import describe_rows, match_rows
from workbench.task.lint import find_defects, lint_task
from workbench.task.lm_checks import check_lms, check_node_lms
from workbench.task.load import Task, load_task, section_loaders
from workbench.task.metric import Metric, MetricFaults, as_score, graded_field, highest_score
from workbench.task.repeats import Repeats
from workbench.task.rows import Rows, read_rows, reader_of
from workbench.task.search_space import (
    Space,
    check_search,
    default_space,
    draw_demos,
    fitting_domains,
    labelled_demo,
    suggest_value,
)
from workbench.task.tokens import input_tokens, normalised_inputs, tokenize
from workbench.task.workflow_file import Function, expand_references, load_workflow, read_library
from workbench.task.write import (
    CALLED_KEYS,
    called_tree,
    dump_yaml,
    file_tree,
    kept_search,
    workflow_tree,
    write_workflow,
    written_node,
    written_value,
)

__all__ = [
    "attacked_row",
    "poisoned",
    "Task",
    "load_task",
    "load_data",
    "Rows",
    "read_rows",
    "reader_of",
    "make_examples",
    "content_id",
    "load_workflow",
    "section_loaders",
    "check_lms",
    "check_node_lms",
    "Function",
    "expand_references",
    "read_library",
    "Dataset",
    "Example",
    "Score",
    "SealedRows",
    "Metric",
    "MetricFaults",
    "as_score",
    "graded_field",
    "highest_score",
    "normalised_inputs",
    "describe_rows",
    "match_rows",
    "input_tokens",
    "tokenize",
    "Repeats",
    "Space",
    "check_search",
    "default_space",
    "suggest_value",
    "draw_demos",
    "labelled_demo",
    "variants",
    "dump_yaml",
    "CALLED_KEYS",
    "called_tree",
    "workflow_tree",
    "file_tree",
    "kept_search",
    "write_workflow",
    "written_node",
    "written_value",
    "FoundPowers",
    "find_powers",
    "choices_of",
    "put",
    "fitting_domains",
    "lint_task",
    "find_defects",
]
