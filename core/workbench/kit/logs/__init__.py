"""Logs: those of agents, of files, spans and runs, as one form; and the scores of a run for a tracker."""

from workbench.kit.logs.agent_log import TOKEN as TOKEN
from workbench.kit.logs.agent_log import Log as Log
from workbench.kit.logs.agent_log import LogSource as LogSource
from workbench.kit.logs.agent_log import LogStep as LogStep
from workbench.kit.logs.agent_log import field_lines as field_lines
from workbench.kit.logs.agent_log import read_steps as read_steps
from workbench.kit.logs.agent_log import shorten as shorten
from workbench.kit.logs.agent_log import show_steps as show_steps
from workbench.kit.logs.agent_log import step_text as step_text
from workbench.kit.logs.asked_run import AskedRun as AskedRun
from workbench.kit.logs.asked_run import Command as Command
from workbench.kit.logs.asked_run import open_run as open_run
from workbench.kit.logs.atif import is_trajectory as is_trajectory
from workbench.kit.logs.atif import read_trajectory as read_trajectory
from workbench.kit.logs.log_files import load_logs as load_logs
from workbench.kit.logs.log_spans import CONVENTIONS as CONVENTIONS
from workbench.kit.logs.log_spans import LogSpan as LogSpan
from workbench.kit.logs.log_spans import find_convention as find_convention
from workbench.kit.logs.log_spans import read_spans as read_spans
from workbench.kit.logs.score_tracker import ScoreTracker as ScoreTracker
from workbench.kit.logs.stored_logs import SEALED as SEALED
from workbench.kit.logs.stored_logs import RunLogs as RunLogs
from workbench.kit.logs.stored_logs import load_stored_logs as load_stored_logs
from workbench.kit.logs.stored_logs import model_of_run as model_of_run
from workbench.kit.logs.stored_logs import scored_rows as scored_rows
