"""The journal of one run: its calls, attempts without an answer, and the large texts of its requests."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.base.type_guards import is_dict, is_list
from workbench.errors import StoreError
from workbench.lm import Request, Response, is_blank, is_refusal, split_tokens
from workbench.store.content import check_sum, checksum, parse_json, text_key
from workbench.store.database import Store, dumps, insertion

#: A message with more characters is stored once, under its hash.
LARGE_TEXT = 256

#: Columns of a call that its checksum covers, in addition to its tokens.
_SUMMED = ("key", "role", "request", "response", "outcome", "message")


@dataclass(frozen=True, slots=True)
class Journal:
    """The calls and attempts of one run. Additions are queued: their future is done when they are committed."""

    store: Store
    run_id: int

    # Calls

    def find_call(self, key: str) -> sqlite3.Row | None:
        """Return the settled call or effect with this key."""
        row = self.store.row("select * from calls where run_id = ? and key = ?", self.run_id, key)
        if row is not None:
            self._check(row)
        return row

    def has_call(self, key: str) -> bool:
        """Return True if a call with this key was settled."""
        return self.store.row("select 1 from calls where run_id = ? and key = ?", self.run_id, key) is not None

    def has_answer(self) -> bool:
        """Return True if any model call was answered."""
        sql = "select 1 from calls where run_id = ? and kind = 'lm' and response is not null limit 1"
        return self.store.row(sql, self.run_id) is not None

    def has_answered(self, lm: str) -> bool:
        """Return True if a model ever answered, in any run. lm: its identity."""
        sql = "select 1 from calls where lm = ? and kind = 'lm' and response is not null limit 1"
        return self.store.row(sql, lm) is not None

    def find_effect(self, key: str) -> str | None:
        """Return the result of the effect with this key, as JSON."""
        row = self.find_call(key)
        return None if row is None else row["response"]

    def add_call(
        self,
        key: str,
        *,
        role: str,
        request: Request,
        response: Response | None,
        outcome: str,
        message: str | None,
        **others: Any,
    ) -> asyncio.Future[None]:
        """Queue a settled model call. It replaces an earlier one with its key. Large texts are stored once, under their
        hash.

        others: lm (its identity), attempts, prompt_tokens, completion_tokens, usd, seconds (in its requests) and queued
        (seconds of waiting before and between them).
        """
        body = request.as_dict()
        body["messages"] = [self._without_large(message) for message in body["messages"]]
        if "native" in body:
            body["native"] = {**body["native"], "body": self._by_hash(body["native"]["body"])}
        values, tokens = (None, None) if response is None else split_tokens(response)
        asked, answer = dumps(body), None if values is None else dumps(values)
        summed = (key, role, asked, answer, outcome, message)
        return self._put("lm", summed, packed_tokens=tokens, **others)

    def _put(self, kind: str, summed: Sequence[str | None], **others: Any) -> asyncio.Future[None]:
        """Queue a row. summed: the parts that the checksum covers in addition to tokens."""
        row = {"run_id": self.run_id, "kind": kind, **dict(zip(_SUMMED, summed, strict=True)), **others}
        row["checksum"] = checksum(*summed_parts(row))
        return self.store.write(*insertion("insert or replace into calls", row))

    def add_reused_call(self, row: sqlite3.Row, role: str) -> asyncio.Future[None]:
        """Queue an answer that an earlier run paid for (`EarlierCalls`), with its cost at that time."""
        changed = {
            "run_id": self.run_id,
            "role": role,
            "checksum": checksum(*summed_parts({**dict(row), "role": role})),
            "reused": row["run_id"] if row["reused"] is None else row["reused"],
        }
        return self.store.write(*insertion("insert or replace into calls", {**dict(row), **changed}))

    def _without_large(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a message with the hash of a large text or large image in its place."""
        content = message.get("content")
        if isinstance(content, str) and len(content) > LARGE_TEXT:
            return {**message, "content": {"text": self.store.text(content)}}
        if not is_list(content):
            return message
        parts = [
            {**part, "image_url": {**part["image_url"], "url": {"text": self.store.text(part["image_url"]["url"])}}}
            if is_dict(part.get("image_url")) and len(str(part["image_url"].get("url"))) > LARGE_TEXT
            else part
            for part in content
            if is_dict(part)
        ]
        return {**message, "content": parts}

    def _by_hash(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of a request with each large field and each large turn replaced by its hash: the next request
        of a conversation repeats them."""

        def kept(value: Any) -> Any:
            written = dumps(value)
            return {"json": self.store.text(written)} if len(written) > LARGE_TEXT else value

        turns = ("messages", "input")
        return {n: [*map(kept, part)] if n in turns and is_list(part) else kept(part) for n, part in body.items()}

    def add_effect(self, key: str, kind: str, content: str, result: str, seconds: float) -> asyncio.Future[None]:
        """Queue the result of an effect other than a model call."""
        paid = {"lm": "", "attempts": 0, "prompt_tokens": 0, "completion_tokens": 0, "usd": 0, "seconds": seconds}
        return self._put(kind, (key, "task", content, result, "ok", None), packed_tokens=None, **paid)

    def delete_call(self, key: str) -> asyncio.Future[None]:
        """Queue the deletion of a call, so that a resumed run asks again."""
        return self.store.write("delete from calls where run_id = ? and key = ?", self.run_id, key)

    def delete_unanswered_calls(self) -> None:
        """Delete immediately all model calls that got no answer."""
        self.store.execute("delete from calls where run_id = ? and kind = 'lm' and response is null", self.run_id)

    def read_calls(self, limit: int, roles: Collection[str] = ()) -> list[dict[str, Any]]:
        """Return some model calls in no particular order, with their large texts; response: the answer as an object, or
        None. roles: only these. Raises StoreError for damaged rows."""
        sql = (
            "select * from calls where run_id = ? and kind = 'lm' and (? or role in (select value from json_each(?))) "
            "limit ?"
        )
        return [self._whole(row) for row in self.store.rows(sql, self.run_id, not roles, dumps([*roles]), limit)]

    def read_call(self, key: str) -> dict[str, Any] | None:
        """Return the model call with this key, in the form of `read_calls`."""
        row = self.store.row("select * from calls where run_id = ? and key = ? and kind = 'lm'", self.run_id, key)
        return None if row is None else self._whole(row)

    def count_by_role(self) -> dict[str, int]:
        """Count the model calls of each role."""
        sql = "select role, count(*) from calls where run_id = ? and kind = 'lm' group by role order by role"
        return dict(tuple(row) for row in self.store.rows(sql, self.run_id))

    def _whole(self, row: sqlite3.Row) -> dict[str, Any]:
        """Return a model call with its large texts and its answer."""
        place = self._check(row)
        request = parse_json(row["request"], place, dict)
        messages = request.get("messages")
        if not is_list(messages) or not all(is_dict(m) and "role" in m for m in messages):
            raise StoreError(f"{place} is damaged: it has no messages; use a copy of the database")
        request["messages"] = [{**m, "content": self._content(m.get("content"), place)} for m in messages]
        response = parse_json(row["response"], place, dict) if row["response"] else None
        if response is not None and "text" not in response:
            raise StoreError(f"{place} is damaged: its answer has no text; use a copy of the database")
        return {**dict(row), "request": request, "response": response}

    def _check(self, row: sqlite3.Row) -> str:
        """Raise StoreError if a call differs from what was written. Returns its location, for other errors."""
        place = f"the call {row['key'][:16]} of {self.store.path} (table calls)"
        check_sum(row, place, *summed_parts(row))
        return place

    def _content(self, content: Any, place: str) -> Any:
        """Return the content of a message, with the text of a large text or image in place of its hash."""
        if is_list(content):
            return [
                {**part, "image_url": {**part["image_url"], "url": self._content(part["image_url"].get("url"), place)}}
                if is_dict(part) and is_dict(part.get("image_url"))
                else part
                for part in content
            ]
        if not is_dict(content) or "text" not in content:
            return content
        row = self.store.row("select text from texts where hash = ?", str(content["text"]))
        if row is None:
            return "(missing)"
        escaped = re.search(r"\\ud[89a-f]", row["text"])  # a lone surrogate: its key was computed before escaping
        if text_key(row["text"]) != content["text"] and not escaped:
            raise StoreError(f"{place} is damaged: a text of it (table texts) does not match its hash")
        return row["text"]

    # Attempts

    def add_attempt(self, key: str, role: str, attempt: int, tokens: int, usd: float) -> asyncio.Future[None]:
        """Queue an attempt of unknown outcome, with its worst-case cost. attempt: a number of its own."""
        row = {"run_id": self.run_id, "key": key, "role": role, "attempt": attempt, "prompt_tokens": tokens, "usd": usd}
        return self.store.write(*insertion("insert into attempts", row))

    def fail_attempt(
        self, key: str, attempt: int, outcome: str, message: str, tokens: int, usd: float
    ) -> asyncio.Future[None]:
        """Queue the failure of an attempt, with its possible cost."""
        return self.store.write(
            "update attempts set outcome = ?, message = ?, prompt_tokens = ?, usd = ? "
            "where run_id = ? and key = ? and attempt = ?",
            *(outcome, message, tokens, usd, self.run_id, key, attempt),
        )

    def delete_attempt(self, key: str, attempt: int) -> asyncio.Future[None]:
        """Queue the deletion of an attempt that was answered, or not sent; one that failed stays."""
        sql = "delete from attempts where run_id = ? and key = ? and attempt = ? and outcome is null"
        return self.store.write(sql, self.run_id, key, attempt)

    def count_failed_attempts(self, key: str) -> int:
        """Count the attempts at a call that are known to have failed."""
        sql = "select count(*) from attempts where run_id = ? and key = ? and outcome is not null"
        return self.store.number(sql, self.run_id, key)

    def count_unknown_attempts(self) -> int:
        """Count the attempts with an unknown outcome."""
        return self.store.number("select count(*) from attempts where run_id = ? and outcome is null", self.run_id)

    def count_failures(self) -> dict[str, int]:
        """Count the failed attempts by kind of error."""
        sql = (
            "select outcome, count(*) from attempts where run_id = ? and outcome is not null group by outcome "
            "order by outcome"
        )
        return dict(tuple(row) for row in self.store.rows(sql, self.run_id))

    def find_last_failure(self) -> str | None:
        """Return the message of the latest failed attempt, or None if none failed."""
        sql = "select message from attempts where run_id = ? and outcome is not null order by rowid desc limit 1"
        row = self.store.row(sql, self.run_id)
        return None if row is None else str(row["message"])

    # Totals

    def sum_calls(self) -> tuple[int, int, int, float]:
        """Sum attempts, prompt tokens, completion tokens and dollars of all settled model calls that this run paid."""
        row = self.store.row(
            "select coalesce(sum(attempts), 0), coalesce(sum(prompt_tokens), 0), "
            "coalesce(sum(completion_tokens), 0), coalesce(sum(usd), 0) from calls where run_id = ? and kind = 'lm' "
            "and reused is null",
            self.run_id,
        )
        assert row is not None
        return tuple(row)

    def sum_usd(self, lm: str) -> float:
        """Sum the dollars of all settled calls of one model. lm: its identity."""
        sql = "select coalesce(sum(usd), 0.0) as usd from calls where run_id = ? and lm = ? and kind = 'lm'"
        row = self.store.row(sql, self.run_id, lm)
        return row["usd"] if row else 0.0

    def sum_open_attempts(self) -> tuple[int, int, float]:
        """Sum the attempts outside of settled calls, and the prompt tokens and dollars that all attempts may cost."""
        row = self.store.row(
            "select coalesce(sum(outcome is null or key not in (select key from calls where run_id = ?)), 0), "
            "coalesce(sum(prompt_tokens), 0), coalesce(sum(usd), 0) from attempts where run_id = ?",
            self.run_id,
            self.run_id,
        )
        assert row is not None
        return tuple(row)

    def sum_possible_costs(self) -> dict[str, Any]:
        """Return the worst-case tokens and dollars of attempts without an answer: maybe_tokens, maybe_usd."""
        row = self.store.row(
            "select coalesce(sum(prompt_tokens), 0) as maybe_tokens, coalesce(sum(usd), 0.0) as maybe_usd "
            "from attempts where run_id = ?",
            self.run_id,
        )
        assert row is not None
        return dict(row)

    def count_answers_by_role(self) -> list[dict[str, Any]]:
        """For each role except `task`, return n calls, the number of failures, the kinds of failure, and a message.

        An empty or refusing answer of a proposer is a failure, too: it holds no proposal.
        """
        sql = (
            "select role, outcome, message, response from calls where run_id = ? and kind = 'lm' and role != 'task' "
            "order by role, key"
        )
        found = dict[str, dict[str, Any]]()
        for row in self.store.rows(sql, self.run_id):
            counts = found.setdefault(
                row["role"], {"role": row["role"], "n": 0, "failed": 0, "kinds": "", "message": ""}
            )
            counts["n"] += 1
            kind, message = row["outcome"], row["message"] or ""
            if row["response"] is not None:
                text = str(json.loads(row["response"]).get("text", "")) if row["role"] == "proposer" else "an answer"
                kind = "refused" if kind == "refusal" or is_refusal(text) else "empty" if is_blank(text) else ""
                message = f"it said: {text[:150]!r}"
            if kind and (row["response"] is None or row["role"] == "proposer"):
                counts["failed"] += 1
                counts["kinds"] = ",".join(sorted({*filter(None, counts["kinds"].split(",")), kind}))
                counts["message"] = max(counts["message"], message)
        return [*found.values()]


def summed_parts(row: Any) -> list[Any]:
    """Return the parts of a call that its checksum covers."""
    tokens = row["packed_tokens"]
    return [*(row[name] for name in _SUMMED), *([tokens.hex()] if tokens else [])]
