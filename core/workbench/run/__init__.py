"""The course of a run: preflight, start, resume, winner, sealed test; and queries on stored runs.

The only room that knows the whole order.
"""

from workbench.run.announce import Announcer as Announcer
from workbench.run.cost_estimate import budget_warnings as budget_warnings
from workbench.run.cost_estimate import estimate as estimate
from workbench.run.doctor import find_origins as find_origins
from workbench.run.doctor import run_checks as run_checks
from workbench.run.export import branch_run as branch_run
from workbench.run.export import bundle_candidate as bundle_candidate
from workbench.run.export import export_candidate as export_candidate
from workbench.run.export import read_candidate as read_candidate
from workbench.run.history import candidate_workflow as candidate_workflow
from workbench.run.history import candidates as candidates
from workbench.run.history import changes_between as changes_between
from workbench.run.history import draw_winner as draw_winner
from workbench.run.history import lineage as lineage
from workbench.run.history import origin_of as origin_of
from workbench.run.history import prune_run as prune_run
from workbench.run.history import read_input_names as read_input_names
from workbench.run.history import removable_files as removable_files
from workbench.run.history import row_inputs as row_inputs
from workbench.run.history import status_of as status_of
from workbench.run.history import winner_of as winner_of
from workbench.run.options import Listener as Listener
from workbench.run.options import Options as Options
from workbench.run.preflight import evaluated_lms as evaluated_lms
from workbench.run.preflight import explain_choice as explain_choice
from workbench.run.preflight import lms_not_ready as lms_not_ready
from workbench.run.preflight import search_warnings as search_warnings
from workbench.run.preflight import settings_to_compare as settings_to_compare
from workbench.run.preflight import wrong_in_file as wrong_in_file
from workbench.run.start import add_started_run as add_started_run
from workbench.run.start import find_obstacles as find_obstacles
from workbench.run.start import lacks_rows as lacks_rows
from workbench.run.start import load_optimizers as load_optimizers
from workbench.run.start import optimize as optimize
from workbench.run.start import place_of as place_of
from workbench.run.start import prepare as prepare
from workbench.run.start import prepare_stored as prepare_stored
from workbench.run.start import resume as resume
from workbench.run.start import started_run as started_run
from workbench.run.stored_file import content_of_stored as content_of_stored
from workbench.run.stored_file import name_of_stored as name_of_stored
from workbench.run.stored_file import read_stored_source as read_stored_source
from workbench.run.stored_scores import RowKeys as RowKeys
from workbench.run.stored_scores import as_stored_row as as_stored_row
from workbench.run.stored_scores import end_evaluation as end_evaluation
from workbench.run.stored_scores import train_scores as train_scores
from workbench.run.trackers import RunInfo as RunInfo
from workbench.run.trackers import Tracker as Tracker
from workbench.run.trackers import check_trackers as check_trackers
from workbench.run.workers import make_crew as make_crew
