"""Spending of a budget, and payment of calls.

The bill of a run, from the run database: requests paid, failed, or of unknown outcome, in all processes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from workbench.errors import LMError, ServerDead, SpecError
from workbench.lm import LM, Request, Response, estimate_tokens
from workbench.store import Journal, Store


@dataclass
class Spend:
    """Resources used: calls (attempts that were sent), tokens, dollars, seconds of waiting for answers."""

    calls: int = 0
    cached: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def add(self, part: Spend) -> None:
        """Add another Spend, except for its cached calls."""
        self.calls += part.calls
        self.prompt_tokens += part.prompt_tokens
        self.completion_tokens += part.completion_tokens
        self.usd += part.usd
        self.seconds += part.seconds

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "usd": round(self.usd, 8), "seconds": round(self.seconds, 3)}


def no_price_line(models: Iterable[str]) -> str:
    """Return a line that dollars are unknown because the prices of these models are missing."""
    return (
        f"Dollars unknown: there is no price for {', '.join(sorted({*models}))}; write price: "
        "{input: ..., output: ...} (dollars per million tokens, 0 if it is free) beside its name, with the tiers and "
        "lengths that it is called with."
    )


#: Relative gap (to the larger amount) above which it is reported.
_GAP = 0.05


@dataclass
class PriceCheck:
    """Totals stated by billers and by our prices for the same calls, and the number of answers without a known price.
    free: models whose answers cost nothing although nobody stated so."""

    stated_usd: float = 0.0
    computed_usd: float = 0.0
    unpriced: dict[str, int] = field(default_factory=dict[str, int])  # by model
    free: set[str] = field(default_factory=set[str])

    def add(self, lm: str, usd: float | None, response: Response) -> None:
        """Add an answer and its price; None: unknown."""
        if usd is None:
            self.unpriced[lm] = self.unpriced.get(lm, 0) + 1
        elif not response.stated:
            self.free |= {lm} if usd == 0 else set()
        elif response.computed_usd is not None:
            self.stated_usd += usd
            self.computed_usd += response.computed_usd

    def lines(self) -> list[str]:
        """Return lines on answers without a known price, and on a gap between the biller's total and our prices."""
        out, stated, computed = list[str](), self.stated_usd, self.computed_usd
        if self.unpriced:
            out.append(no_price_line(f"{model} ({n} answers)" for model, n in self.unpriced.items()))
        if abs(stated - computed) > _GAP * max(stated, computed):
            out.append(
                f"Billed: the server states ${stated:.4f} for calls that cost ${computed:.4f} by the prices known "
                "here. What it states is counted; ceilings reserve by the latter, which price: beside the model's name "
                "sets."
            )
        return out

    def as_dict(self) -> dict[str, Any]:
        """Return the figures; empty if there is nothing to report."""
        stated = {"stated_usd": round(self.stated_usd, 8), "computed_usd": round(self.computed_usd, 8)}
        found: dict[str, Any] = stated if any(stated.values()) else {}
        return {**found, **({"unpriced": dict(sorted(self.unpriced.items()))} if self.unpriced else {})}


@dataclass(frozen=True, slots=True)
class Settled:
    """The outcome of a call: a response, or the error of its last attempt. seconds: in its requests. queued: seconds of
    waiting in workbench: for a slot, in the pauses of a rate limit, and between attempts."""

    response: Response | None
    error: LMError | None
    cached: bool
    attempts: int
    usd: float
    seconds: float
    queued: float = 0.0
    key: str = ""  # in the journal
    max_usd: float | None = None  # the cost of an answer with all its tokens; None if unknown


#: The number of the row that is run or scored here (`workbench.study.RowRun`); 0 outside of rows.
current_row: ContextVar[int] = ContextVar("row", default=0)


@dataclass(frozen=True, slots=True)
class CallInfo:
    """The data of the event `call_settled`. cached: from the journal. reused: an earlier run paid for it.

    at: time of settlement, in seconds since 1970. in_flight: concurrent requests when it was answered, itself included;
    0 for an answer from the journal.
    """

    key: str
    role: str
    lm: str
    outcome: str
    cached: bool
    attempts: int
    prompt_tokens: int
    completion_tokens: int
    usd: float
    seconds: float
    queued: float = 0.0
    reused: bool = False
    row: int = field(default_factory=current_row.get, compare=False)
    at: float = field(default_factory=time.time, compare=False)
    in_flight: int = field(default=0, compare=False)

    @classmethod
    def of(cls, row: Any, role: str, *, reused: bool) -> CallInfo:
        """Return the data of a row of `calls`, at the cost when it was paid."""
        cost = (row["attempts"], row["prompt_tokens"], row["completion_tokens"], row["usd"] or 0.0, row["seconds"])
        return cls(row["key"], role, row["lm"], row["outcome"], True, *cost, row["queued"] or 0.0, reused)


def describe_reused(summary: Mapping[str, Any]) -> str:
    """Describe the calls in a bill (`Ledger.summary`) that earlier runs paid for; empty if there are none."""
    reused = summary.get("reused") or {"calls": 0}
    if not reused["calls"]:
        return ""
    return f"; {reused['calls']} calls were reused from earlier runs, where they cost ${reused['usd']:.4f}"


def describe_lost(summary: Mapping[str, Any]) -> str:
    """Describe the requests in a bill (`Ledger.summary`) that failed or have an unknown outcome; empty if there are
    none."""
    text = f"; {n} more were in flight at a kill, outcome unknown" if (n := summary["unknown"]) else ""
    if summary["maybe_tokens"]:
        usd = f" and ${summary['maybe_usd']:.4f}" if summary["maybe_usd"] else ""
        text += f"; up to {summary['maybe_tokens']} tokens{usd} more if the server bills calls whose answers did not"
        text += " arrive in full"
    if failed := summary["failed"]:
        kinds, total = ", ".join(f"{kind} {n}" for kind, n in failed.items()), sum(failed.values())
        text += f"; {total} request{'s' * (total != 1)} failed ({kinds}), which count as calls"
    return text


def describe_usd(summary: Mapping[str, Any], digits: int = 4) -> str:
    """Describe the dollars of a bill (`Ledger.summary`), without answers of unknown price."""
    by_model: Mapping[str, int] = summary.get("unpriced") or {}
    unpriced = sum(by_model.values())
    usd = f"${summary['usd']:.{digits}f}"
    if not unpriced:
        return usd
    return f"unpriced ({unpriced} answers)" if not summary["usd"] else f"{usd} and {unpriced} unpriced answers"


def per_1000(usd: float | None) -> str:
    """Return dollars per row as those per 1,000 rows, which people can read; `unpriced` if they are unknown."""
    return "unpriced" if usd is None else f"{1000 * usd:.4g}"


def price_of(
    lm: LM,
    prompt: int,
    completion: int,
    ceiling: float | None,
    setting: str = "budget.usd",
    request: Request | None = None,
) -> float:
    """Return the US dollars for a number of tokens, or for a request at worst; 0 if the price is unknown. With a
    ceiling on dollars (`setting`), raises SpecError if the price is unknown, or assumed to be 0 because the server is
    on this machine."""
    most = getattr(lm, "max_usd", None)
    price = lm.price(prompt, completion) if most is None or request is None else most(request, prompt)
    if (price is None or getattr(lm, "assumed_free", False)) and ceiling is not None:
        raise unknown_price(lm, setting)
    return price or 0.0


def unknown_price(lm: LM, setting: str) -> SpecError:
    """Return the error for a ceiling on dollars (`setting`) that cannot be kept."""
    assumed = bool(getattr(lm, "assumed_free", False))
    where = ": its server is on this machine, and may forward calls to a paid service" if assumed else ""
    return SpecError(
        f"{setting} cannot be kept: the price of {lm.identity} is not known{where}",
        hint="Add price: {input: ..., output: ...} (dollars per million tokens, 0 if it is free) beside the name "
        f"of the model (lm.price), or remove {setting} and set {setting.replace('usd', 'calls')}. Prices by the length "
        "of the prompt are stated under price.above, those of service tiers under price.tiers.",
        path=tuple(setting.split(".")),
    )


def estimate_prompt(request: Request) -> int:
    """Estimate the tokens of a prompt from its texts."""
    parts = (*request.messages, *({"content": part} for part in (*request.tools, request.response_format) if part))
    return estimate_tokens(parts)


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
