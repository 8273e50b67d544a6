"""The cause of a server's end, read from what it printed.

vLLM starts its engine in a child process. Where that fails, the last lines of the log are the parent's, which knows no
cause; the child's traceback stands 30 to 100 lines above.
"""

from __future__ import annotations

import re
from pathlib import Path

#: What vLLM puts before a line: the process, then the level with time and place.
_PREFIX = re.compile(
    r"^(?:\([\w.-]+(?: [\w.=-]+)*\)\s?)?(?:(?P<level>[A-Z]{4,8})\s+\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \[[^\]]*\]\s?)?"
)
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)\b(?::|$)")
_MENTION = re.compile(r"ERROR|Error|Exception|\berror:")
#: A message that the next line goes on with.
_OPEN = re.compile(r":$|\d+ validation errors? for \S+$")
#: Lines of the parent, by which it says that a child failed.
_PARENTS = ("Engine core initialization failed", "See root cause above", "See stack trace for root cause")
#: Lines that are shown from the end of a log, and characters of each line.
_LAST, _LONGEST = 5, 300


def find_cause(lines: list[str]) -> str:
    """Return the first error of a log that is not the parent's report of it: the message of an exception if there is
    one, or else the first line that mentions an error. Warnings are none. "" for a log without errors."""
    told, mentions, traced = list[str](), list[str](), False
    for number, line in enumerate(lines):
        level, text = _split(line)
        said = text.strip()
        if level in ("INFO", "WARNING", "DEBUG"):
            continue
        if said.startswith("Traceback (most recent call last)"):
            traced = True
            continue
        if traced and text[:1].isspace():
            continue  # the frames of a traceback, which the exception follows
        raised, traced = traced, False
        if any(known in text for known in _PARENTS):
            continue
        if raised or _EXCEPTION.match(said):
            more = _split(lines[number + 1])[1].strip() if _OPEN.search(said) and number + 1 < len(lines) else ""
            told.append(f"{said} {more}".strip())
        elif _MENTION.search(said) or level == "ERROR":
            mentions.append(said)
    return (told or mentions or [""])[0][:_LONGEST]


def _split(line: str) -> tuple[str | None, str]:
    """Split a line into its level and what follows vLLM's prefix, with its indentation."""
    prefix = _PREFIX.match(line)
    return (prefix["level"], line[prefix.end() :]) if prefix else (None, line)


def describe_log(log: Path, start: int = 0) -> str:
    """Describe what a server printed from a byte of its log on: the first error, the last lines, and the path."""
    data = log.read_bytes()[start:] if log.exists() else b""
    lines = [line for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
    cause, last = find_cause(lines), [line[:_LONGEST] for line in lines[-_LAST:]]
    parts = [f"its first error: {cause}"] if cause and not any(cause in line for line in last[-1:]) else []
    parts += [f"it said: {' | '.join(last)}"] if last else ["it said nothing"]
    return "; ".join([*parts, f"its log: {log}"])
