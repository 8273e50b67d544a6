"""The bill of a run, from the run database: requests paid, failed, or of unknown outcome, in all processes."""

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
        """Return all requests ever sent, with the worst-case cost of requests without an answer that may be billed."""
        attempts, prompt_tokens, completion_tokens, usd = self.journal.sum_calls()
        open_attempts, open_tokens, open_usd = self.journal.sum_open_attempts()
        return Spend(attempts + open_attempts, 0, prompt_tokens + open_tokens, completion_tokens, usd + open_usd)

    @property
    def unknown(self) -> int:
        """Count the requests sent before a kill whose outcome is unknown. They count against the ceiling."""
        return self.journal.count_unknown_attempts()

    @property
    def failed(self) -> dict[str, int]:
        """Count the failed requests by kind of error, including calls that a retry answered."""
        return self.journal.count_failures()

    def as_dict(self) -> dict[str, Any]:
        """Return unknown, failed, and the worst-case tokens and dollars of calls without an answer: they timed out,
        lost the connection, could not be read, or were in flight at a kill. These count against the ceilings."""
        possible = self.journal.sum_possible_costs()
        return {"unknown": self.unknown, **possible, "failed": self.failed}

    def check_answered(self) -> None:
        """Raise ServerDead if requests were sent and none was answered: the server ended the search, not the budget."""
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
        """Delete calls that failed for good, so that a resumed run asks again. Their requests stay on the bill."""
        self.store.flush()
        self.journal.delete_unanswered_calls()
