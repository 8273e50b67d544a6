"""Evaluation as a run: rows are stored, resumed and compared, and single rows shown. No workflow is changed."""

from workbench.evaluation.compare import (
    Compared as Compared,
    Difference as Difference,
    Side as Side,
    compare_sides as compare_sides,
    not_worse as not_worse,
    read_side as read_side,
)
from workbench.evaluation.comparison_text import (
    NO_EVIDENCE as NO_EVIDENCE,
    bar_lines as bar_lines,
    comparison_lines as comparison_lines,
    describe_choice as describe_choice,
    judge_score as judge_score,
)
from workbench.evaluation.eval_report import EvalReport as EvalReport, stored_report as stored_report
from workbench.evaluation.eval_run import (
    EvalOptions as EvalOptions,
    evaluate as evaluate,
    resume_evaluation as resume_evaluation,
    resume_run as resume_run,
)
from workbench.evaluation.exports import (
    JUNIT as JUNIT,
    MARKDOWN as MARKDOWN,
    write_junit as write_junit,
    write_markdown as write_markdown,
)
from workbench.evaluation.matrix import evaluate_matrix as evaluate_matrix, parse_axis as parse_axis
from workbench.evaluation.rows import (
    add_details as add_details,
    add_texts as add_texts,
    describe_diagnosis as describe_diagnosis,
    failed_rows as failed_rows,
    find_candidate as find_candidate,
    read_calls as read_calls,
    read_rows as read_rows,
    row_details as row_details,
)
from workbench.evaluation.single import run_single as run_single
