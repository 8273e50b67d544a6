"""Evaluation as a run: rows kept, resumed, compared, and one of them seen.

A workflow is scored as it is; nothing here changes one.
"""

from workbench.evaluation.atif_rows import export_trajectories as export_trajectories
from workbench.evaluation.atif_rows import write_trajectories as write_trajectories
from workbench.evaluation.compare import NO_EVIDENCE as NO_EVIDENCE
from workbench.evaluation.compare import Difference as Difference
from workbench.evaluation.compare import Side as Side
from workbench.evaluation.compare import compare_sides as compare_sides
from workbench.evaluation.compare import comparison_lines as comparison_lines
from workbench.evaluation.compare import describe_choice as describe_choice
from workbench.evaluation.compare import not_worse as not_worse
from workbench.evaluation.compare import read_side as read_side
from workbench.evaluation.eval_report import EvalReport as EvalReport
from workbench.evaluation.eval_report import stored_report as stored_report
from workbench.evaluation.eval_run import EvalOptions as EvalOptions
from workbench.evaluation.eval_run import evaluate as evaluate
from workbench.evaluation.eval_run import resume_evaluation as resume_evaluation
from workbench.evaluation.eval_run import resume_run as resume_run
from workbench.evaluation.exports import JUNIT as JUNIT
from workbench.evaluation.exports import MARKDOWN as MARKDOWN
from workbench.evaluation.exports import write_junit as write_junit
from workbench.evaluation.exports import write_markdown as write_markdown
from workbench.evaluation.matrix import evaluate_matrix as evaluate_matrix
from workbench.evaluation.matrix import parse_axis as parse_axis
from workbench.evaluation.rows import add_details as add_details
from workbench.evaluation.rows import add_texts as add_texts
from workbench.evaluation.rows import failed_rows as failed_rows
from workbench.evaluation.rows import find_candidate as find_candidate
from workbench.evaluation.rows import read_calls as read_calls
from workbench.evaluation.rows import read_rows as read_rows
from workbench.evaluation.rows import row_details as row_details
from workbench.evaluation.single import run_single as run_single
