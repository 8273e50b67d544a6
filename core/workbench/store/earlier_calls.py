"""Answers to the calls of earlier runs."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.errors import StoreError
from workbench.lm import MAX_TOKENS, split_thoughts, unpack_tokens
from workbench.store.content import checksum, parse_json
from workbench.store.database import Store
from workbench.store.journal import Journal, summed_parts

#: Numbers of newest runs to search for an answer, and of newest calls of a model to average.
MAX_RUNS, MAX_CALLS = 16, 1000


@dataclass(frozen=True, slots=True)
class Usual:
    """The means of a model's recorded calls. seconds: of the requests alone; None if no call stored them separately."""

    calls: int
    prompt_tokens: float
    completion_tokens: float
    seconds: float | None


@dataclass(frozen=True, slots=True)
class EarlierCalls:
    """The calls of the runs before a run. only: the single run to search."""

    store: Store
    run_id: int
    only: int | None = None

    def find(self, key: str, *, tokens: bool = False) -> sqlite3.Row | None:
        """Return the newest answered call with this key and an undamaged row; None if there is none.

        Rows without a checksum count as damaged. Answers that every node counts as a failure are skipped, so that the
        run asks again: refusals, and answers with neither text nor tool call, e.g. because thinking used up
        `max_tokens`. Other answers are reused, even if cut short or hard to parse: that depends on the reader, and an
        agent replies to a tool call with unreadable arguments and continues. A run that repeats one other (`only`)
        reuses all of its answers.

        Args:
            key: the content key.
            tokens: require token ids and log-probabilities, as in a rollout for training.
        """
        sql = (
            "select * from calls where key = ? and run_id < ? and kind = 'lm' and response is not null "
            "and (? is null or run_id = ?) order by run_id desc limit ?"
        )
        for row in self.store.rows(sql, key, self.run_id, self.only, self.only, MAX_RUNS):
            if (answer := _whole_answer(row, tokens)) is not None and (self.only is not None or not _failed(answer)):
                return row
        return None

    def find_effect(self, key: str) -> str | None:
        """Return the result of an effect of the run `only`, as JSON; None without `only`, since effects may differ."""
        return None if self.only is None else Journal(self.store, self.only).find_effect(key)


def read_usual_calls(store: Store, lm: str) -> Usual | None:
    """Return the means over a model's newest answered calls as `task`; None if there are none. lm: its identity."""
    sql = (
        "select count(*) as n, avg(prompt_tokens) as prompt, avg(completion_tokens) as completion, avg(case when "
        "queued is not null then seconds end) as latency from (select * from calls where lm = ? and role = 'task' and "
        "kind = 'lm' and response is not null and reused is null order by run_id desc limit ?)"
    )
    row = store.row(sql, lm, MAX_CALLS)
    if row is None or not row["n"]:
        return None
    return Usual(row["n"], row["prompt"], row["completion"], row["latency"])


def _whole_answer(row: Any, tokens: bool) -> dict[str, Any] | None:
    """Return the answer of an undamaged row: its checksum matches, and the numbers that it does not cover are valid."""
    if row["checksum"] != checksum(*summed_parts(row)):
        return None
    counts = (row["attempts"], row["prompt_tokens"], row["completion_tokens"])
    amounts = (row["usd"] or 0.0, row["seconds"], row["queued"] or 0.0)
    if not all(isinstance(n, int) and 0 <= n <= MAX_TOKENS for n in counts):
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
    """Return True if every node counts a stored answer as a failure."""
    said = split_thoughts(answer["text"])[1]
    return answer["finish"] == "refusal" or not (said.strip() or answer.get("tool_calls"))
