"""Logs of agents, from files, spans and runs, in one form; and the scores of a run for a tracker."""

from workbench_kit.logs.agent_log import (
    TOKEN as TOKEN,
    Log as Log,
    LogSource as LogSource,
    LogStep as LogStep,
    field_lines as field_lines,
    read_steps as read_steps,
    shorten as shorten,
    show_steps as show_steps,
    step_text as step_text,
)
from workbench_kit.logs.asked_run import AskedRun as AskedRun, Command as Command, open_run as open_run
from workbench_kit.logs.atif import is_trajectory as is_trajectory, read_trajectory as read_trajectory
from workbench_kit.logs.course import describe_course as describe_course, differs as differs, tool_uses as tool_uses
from workbench_kit.logs.log_files import load_logs as load_logs
from workbench_kit.logs.log_spans import (
    CONVENTIONS as CONVENTIONS,
    LogSpan as LogSpan,
    find_convention as find_convention,
    read_spans as read_spans,
)
from workbench_kit.logs.score_tracker import ScoreTracker as ScoreTracker
from workbench_kit.logs.stored_logs import (
    SEALED as SEALED,
    RunLogs as RunLogs,
    load_stored_logs as load_stored_logs,
    model_of_run as model_of_run,
    scored_rows as scored_rows,
)
