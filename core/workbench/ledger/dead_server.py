"""Notices a server that is gone: many calls in a row that failed for good, retries included."""

from __future__ import annotations

from workbench.errors import LMError, ServerDead
from workbench.store import Journal

#: So many failures of a dead server in a row stop the run.
DEAD_AFTER = 20


class FailureStreak:
    """The calls that failed in a row as those to a dead server do. An answer in between ends the streak."""

    def __init__(self, journal: Journal):
        self._journal = journal
        self._keys: list[str] = []

    def clear(self) -> None:
        self._keys.clear()

    def add(self, key: str, error: LMError | None, stopping: BaseException | None) -> ServerDead | None:
        """Count the outcome of a call. Returns the error to stop with if the server is dead, which it also is where
        that is what the run is `stopping` for. Its failures are then deleted, so that a resumed run asks again."""
        if error is None or not error.kind.dead_server:
            self._keys.clear()
            return None
        self._keys.append(key)
        if stopping is None and len(self._keys) >= DEAD_AFTER:
            stopping = ServerDead(f"{DEAD_AFTER} calls in a row failed, the last with: {error}")
        if not isinstance(stopping, ServerDead):
            return None
        for dead in self._keys:
            self._journal.delete_call(dead)
        self._keys.clear()
        return stopping
