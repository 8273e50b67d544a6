"""Notices a server that is gone: many calls in a row that failed for good, retries included."""

from __future__ import annotations

from workbench.errors import LMError, ServerDead
from workbench.store import Journal

#: So many failures of one model in a row, as those of a dead server, stop the run.
DEAD_AFTER = 20


class FailureStreak:
    """The calls of each model that failed in a row as those to a dead server do. An answer of the same model in between
    ends its streak; answers of others do not, since a dead judge stands beside a task's model that lives."""

    def __init__(self, journal: Journal):
        self._journal = journal
        self._keys = dict[str, list[str]]()

    def clear(self) -> None:
        self._keys.clear()

    def add(self, lm: str, key: str, error: LMError | None, stopping: BaseException | None) -> ServerDead | None:
        """Count the outcome of a call. Returns the error to stop with if the server is dead, which it also is
        where the run is `stopping` for that. Its failures are then deleted, so that a resumed run asks again."""
        keys = self._keys.setdefault(lm, [])
        if error is None or not error.kind.dead_server:
            keys.clear()
            return None
        keys.append(key)
        if stopping is None and len(keys) >= DEAD_AFTER:
            stopping = ServerDead(f"{DEAD_AFTER} calls in a row failed, the last with: {error}")
        if not isinstance(stopping, ServerDead):
            return None
        for dead in keys:
            self._journal.delete_call(dead)
        keys.clear()
        return stopping
