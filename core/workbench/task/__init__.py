"""The content of a workflow file: workflow, data, metric and search space, each checked against the others.

This room does everything that needs no paid call.
"""

from workbench.task.alternatives import resolve_picks as resolve_picks, variants as variants
from workbench.task.data import load_data as load_data
from workbench.task.dataset import (
    Dataset as Dataset,
    Example as Example,
    Score as Score,
    SealedRows as SealedRows,
    content_id as content_id,
    make_examples as make_examples,
)
from workbench.task.drawn_rows import ReadRow as ReadRow, RowDraw as RowDraw, Table as Table
from workbench.task.file_inputs import file_readers as file_readers, resolve_row as resolve_row
from workbench.task.handles import find_row as find_row
from workbench.task.known_rows import describe_rows as describe_rows, match_rows as match_rows
from workbench.task.lint import find_defects as find_defects, lint_task as lint_task
from workbench.task.lm_checks import check_lms as check_lms, check_node_lms as check_node_lms
from workbench.task.load import Task as Task, load_task as load_task, section_loaders as section_loaders
from workbench.task.metric import (
    Metric as Metric,
    MetricFaults as MetricFaults,
    as_score as as_score,
    graded_field as graded_field,
    highest_score as highest_score,
)
from workbench.task.moved import pass_sections as pass_sections
from workbench.task.repeats import Repeats as Repeats
from workbench.task.rows import (
    data_folder as data_folder,
    data_path as data_path,
    read_rows as read_rows,
)
from workbench.task.search_space import (
    Space as Space,
    check_search as check_search,
    default_space as default_space,
    draw_demos as draw_demos,
    fitting_domains as fitting_domains,
    labelled_demo as labelled_demo,
    labelled_demos as labelled_demos,
    suggest_value as suggest_value,
    without_blanks as without_blanks,
)
from workbench.task.shards import (
    find_shards as find_shards,
    join_shards as join_shards,
    reader_of as reader_of,
)
from workbench.task.tokens import (
    input_tokens as input_tokens,
    normalised_inputs as normalised_inputs,
    tokenize as tokenize,
)
from workbench.task.workflow_file import (
    Function as Function,
    expand_references as expand_references,
    load_workflow as load_workflow,
    read_library as read_library,
)
from workbench.task.write import (
    called_tree as called_tree,
    dump_yaml as dump_yaml,
    file_tree as file_tree,
    kept_search as kept_search,
    workflow_text as workflow_text,
    workflow_tree as workflow_tree,
    write_workflow as write_workflow,
    written_node as written_node,
    written_value as written_value,
)
