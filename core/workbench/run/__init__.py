"""The course of a run: preflight, start, resume, winner, sealed test; and queries on stored runs.

The only room that knows the whole order.
"""

from workbench.run.cost_estimate import estimate
from workbench.run.doctor import find_origins, run_checks
from workbench.run.evaluate_once import evaluate_file, run_single, with_evaluator
from workbench.run.history import (
    bundle_candidate,
    call_texts,
    candidate_workflow,
    candidates,
    draw_winner,
    export_candidate,
    lineage,
    status_of,
    worst_rows,
)
from workbench.run.preflight import wrong_in_file
from workbench.run.session import Options
from workbench.run.start import find_obstacles, optimize, prepare, prepare_stored, read_stored_source, resume
from workbench.run.stored_scores import train_scores

__all__ = [
    "Options",
    "optimize",
    "resume",
    "prepare",
    "prepare_stored",
    "read_stored_source",
    "find_obstacles",
    "run_single",
    "evaluate_file",
    "with_evaluator",
    "estimate",
    "call_texts",
    "candidate_workflow",
    "candidates",
    "draw_winner",
    "export_candidate",
    "bundle_candidate",
    "lineage",
    "status_of",
    "worst_rows",
    "train_scores",
    "run_checks",
    "find_origins",
    "wrong_in_file",
]
