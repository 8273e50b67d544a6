"""Logs: those of agents, of files, spans and runs, as one form; and the scores of a run for a tracker."""

from workbench.kit.logs.agent_log import (
    TOKEN,
    Log,
    LogSource,
    LogStep,
    field_lines,
    read_steps,
    shorten,
    show_steps,
    step_text,
)
from workbench.kit.logs.asked_run import AskedRun, Command, check_model, open_run
from workbench.kit.logs.atif import is_trajectory, read_trajectory
from workbench.kit.logs.log_files import load_logs
from workbench.kit.logs.log_spans import CONVENTIONS, LogSpan, find_convention, read_spans
from workbench.kit.logs.score_tracker import ScoreTracker
from workbench.kit.logs.stored_logs import SEALED, RunLogs, load_stored_logs, model_of_run, scored_rows

__all__ = [
    "ScoreTracker",
    "AskedRun",
    "CONVENTIONS",
    "Command",
    "Log",
    "LogSource",
    "LogSpan",
    "LogStep",
    "RunLogs",
    "SEALED",
    "TOKEN",
    "check_model",
    "field_lines",
    "find_convention",
    "is_trajectory",
    "load_logs",
    "load_stored_logs",
    "model_of_run",
    "open_run",
    "read_spans",
    "read_steps",
    "read_trajectory",
    "scored_rows",
    "shorten",
    "show_steps",
    "step_text",
]
