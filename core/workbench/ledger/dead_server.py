"""Detection of a dead server: many calls in a row that failed for good, retries included."""

from __future__ import annotations

from workbench.errors import LMError, ServerDead
from workbench.store import Journal

#: Failures in a row of one model, of kinds typical for a dead server, that stop the run.
DEAD_AFTER = 20


class FailureStreak:
    """The latest calls of each model that failed in a row as with a dead server. An answer of the same model ends its
    streak. Answers of other models do not, since the judge's server may be dead while the task's works."""

    def __init__(self, journal: Journal):
        self._journal = journal
        self._keys = dict[str, list[str]]()

    def clear(self) -> None:
        self._keys.clear()

    def add(self, lm: str, key: str, error: LMError | None, stopping: BaseException | None) -> ServerDead | None:
        """Count the outcome of a call. Returns the error to stop with if the server is dead, or if the run is already
        `stopping` because of it. The failures are then deleted, so that a resumed run asks again."""
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
