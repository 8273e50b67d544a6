"""The answered calls of earlier runs in a database: to take answers over, and to expect what a model takes."""

from __future__ import annotations

import math
import sqlite3
from dataclasses import dataclass

from workbench.errors import StoreError
from workbench.lm import MOST_TOKENS
from workbench.store.content import checksum, parse_json
from workbench.store.database import Store
from workbench.store.journal import SUMMED

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
    """The calls of the runs before one run."""

    store: Store
    run_id: int

    def find(self, key: str, *, tokens: bool = False) -> sqlite3.Row | None:
        """The newest answered call with this key whose row is what was written; None if there is none.

        Rows without a checksum cannot be checked, so they count as damaged.

        Args:
            key: the content key.
            tokens: whether the answer must have token ids and log-probabilities, as a rollout for training has.
        """
        sql = (
            "select * from calls where key = ? and run_id < ? and kind = 'lm' and response is not null "
            "order by run_id desc limit ?"
        )
        for row in self.store.rows(sql, key, self.run_id, MOST_RUNS):
            if _is_whole(row, tokens):
                return row
        return None


def read_usual_calls(store: Store, lm: str, role: str = "task") -> Usual | None:
    """The means over the newest calls that a model answered in this role; None if there are none. lm: its identity."""
    sql = (
        "select count(*) as n, avg(prompt_tokens) as prompt, avg(completion_tokens) as completion, avg(case when "
        "queued is not null then seconds end) as seconds from (select * from calls where lm = ? and role = ? and kind "
        "= 'lm' and response is not null and reused is null order by run_id desc limit ?)"
    )
    row = store.row(sql, lm, role, MOST_CALLS)
    if row is None or not row["n"]:
        return None
    return Usual(row["n"], row["prompt"], row["completion"], row["seconds"])


def _is_whole(row: sqlite3.Row, tokens: bool) -> bool:
    """Whether a row is what was written: its checksum matches, and what that does not cover can be counted with."""
    if row["checksum"] is None or row["checksum"] != checksum(*(row[name] for name in SUMMED)):
        return False
    counts = (row["attempts"], row["prompt_tokens"], row["completion_tokens"])
    amounts = (row["usd"] or 0.0, row["seconds"], row["queued"] or 0.0)
    if not all(isinstance(n, int) and 0 <= n <= MOST_TOKENS for n in counts):
        return False
    if not all(isinstance(x, int | float) and math.isfinite(x) and x >= 0 for x in amounts):
        return False
    try:
        answer = parse_json(row["response"], "a call", dict)
    except StoreError:
        return False
    needed = ("text", "finish", "token_ids", "logprobs") if tokens else ("text", "finish")
    return all(name in answer for name in needed)
