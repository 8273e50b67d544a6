"""The lifecycle of a run: preflight, start, resume, winner, sealed test; and queries on stored runs.

Only this room knows the order of all steps.
"""

from workbench.run.announce import Announcer as Announcer
from workbench.run.cost_estimate import budget_warnings as budget_warnings, estimate as estimate
from workbench.run.expected_cost import Model as Model, format_usd as format_usd
from workbench.run.export import (
    branch_run as branch_run,
    bundle_candidate as bundle_candidate,
    export_candidate as export_candidate,
    read_candidate as read_candidate,
)
from workbench.run.history import (
    candidate_workflow as candidate_workflow,
    candidates as candidates,
    changes_between as changes_between,
    draw_winner as draw_winner,
    lineage as lineage,
    origin_of as origin_of,
    prune_run as prune_run,
    read_input_names as read_input_names,
    removable_files as removable_files,
    row_inputs as row_inputs,
    status_of as status_of,
    winner_of as winner_of,
)
from workbench.run.options import Listener as Listener, Options as Options
from workbench.run.preflight import (
    check_lms_ready as check_lms_ready,
    evaluated_lms as evaluated_lms,
    explain_choice as explain_choice,
    lms_not_ready as lms_not_ready,
    lms_of as lms_of,
    search_warnings as search_warnings,
    settings_to_compare as settings_to_compare,
    wrong_in_file as wrong_in_file,
)
from workbench.run.start import (
    add_started_run as add_started_run,
    find_missing_rows as find_missing_rows,
    find_obstacles as find_obstacles,
    load_optimizers as load_optimizers,
    optimize as optimize,
    place_of as place_of,
    prepare as prepare,
    prepare_stored as prepare_stored,
    resume as resume,
    started_run as started_run,
)
from workbench.run.steering import ACTIONS as ACTIONS, give_order as give_order
from workbench.run.stored_file import (
    content_of_stored as content_of_stored,
    name_of_stored as name_of_stored,
    read_stored_source as read_stored_source,
)
from workbench.run.stored_scores import (
    RowKeys as RowKeys,
    as_stored_row as as_stored_row,
    end_evaluation as end_evaluation,
)
from workbench.run.trackers import (
    RunInfo as RunInfo,
    Tracker as Tracker,
    check_trackers as check_trackers,
    trackers_not_ready as trackers_not_ready,
)
