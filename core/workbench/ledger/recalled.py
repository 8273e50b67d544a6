"""Calls that are counted but not sent: this run's own, from its journal, and those of earlier runs.

A journal for calls that no run replays.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench.errors import LMError
from workbench.ledger.spend import CallInfo, Settled, Spend
from workbench.lm import LM, Request, Response, unpack_native, unpack_tokens
from workbench.store import EarlierCalls, Journal

if TYPE_CHECKING:
    from workbench.ledger.ledger import Ledger


_ANSWERED = ("ok", "stop", "length", "refusal", "empty", "tool_calls")


class Recalled(NamedTuple):
    """A call that is counted again: its outcome, and its request as journalled."""

    settled: Settled | None
    asked: dict[str, Any] | None


class RecalledCalls:
    """The calls of one run that need not be sent."""

    def __init__(self, ledger: Ledger, journal: Journal, earlier: EarlierCalls):
        self._ledger, self._journal, self._earlier = ledger, journal, earlier

    def replay(self, key: str, role: str) -> Settled | None:
        """Return the outcome in this run's journal; None if there is none."""
        ledger = self._ledger
        if not ledger.resumed and _short(key) not in ledger.touched:
            return None
        if (row := self._journal.find_call(key)) is None:
            return None
        reused, found = row["reused"] is not None, _stored_outcome(row)
        if first := self.touch(key):
            self._count_stored(row, row["role"], found, reused=reused)
        else:
            ledger.spent.cached += 1
            ledger.by_role[role].cached += 1
        self._tell(row, row["role"], reused=reused)
        return found if first else replace(found, cached=True)

    async def take_over(self, key: str, lm: LM, request: Request, role: str) -> Settled | None:
        """Return the answer of an earlier run and record it in this one; None if there is none to reuse."""
        may = (self._ledger.reuse or self._ledger.source) and getattr(lm, "reusable", True)
        row = self._earlier.find(key, tokens=request.logprobs) if may else None
        return None if row is None else await self._adopt(row, key, role)

    async def find(self, key: str, role: str) -> Settled | None:
        """Return the outcome in the journal of this run or of its `source`; None if there is none."""
        settled = self.replay(key, role)
        row = self._earlier.find(key) if settled is None and self._ledger.source else None
        return settled if row is None else await self._adopt(row, key, role)

    def count_failed_attempts(self, key: str, role: str) -> int:
        """Count the failed attempts of earlier processes at a call that they did not settle. Returns their number."""
        if failed := self._journal.count_failed_attempts(key) if self._ledger.resumed else 0:
            self._ledger.retries += failed
            self._ledger.count(role, Spend(failed))
        return failed

    def touch(self, key: str) -> bool:
        """Return True the first time this process sees a key. Half of each key is stored, to save memory."""
        first = (short := _short(key)) not in self._ledger.touched
        if self._ledger.recorded:
            self._ledger.touched.add(short)
        return first

    async def _adopt(self, row: Any, key: str, role: str) -> Settled:
        done = self._journal.add_reused_call(row, role)
        self.touch(key)
        self._count_stored(row, role, found := _stored_outcome(row), reused=True)
        await asyncio.shield(done)
        self._tell(row, role, reused=True)
        return found

    def _tell(self, row: Any, role: str, *, reused: bool) -> None:
        if self._ledger.on_call is not None:
            self._ledger.on_call(CallInfo.of(row, role, reused=reused))

    def _count_stored(self, row: Any, role: str, found: Settled, *, reused: bool) -> None:
        ledger = self._ledger
        ledger.retries += row["attempts"] - 1  # the reserve for the proof depends on it, replayed or not
        if not reused:
            if found.response is not None:
                ledger.prices.add(row["lm"], row["usd"], found.response)
            return ledger.count(role, _stored_spend(row))
        for spend in (ledger.reused, ledger.spent) if ledger.searching else (ledger.reused,):
            spend.add(_stored_spend(row))


def tell_recalled(lm: LM, request: Request, settled: Settled) -> Settled:
    """Pass a recalled answer to a model that remembers its answers, because it was not asked."""
    if settled.response is not None and (recall := getattr(lm, "recall", None)) is not None:
        recall(request, settled.response)
    return settled


def _short(key: str) -> bytes:
    return bytes.fromhex(key[:16])


def _stored_outcome(row: Any) -> Settled:
    """Return the outcome in a row of `calls`, at the cost when it was paid."""
    failed = row["outcome"] not in _ANSWERED
    return Settled(
        None if row["response"] is None else _stored_response(row),
        LMError(row["outcome"], row["message"] or "") if failed else None,
        False,
        row["attempts"],
        row["usd"] or 0.0,
        row["seconds"],
        row["queued"] or 0.0,
        row["key"],
    )


def _stored_spend(row: Any) -> Spend:
    return Spend(row["attempts"], 0, row["prompt_tokens"], row["completion_tokens"], row["usd"] or 0.0, row["seconds"])


def _stored_response(row: Any) -> Response:
    """Return the answer of an answered row of `calls`."""
    body = json.loads(row["response"])
    for name in ("tool_calls", "prompt_ids", "token_ids", "logprobs"):
        if name in body:
            body[name] = tuple(body[name])
    if "native" in body:
        body["native"] = unpack_native(body["native"])
    if row["packed_tokens"] is not None:
        body |= unpack_tokens(row["packed_tokens"])
    return Response(
        prompt_tokens=row["prompt_tokens"], completion_tokens=row["completion_tokens"], usd=row["usd"], **body
    )


class NoJournal(Journal):
    """A journal that stores nothing, for calls that no run replays."""

    def find_call(self, key: str) -> sqlite3.Row | None:
        return None

    def has_answered(self, lm: str) -> bool:
        return False

    def add_call(self, key: str, **values: Any) -> asyncio.Future[None]:
        return _done()

    def add_effect(self, key: str, kind: str, content: str, result: str, seconds: float) -> asyncio.Future[None]:
        return _done()

    def add_reused_call(self, row: sqlite3.Row, role: str) -> asyncio.Future[None]:
        return _done()

    def delete_call(self, key: str) -> asyncio.Future[None]:
        return _done()

    def add_attempt(self, key: str, role: str, attempt: int, tokens: int, usd: float) -> asyncio.Future[None]:
        return _done()

    def fail_attempt(
        self, key: str, attempt: int, outcome: str, message: str, tokens: int, usd: float
    ) -> asyncio.Future[None]:
        return _done()

    def delete_attempt(self, key: str, attempt: int) -> asyncio.Future[None]:
        return _done()


def _done() -> asyncio.Future[None]:
    future = asyncio.get_running_loop().create_future()
    future.set_result(None)
    return future
