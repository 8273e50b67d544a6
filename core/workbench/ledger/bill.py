"""What the run database tells of the requests of a run, whichever process sent them: paid, failed, or unknown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from workbench.errors import ServerDead
from workbench.ledger.spend import Spend
from workbench.store import Store


@dataclass(frozen=True)
class Bill:
    """The requests of one run."""

    store: Store
    run_id: int

    def sent(self) -> Spend:
        """All that ever left, with the worst case of what may be billed though no answer came."""
        calls = self.store.row(
            "select coalesce(sum(attempts), 0), coalesce(sum(prompt_tokens), 0), "
            "coalesce(sum(completion_tokens), 0), coalesce(sum(usd), 0) from calls where run_id = ? and kind = 'lm'",
            self.run_id,
        )
        open_attempts = self.store.row(
            "select coalesce(sum(outcome is null or key not in (select key from calls where run_id = ?)), 0), "
            "coalesce(sum(prompt_tokens), 0), coalesce(sum(usd), 0) from attempts where run_id = ?",
            self.run_id,
            self.run_id,
        )
        assert calls is not None and open_attempts is not None
        return Spend(calls[0] + open_attempts[0], 0, calls[1] + open_attempts[1], calls[2], calls[3] + open_attempts[2])

    @property
    def unknown(self) -> int:
        """Requests that left before a kill and whose outcome nobody knows; they count against the ceiling."""
        row = self.store.row("select count(*) from attempts where run_id = ? and outcome is null", self.run_id)
        return row[0] if row else 0

    @property
    def failed(self) -> dict[str, int]:
        """Requests that failed, by kind of error, whether or not the call was answered in the end."""
        return dict(
            tuple(row)
            for row in self.store.rows(
                "select outcome, count(*) from attempts where run_id = ? and outcome is not null group by outcome "
                "order by outcome",
                self.run_id,
            )
        )

    def as_dict(self) -> dict[str, Any]:
        """unknown, failed, and the tokens and dollars that calls without an answer may cost besides, at worst: those
        that timed out, broke off, could not be read, or were under way in a kill. They count against the ceilings."""
        row = self.store.row(
            "select coalesce(sum(prompt_tokens), 0) as maybe_tokens, coalesce(sum(usd), 0.0) as maybe_usd "
            "from attempts where run_id = ?",
            self.run_id,
        )
        assert row is not None
        return {"unknown": self.unknown, **dict(row), "failed": self.failed}

    def check_answered(self) -> None:
        """Raise ServerDead if requests were sent and none was answered: then it is not the budget that ended the
        search."""
        self.store.flush()
        last = self.store.row(
            "select message from attempts where run_id = ? and outcome is not null order by rowid desc limit 1",
            self.run_id,
        )
        if last is None or self.store.row(
            "select 1 from calls where run_id = ? and kind = 'lm' and response is not null limit 1", self.run_id
        ):
            return
        self.forget_unanswered()
        raise ServerDead(
            f"none of {sum(self.failed.values())} requests was answered before the budget ended; the last failed "
            f"with: {last['message']}. They count: a resumed run may need --budget-calls or the like"
        )

    def forget_unanswered(self) -> None:
        """Drop calls that failed for good, so that a resumed run asks again; their requests stay on the bill."""
        self.store.flush()
        self.store.execute("delete from calls where run_id = ? and kind = 'lm' and response is null", self.run_id)
