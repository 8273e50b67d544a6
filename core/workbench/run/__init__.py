"""The course of a run: preflight, start, resume, winner, sealed test; and queries on stored runs.

The only room that knows the whole order.
"""

from workbench.run.announce import Announcer
from workbench.run.cost_estimate import budget_warnings, estimate
from workbench.run.doctor import find_origins, run_checks
from workbench.run.export import branch_run, bundle_candidate, export_candidate, read_candidate
from workbench.run.history import (
    candidate_workflow,
    candidates,
    changes_between,
    draw_winner,
    lineage,
    origin_of,
    prune_run,
    read_input_names,
    removable_files,
    row_inputs,
    status_of,
    winner_of,
)
from workbench.run.options import Listener, Options
from workbench.run.preflight import (
    evaluated_lms,
    explain_choice,
    lms_not_ready,
    search_warnings,
    settings_to_compare,
    wrong_in_file,
)
from workbench.run.start import (
    add_started_run,
    find_obstacles,
    lacks_rows,
    load_optimizers,
    optimize,
    place_of,
    prepare,
    prepare_stored,
    resume,
    started_run,
)
from workbench.run.stored_file import content_of_stored, name_of_stored, read_stored_source
from workbench.run.stored_scores import RowKeys, as_stored_row, train_scores
from workbench.run.trackers import RunInfo, Tracker, check_trackers
from workbench.run.workers import make_crew

__all__ = [
    "Announcer",
    "Options",
    "optimize",
    "resume",
    "add_started_run",
    "started_run",
    "prepare",
    "place_of",
    "prepare_stored",
    "read_stored_source",
    "name_of_stored",
    "content_of_stored",
    "find_obstacles",
    "lacks_rows",
    "load_optimizers",
    "Listener",
    "RunInfo",
    "Tracker",
    "check_trackers",
    "make_crew",
    "RowKeys",
    "as_stored_row",
    "estimate",
    "budget_warnings",
    "explain_choice",
    "search_warnings",
    "candidate_workflow",
    "candidates",
    "changes_between",
    "draw_winner",
    "export_candidate",
    "read_candidate",
    "branch_run",
    "bundle_candidate",
    "lineage",
    "origin_of",
    "status_of",
    "row_inputs",
    "read_input_names",
    "prune_run",
    "removable_files",
    "winner_of",
    "train_scores",
    "run_checks",
    "find_origins",
    "wrong_in_file",
    "lms_not_ready",
    "settings_to_compare",
    "evaluated_lms",
]
