"""Rows for tool calls: a model writes questions with calls, and only what passes all checks is kept.

Sources: APIGen (Liu et al., arXiv 2406.18518): sampled tools and questions, checks of format, execution and meaning,
in this order; GOAT (arXiv 2510.12218): from documents of tools alone. Departures: one call a row; a judge is asked only
on request; rows are drawn for the tool with the fewest kept ones, so that none is left out.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from workbench.errors import BudgetSpent, LMError, NodeError
from workbench.export import write_whole
from workbench.ledger import Ledger
from workbench.loop import run_course
from workbench.runtime import LMPool, Runtime, make_request
from workbench.store import RunLock, Store, dumps, now
from workbench.workflow import digest
from workbench_synth.apis import Api, load_apis, misfit
from workbench_synth.settings import Synthesis, load_synthesis

_WRITE = """\
You write training rows for a model that calls tools. Write {count} different requests that a user could make and that
one call of the tool `{tool}` answers, each with that call. Say in the request every value that the call needs, in
everyday words, without naming the tool. One JSON object a line and nothing else:
{{"question": "...", "name": "{tool}", "arguments": {{...}}}}"""
_JUDGE = """\
A user asked a question, and a tool was called. Does this one call do what was asked, with no argument made up and none
wrong? Answer with one line: `verdict: yes` or `verdict: no`."""

#: Why a row was not kept, in the order of the checks.
REASONS = ("unanswered", "unreadable", "format", "duplicate", "failed", "judge")


@dataclass
class Found:
    """What a synthesis gave. rejected: counts by reason."""

    status: str = "finished"
    rows: list[dict[str, Any]] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)  # of each reason, the first
    requests: int = 0
    spent: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {"status": self.status, "rows": len(self.rows), "requests": self.requests,
                "rejected": {reason: self.rejected[reason] for reason in REASONS}, "examples": self.examples,
                "spent": self.spent}  # fmt: skip

    def reject(self, reason: str, why: str) -> None:
        self.rejected[reason] += 1
        self.examples.setdefault(reason, why[:300])


def synthesize(path: Path, *, database: str = "workbench.db", changes: Mapping[str, Any] | None = None,
               pool: LMPool | None = None, out: Path | None = None) -> Found:  # fmt: skip
    """Rows for the tools of a file, at most as many as it wants and as the budget pays for.

    changes: settings in place of those of the file (rows, seed, budget). The same settings on the same database go on
    with a synthesis that was killed: what was paid for answers from the journal. out: where rows are written before the
    synthesis counts as done. Raises SpecError and StoreError.
    """
    spec, source = load_synthesis(path)
    spec = Synthesis.model_validate({**spec.model_dump(), **(changes or {})})
    base = path.resolve().parent
    apis = load_apis(spec.apis, spec.tools, base)
    settings = dumps(
        {"file": str(path.resolve()), "changes": dict(changes or {}), "apis": digest([a.as_dict() for a in apis])}
    )
    store = Store(database)
    try:
        run_id, run, earlier = _run_of(store, spec, source.text, settings)
        with RunLock(store, run):
            ledger = Ledger(store, run_id, spec.budget, earlier_seconds=earlier)
            found = run_course(_Course(spec, apis, base, ledger, pool).go())
            if out is not None and found.rows:  # what a file holds is worth more than nothing
                write_rows(found.rows, out)
            store.execute(
                "update runs set status = ?, finished = ? where id = ?", f"synthesized ({found.status})", now(), run_id
            )
            return found
    finally:
        store.close()


def _run_of(store: Store, spec: Synthesis, text: str, settings: str) -> tuple[int, str, float]:
    """(row, name, seconds so far) of the synthesis with these settings that did not end, or of a new one."""
    row = store.row(
        "select id, run, seconds from runs where status = 'synthesizing' and spec = ? and options = ? order by id desc",
        text, settings,
    )  # fmt: skip
    if row is not None:
        return row["id"], row["run"], row["seconds"] or 0.0
    run = secrets.token_hex(4)
    cursor = store.execute(
        "insert into runs (run, name, status, started, spec, options, seed) values (?, ?, 'synthesizing', ?, ?, ?, ?)",
        run, spec.name, now(), text, settings, spec.seed,
    )  # fmt: skip
    assert cursor.lastrowid is not None
    return cursor.lastrowid, run, 0.0


class _Course:
    """One synthesis. Requests are sent in rounds and read in their order, so that a replay keeps the same rows."""

    def __init__(self, spec: Synthesis, apis: Sequence[Api], base: Path, ledger: Ledger, pool: LMPool | None):
        self.spec, self.apis, self.base, self.ledger = spec, {a.name: a for a in apis}, base, ledger
        self.runtime = Runtime(ledger, spec.lm, spec.roles, pool=pool or LMPool())
        self.rng, self.found = random.Random(f"synthesis {spec.seed}"), Found()
        self.kept_by: Counter[str] = Counter({a.name: 0 for a in apis})
        self.asked_by: Counter[str] = Counter({a.name: 0 for a in apis})
        self.words: list[frozenset[str]] = []
        self.calls: set[str] = set()
        self.seen: set[str] = set()  # also what was refused: nothing is checked twice

    async def go(self) -> Found:
        try:
            while len(self.found.rows) < self.spec.rows:
                requests = [self._request() for _ in range(self._wanted())]
                answers = await asyncio.gather(
                    *(self._ask("proposer", *r[:2]) for r in requests), return_exceptions=True
                )
                self.ledger.store.write(
                    "update runs set seconds = ? where id = ?", self.ledger.seconds, self.ledger.run_id
                )
                for (_, number, api, shown), answer in zip(requests, answers, strict=True):
                    if isinstance(answer, BaseException):
                        raise answer
                    await self._read(answer, number, api, shown)
        except BudgetSpent:
            self.found.status = "budget"
        finally:
            await self.runtime.aclose()
            self.ledger.close()
        self.found.spent = self.ledger.summary()
        return self.found

    def _wanted(self) -> int:
        """Requests of a round: no more than could be needed, nor than the budget has calls for."""
        left = self.ledger.remaining("calls")
        if left < 1:
            raise BudgetSpent("calls", self.spec.budget.calls or 0, 1)
        missing = -(-(self.spec.rows - len(self.found.rows)) // self.spec.each)
        return int(min(self.spec.concurrency, missing, left))

    def _request(self) -> tuple[list[dict[str, str]], int, Api, list[Api]]:
        """(messages, number, tool that is wanted, tools that are shown): the tool with the fewest rows comes first."""
        fewest = min((self.kept_by[n], self.asked_by[n]) for n in self.apis)
        name = self.rng.choice([n for n in self.apis if (self.kept_by[n], self.asked_by[n]) == fewest])
        self.asked_by[name] += 1
        others = [a for n, a in self.apis.items() if n != name]
        shown = [self.apis[name], *self.rng.sample(others, min(self.spec.shown - 1, len(others)))]
        told = self.rng.sample(self.spec.questions, min(2, len(self.spec.questions)))
        text = "Tools:\n" + "\n".join(json.dumps(a.as_dict(), ensure_ascii=False) for a in shown)
        if told:
            text += "\nQuestions of the kind that is wanted:\n" + "\n".join(f"- {q}" for q in told)
        self.found.requests += 1
        system = _WRITE.format(count=self.spec.each, tool=name)
        messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
        return messages, self.found.requests, self.apis[name], shown

    async def _ask(self, role: str, messages: list[dict[str, str]], replica: int) -> str | None:
        spec = self.runtime.lm_spec(role)
        heat = self.spec.temperature if role == "proposer" else 0.0
        request = make_request(spec, messages, replica, {"temperature": heat, "max_tokens": self.spec.max_tokens})
        try:
            return (await self.runtime.complete(spec, request, role))[0].text
        except LMError as error:
            if error.kind == "auth":
                raise
            self.found.reject("unanswered", str(error))
            return None

    # Checks

    async def _read(self, text: str | None, number: int, api: Api, shown: Sequence[Api]) -> None:
        written = list(objects_in(text or ""))
        if text is not None and not written:
            self.found.reject("unreadable", text)
        for row in written:
            if len(self.found.rows) >= self.spec.rows:
                return
            question, name, arguments = row.get("question"), row.get("name"), row.get("arguments")
            if reason := self._malformed(question, name, arguments, shown):
                self.found.reject("format", reason)
                continue
            assert isinstance(question, str) and isinstance(name, str) and isinstance(arguments, dict)
            call = {"name": name, "arguments": arguments}
            words = frozenset(re.findall(r"\w+", question.lower()))
            seen = dumps([sorted(words), call])
            if (
                seen in self.seen
                or dumps(call) in self.calls
                or any(overlap(words, w) >= self.spec.similar for w in self.words)
            ):
                self.found.reject("duplicate", question)
                continue
            self.seen.add(seen)
            outcome = await self._execute(self.apis[name], arguments)
            if "error" in outcome:
                self.found.reject("failed", f"{dumps(call)}: {outcome['error']}")
                continue
            if self.spec.judge and not await self._judged(question, call, outcome):
                self.found.reject("judge", f"{question} -> {dumps(call)}")
                continue
            self._keep(question, call, outcome, words, number, shown)

    def _malformed(self, question: Any, name: Any, arguments: Any, shown: Sequence[Api]) -> str | None:
        if not isinstance(question, str) or not question.strip():
            return "there is no question"
        if not isinstance(name, str) or name not in {a.name for a in shown}:
            return f"the call names {json.dumps(name)[:60]}, which was not shown"
        if not isinstance(arguments, dict):
            return "the arguments are no object"
        return misfit(arguments, self.apis[name].schema)

    async def _execute(self, api: Api, arguments: dict[str, Any]) -> dict[str, Any]:
        """{"value": ...} or {"error": ...}; {} for a tool that is only described. Journalled."""
        if api.tool is not None:
            tool = api.tool

            async def run() -> dict[str, Any]:
                try:
                    return {"value": await tool(arguments)}
                except NodeError as error:
                    return {"error": str(error)}

            return await self.ledger.effect("tool", [tool.source, arguments], run)
        if not api.source:
            return {}

        async def boxed() -> dict[str, Any]:
            sandbox = await self.runtime.sandbox()
            return asdict(await sandbox.call(api.source, api.name, arguments))

        found = await self.ledger.effect("code", [api.source, api.name, arguments], boxed)
        return {"value": found["value"]} if found["kind"] == "ok" else {"error": f"{found['kind']}: {found['message']}"}

    async def _judged(self, question: str, call: dict[str, Any], outcome: dict[str, Any]) -> bool:
        text = f"Tool: {json.dumps(self.apis[call['name']].as_dict())}\nQuestion: {question}\nCall: {dumps(call)}"
        if "value" in outcome:
            text += f"\nResult: {dumps(outcome['value'])[:1000]}"
        said = await self._ask("judge", [{"role": "system", "content": _JUDGE}, {"role": "user", "content": text}], 0)
        found = re.findall(r"(?i)verdict\s*:\W*(yes|no)", said or "")
        return bool(found) and found[-1].lower() == "yes"

    def _keep(self, question: str, call: dict[str, Any], outcome: dict[str, Any], words: frozenset[str], number: int,
              shown: Sequence[Api]) -> None:  # fmt: skip
        self.words.append(words)
        self.calls.add(dumps(call))
        self.kept_by[call["name"]] += 1
        checks = ["format", *(["execution"] if "value" in outcome else []), *(["judge"] if self.spec.judge else [])]
        self.found.rows.append({
            "id": f"{self.spec.name}-{digest([question, call])[:12]}", "question": question, "calls": [call],
            "tools": [a.as_dict() for a in sorted(shown, key=lambda a: a.name)],
            **({"result": outcome["value"]} if "value" in outcome else {}),
            "source": {"made_by": self.runtime.lm_spec("proposer").model, "request": number, "seed": self.spec.seed,
                       "checks": checks},
        })  # fmt: skip


def objects_in(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects that stand in a text, whatever stands around them; of nested ones the outermost."""
    decoder, place = json.JSONDecoder(), text.find("{")
    while place != -1:
        try:
            value, end = decoder.raw_decode(text, place)
        except (json.JSONDecodeError, RecursionError):
            end = place + 1
        else:
            yield value
        place = text.find("{", end)


def overlap(a: frozenset[str], b: frozenset[str]) -> float:
    """Words of both, over words of either."""
    return len(a & b) / len(a | b) if a or b else 1.0


def write_rows(rows: Sequence[Mapping[str, Any]], out: Path) -> None:
    """Write the rows whole or not at all."""
    write_whole(out, "".join(dumps(row) + "\n" for row in rows))
