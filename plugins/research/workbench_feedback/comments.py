"""Comments on traces, from a file of JSON lines.

{"run": "last", "row": "12", "comment": "..."}      a row of one of our runs; also "split"
{"log": "logs/7.json", "comment": "..."}            a log of another system; also "trace", where a file has several
{"trace": "...", "comment": "..."}                  a text, a step a line; or a list of texts or
                                                    {"agent": ..., "content": ...}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workbench.base.hashing import digest
from workbench.errors import SpecError, StoreError, suggest
from workbench.store import ReadOnlyStore
from workbench_kit.logs import Log, LogStep, RunLogs, load_logs

_KEYS = {"run": {"row", "split"}, "log": {"trace"}, "trace": set[str]()}
_FORM = 'Write {"run": "last", "row": ID, "comment": TEXT}, {"log": FILE, "comment": TEXT} or {"trace": TEXT, ...}.'


@dataclass(frozen=True, slots=True)
class Comment:
    """A person's comment on a trace. place: `FILE:LINE`; trace: its number."""

    place: str
    text: str
    trace: int


@dataclass(frozen=True)
class Comments:
    """Comments, the traces that they are on, each once, and the runs that these are of."""

    comments: tuple[Comment, ...]
    traces: tuple[Log, ...]
    runs: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "comments": [[c.text, c.trace] for c in self.comments],
            "traces": [log.as_dict() for log in self.traces],
        }


def read_comments(path: Path, database: str = "workbench.db") -> Comments:
    """The comments of a file.

    Args:
        path: of JSON lines; the logs that these name lie in its folder, or below it.
        database: where the runs that they name are stored.

    Raises:
        SpecError: the file, a line of it or what it names cannot be used; it names file and line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise SpecError(f"there is no file {path}", hint=f"Name a file of JSON lines. {_FORM}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} cannot be read: {error}", hint="Comments are JSON lines in UTF-8.") from None
    reading = _Reading(path, database)
    try:
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                reading.add(number, line)
    finally:
        reading.close()
    if not reading.comments:
        raise SpecError(f"{path} contains no comments", hint=f"A line is one comment. {_FORM}")
    return Comments(tuple(reading.comments), tuple(reading.traces), tuple(dict.fromkeys(reading.runs)))


@dataclass
class _Reading:
    path: Path
    database: str
    comments: list[Comment] = field(default_factory=list)
    traces: list[Log] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    known: dict[str, int] = field(default_factory=dict)  # traces by their content
    loaded: dict[Path, list[Log]] = field(default_factory=dict)  # by file or folder
    read: dict[tuple[str, str | None], RunLogs] = field(default_factory=dict)  # by run and split
    store: ReadOnlyStore | None = None

    def close(self) -> None:
        if self.store is not None:
            self.store.close()

    def add(self, number: int, line: str) -> None:
        def fail(what: str, hint: str = _FORM) -> SpecError:
            return SpecError(what, file=str(self.path), line=number, hint=hint)

        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise fail(f"not JSON: {error}", f"A line is one JSON object. {_FORM}") from None
        if not isinstance(value, dict):
            raise fail("not a JSON object")
        log = self._trace(value, number, fail)
        text = value.get("comment")
        if not isinstance(text, str) or not text.strip():
            raise fail("it has no text 'comment'")
        self.comments.append(Comment(f"{self.path.name}:{number}", text.strip(), self._number(log)))

    def _number(self, log: Log) -> int:
        key = digest([log.question, *([s.agent, s.content, s.error] for s in log.steps)])
        if key not in self.known:
            self.known[key] = len(self.traces)
            self.traces.append(log)
        return self.known[key]

    def _trace(self, value: Mapping[str, Any], number: int, fail: Callable[..., SpecError]) -> Log:
        kind = next((k for k in ("run", "log", "trace") if k in value), None)
        if kind is None:
            raise fail("it names no trace")
        if unknown := value.keys() - {"comment", kind} - _KEYS[kind]:
            raise fail(
                f"'{min(unknown)}' is not known beside '{kind}'", suggest(min(unknown), {"comment", kind} | _KEYS[kind])
            )
        for name in ({kind} & {"run", "log"}) | _KEYS[kind]:
            if name in value and not _is_name(value[name]):
                raise fail(f"'{name}' is not a name")
        if kind == "trace":
            return _text_trace(value["trace"], f"{self.path.name}:{number}", fail)
        try:
            return self._row(value, fail) if kind == "run" else self._log(value, fail)
        except (SpecError, StoreError) as error:
            if isinstance(error, SpecError) and error.line == number and error.file == str(self.path):
                raise
            hint = error.hint if isinstance(error, SpecError) else None
            what = error.message if isinstance(error, SpecError) else str(error)
            raise fail(what, hint or _FORM) from error

    def _row(self, value: Mapping[str, Any], fail: Callable[..., SpecError]) -> Log:
        if "row" not in value:
            raise fail("it names a run and no 'row'")
        run, row, split = str(value["run"]), str(value["row"]), value.get("split")
        key = (run, None if split is None else str(split))
        if key not in self.read:
            if self.store is None:
                self.store = ReadOnlyStore(self.database)
            self.read[key] = RunLogs(self.store, *key)
        log = self.read[key].logs([row])[0]
        self.runs.append(run)
        return replace(log, id=f"{run}/{log.id}")

    def _log(self, value: Mapping[str, Any], fail: Callable[..., SpecError]) -> Log:
        name, folder = str(value["log"]), self.path.resolve().parent
        place = (folder / name).resolve()
        if not place.is_relative_to(folder):
            raise fail(f"the log {name} lies outside {folder}", "Copy it into the folder of the comments.")
        logs = self.loaded.setdefault(place, [])
        if not logs:
            logs += load_logs(place)
        asked = value.get("trace")
        if asked is None and len(logs) > 1:
            raise fail(f"{name} contains {len(logs)} logs", f'Name one with "trace", e.g. {logs[0].id!r} or 0.')
        if asked is None:
            return logs[0]
        if isinstance(asked, int) and 0 <= asked < len(logs):
            return logs[asked]
        found = [log for log in logs if log.id == str(asked)]
        if not found:
            raise fail(f"{name} has no log '{asked}'", suggest(str(asked), [log.id for log in logs]))
        return found[0]


def _is_name(value: Any) -> bool:
    """Return True if a value is a text or a number that can name a run, a row or a file."""
    if isinstance(value, str):
        return bool(value.strip()) and "\0" not in value
    return isinstance(value, int) and not isinstance(value, bool)


def _text_trace(value: Any, place: str, fail: Callable[..., SpecError]) -> Log:
    """A trace that stands in the line itself."""
    parts = value.splitlines() if isinstance(value, str) else value
    steps = []
    for part in parts if isinstance(parts, list) else ():
        entry = {"agent": "agent", "content": part} if isinstance(part, str) else part
        if not isinstance(entry, dict) or not all(isinstance(entry.get(k), str) for k in ("agent", "content")):
            raise fail("a step of 'trace' is not a text", 'Write a text, or {"agent": NAME, "content": TEXT}.')
        if entry["content"].strip():
            steps.append(LogStep(entry["agent"], entry["content"]))
    if not steps:
        raise fail("'trace' is empty", "Write the steps: a text, a step a line, or a list.")
    return Log(place, tuple(steps))
