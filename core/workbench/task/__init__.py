"""A workflow file made into things: workflow, data, metric and search space, each checked against the others.

Everything about a file before a call is paid.
"""

from workbench.task.alternatives import variants
from workbench.task.copies import SHORT, Repeats, input_tokens, normalised_inputs, texts_of, tokens
from workbench.task.dataset import Dataset, Example, Score, SealedRows
from workbench.task.lint import remarks
from workbench.task.load import Task, check_label_unread, check_lm, check_lms, check_node_lms, load_task, sections
from workbench.task.metric import MOST_FAULTS, Metric, MetricFaults, as_score, parse_call
from workbench.task.search_space import Space, check_space, default_space, draw_demos, labelled_demo, suggested
from workbench.task.workflow_file import Function, expand, load_workflow, read_library
from workbench.task.write import check_writable, dump_yaml, workflow_tree, write_whole, write_workflow, written_node

__all__ = [
    "Task",
    "load_task",
    "load_workflow",
    "sections",
    "check_lm",
    "check_lms",
    "check_node_lms",
    "check_label_unread",
    "Function",
    "expand",
    "read_library",
    "Dataset",
    "Example",
    "Score",
    "Metric",
    "MetricFaults",
    "MOST_FAULTS",
    "as_score",
    "parse_call",
    "SealedRows",
    "normalised_inputs",
    "input_tokens",
    "texts_of",
    "tokens",
    "Repeats",
    "SHORT",
    "Space",
    "check_space",
    "default_space",
    "suggested",
    "draw_demos",
    "labelled_demo",
    "variants",
    "check_writable",
    "dump_yaml",
    "workflow_tree",
    "write_whole",
    "write_workflow",
    "written_node",
    "remarks",
]
