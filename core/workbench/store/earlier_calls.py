"""Answers to the calls of earlier runs."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.errors import StoreError
from workbench.lm import MOST_TOKENS, split_thoughts, unpack_tokens
from workbench.store.content import checksum, parse_json
from workbench.store.database import Store
from workbench.store.journal import Journal, summed_parts

#: So many runs are searched for an answer, and so many calls of a model are averaged, newest first.
MOST_RUNS, MOST_CALLS = 16, 1000


@dataclass(frozen=True, slots=True)
class Usual:
    """The means of a model's recorded calls. seconds: of the requests alone; None if no call tells them apart."""

    calls: int
    prompt_tokens: float
    completion_tokens: float
    seconds: float | None


@dataclass(frozen=True, slots=True)
class EarlierCalls:
    """The calls of the runs before one run. only: of this one."""

    store: Store
    run_id: int
    only: int | None = None

    def find(self, key: str, *, tokens: bool = False) -> sqlite3.Row | None:
        """The newest answered call with this key whose row is what was written; None if there is none.

        Rows without a checksum cannot be checked, so they count as damaged. Answers that every node counts as a failure
        are passed over, so that they are asked for again: refusals, and those without a text and without a call of a
        tool, e.g. where thoughts used up `max_tokens`. Whether a text can be parsed, or was cut too early, depends on
        who reads it; a call with unreadable arguments is answered by the agent, which goes on. These are taken. A run
        that repeats one other (`only`) takes all, as that one was answered.

        Args:
            key: the content key.
            tokens: whether the answer must have token ids and log-probabilities, as a rollout for training has.
        """
        sql = (
            "select * from calls where key = ? and run_id < ? and kind = 'lm' and response is not null "
            "and (? is null or run_id = ?) order by run_id desc limit ?"
        )
        for row in self.store.rows(sql, key, self.run_id, self.only, self.only, MOST_RUNS):
            if (answer := _whole_answer(row, tokens)) is not None and (self.only is not None or not _failed(answer)):
                return row
        return None

    def find_effect(self, key: str) -> str | None:
        """The result of an effect of the one run, as JSON; None if all runs are searched, since effects may differ."""
        return None if self.only is None else Journal(self.store, self.only).find_effect(key)


def read_usual_calls(store: Store, lm: str) -> Usual | None:
    """The means over the newest calls that a model answered as the task's; None if there are none. lm: its identity."""
    sql = (
        "select count(*) as n, avg(prompt_tokens) as prompt, avg(completion_tokens) as completion, avg(case when "
        "queued is not null then seconds end) as latency from (select * from calls where lm = ? and role = 'task' and "
        "kind = 'lm' and response is not null and reused is null order by run_id desc limit ?)"
    )
    row = store.row(sql, lm, MOST_CALLS)
    if row is None or not row["n"]:
        return None
    return Usual(row["n"], row["prompt"], row["completion"], row["latency"])


def _whole_answer(row: Any, tokens: bool) -> dict[str, Any] | None:
    """The answer of a row that is what was written: its checksum matches, and what that does not cover can be counted
    with."""
    if row["checksum"] != checksum(*summed_parts(row)):
        return None
    counts = (row["attempts"], row["prompt_tokens"], row["completion_tokens"])
    amounts = (row["usd"] or 0.0, row["seconds"], row["queued"] or 0.0)
    if not all(isinstance(n, int) and 0 <= n <= MOST_TOKENS for n in counts):
        return None
    if not all(isinstance(x, int | float) and math.isfinite(x) and x >= 0 for x in amounts):
        return None
    try:
        answer = parse_json(row["response"], "a call", dict)
        if row["packed_tokens"] is not None:
            answer |= unpack_tokens(row["packed_tokens"])
    except StoreError:
        return None
    needed = ("text", "finish", "token_ids", "logprobs") if tokens else ("text", "finish")
    return answer if all(name in answer for name in needed) else None


def _failed(answer: Mapping[str, Any]) -> bool:
    """Return True if a stored answer is a failure to every node that reads it."""
    said = split_thoughts(answer["text"])[1]
    return answer["finish"] == "refusal" or not (said.strip() or answer.get("tool_calls"))
