"""Checks of written rows: whether they can be read, and whether each call fits the tools that were shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.base.hashing import canonical
from workbench_synthesize.apis import UNKNOWN, Api, find_misfit
from workbench_synthesize.chains import fill_references, find_made_up, find_references, find_unlinked, resolve_reference
from workbench_synthesize.failures import split_question
from workbench_synthesize.settings import Kind

Call = dict[str, Any]


class Refused(Exception):
    """A row is not kept. reason: the check that refused it. why: the details."""

    def __init__(self, reason: str, why: str):
        self.reason, self.why = reason, why
        super().__init__(f"{reason}: {why}")


@dataclass(frozen=True)
class Draft:
    """A row as written. In a chain, its calls contain references."""

    kind: Kind
    question: str
    calls: list[Call]

    @property
    def words(self) -> frozenset[str]:
        return split_question(self.question)


def read_draft(row: Mapping[str, Any], kind: Kind, shown: Mapping[str, Api], most: int) -> Draft:
    """Read a written row. Raises Refused("format") if its form is wrong."""
    question = row.get("question")
    if not isinstance(question, str) or not question.strip():
        raise Refused("format", "there is no question")
    calls = _calls(row, kind, most)
    for place, call in enumerate(calls):
        where = f"call {place + 1}: " if len(calls) > 1 else ""
        if reason := _malformed(call, kind, shown):
            raise Refused("format", where + reason)
        if canonical(call) in map(canonical, calls[:place]):
            raise Refused("format", f"{where}the call is a duplicate")
    if kind == "chain" and (reason := find_unlinked(calls)):
        raise Refused("format", reason)
    return Draft(kind, question, calls)


def _calls(row: Mapping[str, Any], kind: Kind, most: int) -> list[Call]:
    if kind == "simple":
        one = row.get("calls")  # some writers use a list, as in the stored rows
        call = one[0] if isinstance(one, list) and len(one) == 1 and isinstance(one[0], Mapping) else row
        if "name" not in call:
            raise Refused("format", "there is no call: name and arguments are missing")
        return [{"name": call["name"], "arguments": call.get("arguments")}]
    calls = row.get("calls", [] if kind == "none" else None)
    if kind == "none" and (calls != [] or "name" in row):
        raise Refused("format", "a request that no tool can do has a call")
    if not isinstance(calls, list) or not all(isinstance(call, Mapping) for call in calls):
        raise Refused("format", "there is no list of calls")
    if kind != "none" and not 2 <= len(calls) <= most:
        raise Refused("format", f"there must be two to {most} calls, not {len(calls)}")
    return [{"name": call.get("name"), "arguments": call.get("arguments")} for call in calls]


def _malformed(call: Call, kind: Kind, shown: Mapping[str, Api]) -> str | None:
    name, arguments = call["name"], call["arguments"]
    if not isinstance(name, str) or name not in shown:
        return f"the call names {json.dumps(name)[:60]}, which was not shown"
    if not isinstance(arguments, dict):
        return "the arguments are not an object"
    try:
        if find_references(arguments) and kind != "chain":
            return "the arguments refer to another call, but this is not a chain"
        return find_misfit(fill_references(arguments, lambda one: UNKNOWN), shown[name].schema)
    except ValueError as error:
        return str(error)


def resolve_call(call: Call, api: Api, question: str, results: list[Any]) -> Call:
    """A call of a chain with references replaced by values from the results of earlier calls.

    Raises Refused("reference") if a value is missing, does not fit, or was made up.
    """
    try:
        arguments = fill_references(call["arguments"], lambda one: resolve_reference(one, results))
    except LookupError as error:
        raise Refused("reference", str(error.args[0])) from None
    if reason := find_misfit(arguments, api.schema) or (
        find_made_up(call, api, question, results) if results else None
    ):
        raise Refused("reference", reason)
    return {"name": call["name"], "arguments": arguments}


class Duplicates:
    """Detects rows like those kept or refused before. The order of independent calls does not matter."""

    def __init__(self, similar: float):
        self.similar = similar
        self.words: list[frozenset[str]] = []
        self.calls: set[str] = set()
        self.seen: set[str] = set()  # refused rows, too: nothing is checked twice

    def known(self, draft: Draft) -> bool:
        """Return True if a similar question or the same calls were kept, or both were checked before. Records the draft
        as checked."""
        seen = canonical([sorted(draft.words), self._key(draft.kind, draft.calls)])
        known = seen in self.seen or self.has(draft.kind, draft.calls)
        self.seen.add(seen)
        return known or any(compute_overlap(draft.words, words) >= self.similar for words in self.words)

    def has(self, kind: Kind, calls: list[Call]) -> bool:
        return bool(calls) and self._key(kind, calls) in self.calls

    def keep(self, draft: Draft, calls: list[Call]) -> None:
        """Record a kept row. calls: with values in place of references."""
        self.words.append(draft.words)
        self.calls |= {self._key(draft.kind, draft.calls), self._key(draft.kind, calls)}

    def _key(self, kind: Kind, calls: list[Call]) -> str:
        written = [canonical(call) for call in calls]
        return canonical(sorted(written) if kind == "parallel" else written)


def compute_overlap(a: frozenset[str], b: frozenset[str]) -> float:
    """The number of shared words divided by the number of all words (Jaccard)."""
    return len(a & b) / len(a | b) if a or b else 1.0
