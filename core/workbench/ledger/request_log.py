"""A write-ahead log of requests: one line for each request about to be sent, in a file next to the database.

A line in a file survives the death of the process and costs a few microseconds, less than a commit. After a kill, the
lines without a recorded outcome are the requests with an unknown outcome. A power loss may lose the last lines; such
requests go unnoticed.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from workbench.base.type_guards import is_list
from workbench.errors import StoreError
from workbench.lm import MOST_TOKENS
from workbench.store import Journal


class RequestLog:
    """The file of one process of one run. It is created with the first request."""

    def __init__(self, path: Path, process: int):
        self.path, self.process = path, process
        self._file: int | None = None

    def add(self, key: str, role: str, prompt_tokens: int, usd: float) -> None:
        """Append one line in one write, so that it is either complete or missing. Raises StoreError."""
        try:
            if self._file is None:
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            line = json.dumps([self.process, key, role, prompt_tokens, usd]).encode() + b"\n"
            if os.write(self._file, line) != len(line):
                raise OSError("no space left")
        except OSError as error:
            raise StoreError(f"cannot write {self.path}: {error}; what was recorded before is safe") from error

    def read(self) -> Iterator[tuple[int, str, str, int, float]]:
        """Yield (process, key, role, prompt tokens, dollars) of every complete line; nothing if there is no file.

        A truncated line (the disk was full) belongs to a request that was not sent. Lines that we would not write are
        skipped.
        """
        if not self.path.exists():
            return
        for line in self.path.read_bytes().split(b"\n")[:-1]:
            with suppress(ValueError, RecursionError):
                found = json.loads(line)
                if _is_ours(found):
                    yield found[0], found[1], found[2], found[3], found[4]

    def remove(self) -> None:
        """Close and delete the file. All of it is in the database now."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self.path.unlink(missing_ok=True)


def record_lost_requests(log: RequestLog, journal: Journal) -> None:
    """Record logged requests without an outcome as attempts with unknown outcome, and delete the log."""
    journal.store.flush()  # queued outcomes count as known
    left: dict[tuple[int, str], list[tuple[str, int, float]]] = defaultdict(list)
    for process, key, role, tokens, usd in log.read():
        left[process, key].append((role, tokens, usd))
    for (process, key), sent in left.items():
        if journal.has_call(key):
            continue  # settled: its row counts all attempts
        for role, tokens, usd in sent[journal.count_attempts_of(process, key) :]:
            journal.record_lost_attempt(key, role, process, tokens, usd)
    log.remove()


class NoLog(RequestLog):
    """A log that stores nothing, for calls that no run replays."""

    def add(self, key: str, role: str, prompt_tokens: int, usd: float) -> None: ...

    def read(self) -> Iterator[tuple[int, str, str, int, float]]:
        return iter(())

    def remove(self) -> None: ...


def _is_ours(found: object) -> bool:
    if not is_list(found) or len(found) != 5:
        return False
    process, key, role, tokens, usd = found
    return (
        isinstance(process, int)
        and isinstance(key, str)
        and isinstance(role, str)
        and isinstance(tokens, int)
        and isinstance(usd, int | float)
        and 0 <= process < 2**63
        and 0 <= tokens <= MOST_TOKENS
        and 0 <= usd < float("inf")
    )
