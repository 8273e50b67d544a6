"""The requests of a run, from the run database: paid, failed, or with unknown outcome. All processes count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from workbench.errors import ServerDead
from workbench.ledger.spend import Spend
from workbench.store import Journal, Store


@dataclass(frozen=True)
class Bill:
    """The requests of one run."""

    store: Store
    journal: Journal

    def sent(self) -> Spend:
        """All requests ever sent, with the worst-case cost of those that may be billed without an answer."""
        attempts, prompt_tokens, completion_tokens, usd = self.journal.sum_calls()
        open_attempts, open_tokens, open_usd = self.journal.sum_open_attempts()
        return Spend(attempts + open_attempts, 0, prompt_tokens + open_tokens, completion_tokens, usd + open_usd)

    @property
    def unknown(self) -> int:
        """Requests sent before a kill whose outcome is unknown; they count against the ceiling."""
        return self.journal.count_unknown_attempts()

    @property
    def failed(self) -> dict[str, int]:
        """Requests that failed, by kind of error, whether or not the call was answered in the end."""
        return self.journal.count_failures()

    def as_dict(self) -> dict[str, Any]:
        """unknown, failed, and the worst-case tokens and dollars of calls without an answer: those that timed out, lost
        the connection, could not be read, or were in flight at a kill. They count against the ceilings."""
        possible = self.journal.sum_possible_costs()
        return {"unknown": self.unknown, **possible, "failed": self.failed}

    def check_answered(self) -> None:
        """Raise ServerDead if requests were sent and none was answered: then the search ended for want of a server, not
        of budget."""
        self.store.flush()
        last = self.journal.find_last_failure()
        if last is None or self.journal.has_answer():
            return
        self.forget_unanswered()
        raise ServerDead(
            f"none of {sum(self.failed.values())} requests was answered before the budget ended; the last failed "
            f"with: {last}. They count: a resumed run may need --budget-calls or the like"
        )

    def forget_unanswered(self) -> None:
        """Delete calls that failed for good, so that a resumed run asks again; their requests stay on the bill."""
        self.store.flush()
        self.journal.delete_unanswered_calls()
