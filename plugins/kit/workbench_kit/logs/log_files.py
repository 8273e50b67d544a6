"""Read logs from files: Who&When, ATIF (`atif.py`), and spans of OpenTelemetry GenAI and OpenInference
(`log_spans.py`)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench.base.text import LINE_END
from workbench.errors import SpecError, suggest
from workbench_kit.logs.agent_log import Log, LogStep
from workbench_kit.logs.atif import is_trajectory, read_log
from workbench_kit.logs.log_spans import CONVENTIONS, find_convention, read_spans, read_traces

#: Names of formats for `--format`.
FORMATS = ("who-and-when", "atif", *CONVENTIONS)

#: Maximum bytes of a file: a judge could not read a larger log.
MAX_BYTES = 200_000_000


def load_logs(path: Path, form: str | None = None) -> list[Log]:
    """Return the logs of a file, or of all `*.json` files in a folder and its subfolders, in the order of their names.

    Args:
        path: a `.json` file, a `.jsonl` file with one value a line, or a folder.
        form: one of FORMATS; None detects it by the content.

    Raises:
        SpecError: there is no such file, or it holds no log. The message has file and place.
    """
    if form is not None and form not in FORMATS:
        raise SpecError(f"there is no format '{form}'", hint=suggest(form, FORMATS))
    if not path.is_dir():
        return _load_file(path, path.name, form)
    files = sorted(path.rglob("*.json"), key=_by_number)
    if not files:
        raise SpecError(f"{path} contains no .json files", hint="Name a folder of logs, or one log.")
    return [log for file in files for log in _load_file(file, str(file.relative_to(path)), form)]


def _by_number(path: Path) -> list[tuple[str, int]]:
    """Return a sort key that puts 2.json before 10.json."""
    return [(text, int(part or 0)) for text, part in re.findall(r"(\D*)(\d*)", str(path)[-300:])]


def _load_file(path: Path, name: str, form: str | None) -> list[Log]:
    values = list(_values(path))
    if form is None:
        form = _find_format(values[0][1], path)
    if form in ("who-and-when", "atif"):
        found: list[Log] = []
        for place, value in values:
            several = value if isinstance(value, list) else [value]
            for number, one in enumerate(several):
                inside = f"{place}[{number}]" if isinstance(value, list) else place
                whole = len(values) == 1 and len(several) == 1
                called = name if whole else f"{name}#{len(found)}"
                at = f"{path}{f', {inside}' if inside else ''}"
                found.append(_who_and_when(one, at, called) if form == "who-and-when" else read_log(one, at, called))
        return found
    spans = [span for place, value in values for span in read_spans(value, path, place)]
    return read_traces(spans, form, path, name)


def _values(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield (place, value) of each JSON value in a file. Raise SpecError."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise SpecError(f"{path} has more than {MAX_BYTES // 1_000_000} MB", hint="Split it into one file a trace.")
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise SpecError(f"there is no file {path}", hint="Name a log, a folder of logs, or a run.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} cannot be read: {error}", hint="A log is JSON in UTF-8.") from None
    try:
        yield "", _parse(text)
        return
    except ValueError as error:
        whole, lines = error, [(n, line) for n, line in enumerate(LINE_END.split(text), 1) if line.strip()]
    if not lines:
        raise SpecError(f"{path} is empty", hint="A log is JSON: see the formats of workbench agent attribute --help.")
    for number, line in lines:
        try:
            value = _parse(line)
        except ValueError as error:
            fault, at = (whole, getattr(whole, "lineno", None)) if number == 1 else (error, number)
            raise SpecError(
                f"not JSON: {fault}", file=str(path), line=at, hint="Logs are JSON, or JSON lines."
            ) from None
        yield f"line {number}", value


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _find_format(value: Any, path: Path) -> str:
    """Return the format of a file by its first value. Raise SpecError."""
    first = value[0] if isinstance(value, list) and value else value
    if isinstance(first, dict) and "history" in first:
        return "who-and-when"
    if is_trajectory(first):
        return "atif"
    if (found := find_convention(value)) is not None:
        return found
    keys = (
        f"an object with {', '.join(map(repr, list(first)[:6])) or 'nothing'}"
        if isinstance(first, dict)
        else "no object"
    )
    raise SpecError(
        f"{path} is a log in an unknown format: it contains {keys}",
        hint="Who&When has 'history'; ATIF has 'schema_version'; OpenTelemetry has 'resourceSpans', or spans with "
        "'attributes' such as gen_ai.operation.name or openinference.span.kind. Name the format with --format.",
    )


# Who&When


def _who_and_when(value: Any, place: str, name: str) -> Log:
    def fail(what: str, hint: str) -> SpecError:
        return SpecError(f"{place}: {what}", hint=hint)

    if not isinstance(value, dict) or not isinstance(value.get("history"), list):
        raise fail("it has no list 'history'", 'Write {"history": [{"name": "Agent", "content": "..."}, ...]}.')
    if not value["history"]:
        raise fail("'history' is empty", "A log needs at least one step.")
    steps = []
    for number, entry in enumerate(value["history"]):
        if not isinstance(entry, dict) or not isinstance(entry.get("content"), str):
            raise fail(f"history[{number}] has no text 'content'", 'Write {"name": "Agent", "content": "..."}.')
        who = entry.get("name") or entry.get("role")
        if not isinstance(who, str) or not who.strip():
            raise fail(f"history[{number}] names no agent", "Add 'name', or 'role'.")
        steps.append(LogStep(_agent(who), entry["content"], who if _agent(who) != who else ""))
    step, agent = value.get("mistake_step"), value.get("mistake_agent")
    if step is not None:
        if isinstance(step, bool) or not re.fullmatch(r"\d{1,9}", str(step).strip()) or int(step) >= len(steps):
            raise fail(
                f"mistake_step is {str(step)[:40]!r}", f"Write a number from 0 to {len(steps) - 1}, the last step."
            )
        step = int(step)
    if agent is not None and not isinstance(agent, str):
        raise fail("mistake_agent is not a text", "Write the agent's name.")
    truth = value.get("ground_truth")
    return Log(
        name,
        tuple(steps),
        str(value.get("question") or ""),
        None if truth is None else str(truth),
        gold_agent=None if agent is None else _agent(agent),
        gold_step=step,
    )


def _agent(name: str) -> str:
    """Return an agent's name without additions of the hand-crafted logs, as in `Orchestrator (-> WebSurfer)`."""
    return re.sub(r"\s*\([^()]*\)\s*$", "", name.strip()) or name.strip()
