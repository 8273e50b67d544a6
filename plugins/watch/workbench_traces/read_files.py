"""Reads files of traces as turns. JSON lines are read one at a time, so that the size of the file does not matter."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from workbench.base.data_files import MAX_FILE, open_data, read_data, too_large
from workbench.base.type_guards import is_dict, is_list
from workbench.errors import SpecError
from workbench_kit.logs import is_trajectory
from workbench_traces.atif import AtifTurns
from workbench_traces.chat import ChatTurns
from workbench_traces.langfuse import LangfuseTurns
from workbench_traces.langsmith import LangSmithTurns
from workbench_traces.spans import SpanTurns
from workbench_traces.turn import Turn

#: The collector of turns for each format.
FORMATS = {
    "otel": SpanTurns,
    "openinference": SpanTurns,
    "langfuse": LangfuseTurns,
    "langsmith": LangSmithTurns,
    "atif": AtifTurns,
    "chat": ChatTurns,
}

#: Suffixes of files with one JSON value per line.
_LINES = (".jsonl", ".ndjson")

_FORMS = (
    "Known: OTLP/JSON with GenAI attributes, spans of OpenInference, exports of Langfuse and LangSmith, ATIF, "
    'and lines of {"messages": [...]}. Name the format with --from.'
)


def read_turns(paths: Sequence[Path], form: str | None = None, wanted: tuple[str, str] = ("", "")) -> list[Turn]:
    """Read the turns of all files, without thoughts of the system. Records of one trace are joined across files.

    Args:
        paths: files, or folders that contain JSON files at any depth.
        form: one of FORMATS; None: by the content of each value.
        wanted: names of the fields with an outcome, and with a human's correction.

    Raises:
        SpecError: a file cannot be read, or has no known content; it names the line.
    """
    collectors: dict[type, Any] = {}
    for path in (file for named in paths for file in _files(named)):
        known = False
        for line, value in read_values(path):
            for one in unwrapped(value):
                kind = form or find_form(one)
                if kind is not None:
                    known, made = True, FORMATS[kind]
                    collector = collectors.setdefault(made, made(wanted))
                    try:
                        collector.add_value(one, path.name)
                    except RecursionError:
                        raise _fault(path, line, "it is nested too deeply") from None
                    except SpecError as error:
                        told = error.message.removeprefix(f"{path.name}: ")
                        raise _fault(path, line, told, find_form(one)) from None
        if not known:
            raise SpecError(f"{path} contains no traces in a known format", hint=_FORMS)
    return [turn.without_thoughts() for collector in collectors.values() for turn in collector.turns()]


def _files(path: Path) -> list[Path]:
    """Return the JSON files in a folder, sorted; a file itself. Raises SpecError."""
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() in (".json", *_LINES) and file.is_file())
    if not files:
        raise SpecError(f"{path} contains no .json or .jsonl files", hint="Name files of traces, or a folder of them.")
    return files


def _fault(path: Path, line: int, what: str, form: str | None = None) -> SpecError:
    """Return an error for a line. form: the format that the line seems to have, if it could be read as JSON."""
    known = f"It looks like --from {form}. " if form else "Each line is one JSON value in UTF-8. "
    hint = f"{known}Correct the line, or take it out."
    return SpecError(what, file=str(path), line=line, hint=hint)


def read_values(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield (line, value) of each JSON value of a file: of each line, or of the file as a whole. Raises SpecError."""
    try:
        file = open_data(path)
    except OSError as error:
        hint = "Name files of traces, or a folder of them."
        raise SpecError(f"{path} cannot be read: {error.strerror}", hint=hint) from None
    with file:
        several = False
        for number, line in enumerate(iter(lambda: file.readline(MAX_FILE + 1), b""), 1):
            if len(line) > MAX_FILE:
                raise too_large("the line", MAX_FILE, str(path), number)
            if not (line := line.removeprefix(b"\xef\xbb\xbf").strip()):
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                if several or path.suffix.lower() in _LINES:
                    raise _fault(path, number, f"not JSON: {_told(error)}") from None
                break  # the file is one value, on many lines
            several = True
            yield number, value
        else:
            return
    yield 1, _whole(path)


def _whole(path: Path) -> Any:
    try:
        return json.loads(read_data(path, hint="Export JSON Lines, which are read one at a time."))
    except (ValueError, RecursionError) as error:
        raise _fault(path, getattr(error, "lineno", 1), f"not JSON: {_told(error)}") from None


def _told(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]


def unwrapped(value: Any) -> Iterator[Any]:
    """Yield the records of a value: each item of a list, or the items of an API answer under `data` or `runs`."""
    names = ("spans", "traces") if find_form(value) else ("spans", "traces", "data", "runs")
    if is_list(value):
        for one in value:
            yield from unwrapped(one)
    elif is_dict(value) and (inner := next((value[n] for n in names if is_list(value.get(n))), None)) is not None:
        yield from unwrapped(inner)
    else:
        yield value


def find_form(value: Any) -> str | None:
    """Return the format of a record by its keys; None if unknown."""
    if not is_dict(value):
        return None
    if is_trajectory(value):
        return "atif"
    names = value.keys()
    if names & {"resourceSpans", "resourceLogs"} or any(name.startswith("attributes.") for name in names):
        return "otel"
    if "attributes" in names and names & {"traceId", "trace_id", "context", "spanId", "span_id", "name"}:
        return "otel"
    if is_dict(value.get("result")) and "span_id" in names:
        return "openinference"
    if "run_type" in names:
        return "langsmith"
    if is_list(value.get("messages")):
        return "chat"
    langfuse = {"observations", "sessionId", "session_id", "userId", "user_id", "traceId", "trace_id", "timestamp"}
    if is_dict(value.get("trace")) or (names & langfuse and names & {"id", "traceId", "trace_id"}):
        return "langfuse"
    return None
