"""Evaluation as a run: rows kept, resumed, compared, and one of them seen.

A workflow is scored as it is; nothing here changes one.
"""

from workbench.evaluation.atif_rows import export_trajectories, write_trajectories
from workbench.evaluation.compare import (
    NO_EVIDENCE,
    Difference,
    Side,
    compare_sides,
    comparison_lines,
    describe_choice,
    not_worse,
    read_side,
)
from workbench.evaluation.eval_report import EvalReport, stored_report
from workbench.evaluation.eval_run import EvalOptions, evaluate, resume_evaluation, resume_run
from workbench.evaluation.exports import JUNIT, MARKDOWN, write_junit, write_markdown
from workbench.evaluation.matrix import evaluate_matrix, parse_axis
from workbench.evaluation.rows import (
    add_details,
    failed_rows,
    find_candidate,
    find_diagnoses,
    read_calls,
    read_rows,
    row_details,
)
from workbench.evaluation.single import run_single

__all__ = [
    "EvalOptions",
    "EvalReport",
    "evaluate",
    "resume_evaluation",
    "resume_run",
    "stored_report",
    "evaluate_matrix",
    "parse_axis",
    "Side",
    "Difference",
    "NO_EVIDENCE",
    "describe_choice",
    "read_side",
    "compare_sides",
    "comparison_lines",
    "not_worse",
    "failed_rows",
    "read_rows",
    "row_details",
    "add_details",
    "find_candidate",
    "read_calls",
    "run_single",
    "find_diagnoses",
    "export_trajectories",
    "write_trajectories",
    "JUNIT",
    "MARKDOWN",
    "write_junit",
    "write_markdown",
]
