"""Rows for tool calls: a model writes questions with calls, and only rows that pass all checks are kept.

Sources: APIGen (Liu et al., arXiv 2406.18518): sampled tools and questions; checks of format, execution and meaning, in
this order. GOAT (arXiv 2510.12218): rows from tool documents only, with dependent calls. Departures: a judge is asked
only on request, to save its calls; and rows are requested for the tool with the fewest so far, so that all tools are
covered.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from workbench.base.concurrency import run_in_loop
from workbench.base.files import write_whole
from workbench.base.hashing import digest
from workbench.errors import BudgetSpent, LMError, NodeError, ServerDead, SpecError
from workbench.kit.acting import check_call, schema_defaults
from workbench.kit.answers import read_objects
from workbench.ledger import Ledger
from workbench.lm import LMPool
from workbench.runtime import Runtime, make_request
from workbench.spec import PolicySpec, Source
from workbench.store import RunLock, RunRecord, Store, add_run, dumps, find_started_run, new_run_name
from workbench_synthesize.apis import Api, load_apis
from workbench_synthesize.chains import Links
from workbench_synthesize.checks import Call, Draft, Duplicates, Refused, read_draft, resolve_call
from workbench_synthesize.failures import Failed, load_failed, split_question
from workbench_synthesize.requests import APPROVED, Messages, Request, Requests, build_judge_messages
from workbench_synthesize.settings import Synthesis, load_synthesis

#: Unanswered requests, without an answered one, that end a synthesis: the server is unreachable.
HOPELESS = 8
#: Why a row was not kept, in the order of the checks.
REASONS = ("unanswered", "unreadable", "format", "duplicate", "reference", "policy", "failed", "judge")


@dataclass
class Found:
    """The result of a synthesis. rejected: counts by reason."""

    status: str = "finished"
    rows: list[dict[str, Any]] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)  # the first one, by reason
    requests: int = 0
    spent: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "rows": len(self.rows),
            "requests": self.requests,
            "kinds": dict(Counter(row["source"]["kind"] for row in self.rows)),
            "rejected": {reason: self.rejected[reason] for reason in REASONS},
            "examples": self.examples,
            "spent": self.spent,
        }

    def reject(self, reason: str, why: str) -> None:
        self.rejected[reason] += 1
        self.examples.setdefault(reason, why[:300])


def synthesize(
    path: Path | Source,
    *,
    database: str = "workbench.db",
    changes: Mapping[str, Any] | None = None,
    pool: LMPool | None = None,
    out: Path | None = None,
    on_progress: Callable[[Found, int], None] | None = None,
    run_tools: bool = False,
) -> Found:
    """Write rows for the tools of a file, until there are enough or the budget ends.

    The same settings on the same database continue a synthesis that was killed: the journal answers paid calls.

    Args:
        path: the settings file, or one that was read before.
        database: path of the run database.
        changes: settings that replace those of the file (rows, seed, budget; failures: the run).
        pool: language models in place of those of the plugins, for tests.
        out: file for the rows, written before the synthesis counts as done.
        on_progress: called after each round of requests with the result so far and the number of rows to write.
        run_tools: allow callables to run although the file has no policy.

    Raises:
        SpecError: the file, its tools or the failed run are wrong.
        StoreError: the database cannot be used.
    """
    spec, source = load_synthesis(path)
    spec, file = _changed(spec, changes or {}), Path(source.file).resolve()
    apis = load_apis(spec.apis, spec.tools, file.parent, spec.env)
    if not run_tools:
        with source.locating():
            _check_callables(spec, apis)
    with source.locating():
        _check_chains(spec, apis)
    failed = load_failed(spec.failures, file.parent, database, [a.name for a in apis]) if spec.failures else None
    settings = {
        "file": str(file),
        "changes": dict(changes or {}),
        "apis": digest([[a.as_dict(), a.returns] for a in apis]),
        "failed": failed and failed.digest,
        **({"run_tools": True} if run_tools else {}),
    }
    store = Store(database)
    try:
        run_id, run, earlier = _run_of(store, spec, source.text, dumps(settings))
        with RunLock(store, run):
            ledger = Ledger(store, run_id, spec.budget, earlier_seconds=earlier)
            found = run_in_loop(_Course(spec, apis, ledger, pool, failed, on_progress).go())
            if out is not None and found.rows:  # an empty result must not replace an earlier file
                write_rows(found.rows, out)
            RunRecord(store, run_id).end(f"synthesized ({found.status})")
            return found
    finally:
        store.close()


def _changed(spec: Synthesis, changes: Mapping[str, Any]) -> Synthesis:
    given = dict(changes)
    if spec.failures and "failures" in given:
        given["failures"] = {**spec.failures.model_dump(), "run": given["failures"]}
    if "budget" in given:  # the file's other ceilings stay
        given["budget"] = {**spec.budget.model_dump(exclude_none=True), **given["budget"]}
    try:
        # Unset fields must stay unset: conditions of a policy depend on it.
        return Synthesis.model_validate({**spec.model_dump(exclude_unset=True), **given})
    except ValidationError as error:
        first = error.errors()[0]
        raise SpecError(
            f"{'.'.join(map(str, first['loc']))}: {first['msg']}", hint="It comes from the command line."
        ) from None


def _run_of(store: Store, spec: Synthesis, text: str, settings: str) -> tuple[int, str, float]:
    """(id, name, seconds so far) of the unfinished synthesis with these settings, or of a new one."""
    row = find_started_run(store, "synthesizing", text, settings)
    if row is not None:
        return row["id"], row["run"], row["seconds"] or 0.0
    run = new_run_name()
    run_id = add_run(store, run=run, name=spec.name, status="synthesizing", spec=text, options=settings, seed=spec.seed)
    return run_id, run, 0.0


def _check_callables(spec: Synthesis, apis: Sequence[Api]) -> None:
    """Raise SpecError for callables that may not run without permission. Code in the sandbox has no effects."""
    own = [api.name for api in apis if api.tool is not None]
    if own and spec.policy is None:
        raise SpecError(
            f"{', '.join(own)} would run for real, with arguments written by a model",
            path=("tools",),
            hint="Allow calls, e.g. policy: {default: deny, rules: [{allow: "
            + own[0]
            + "}]}, or give --run-tools to run "
            "them all. To describe tools without running them, put them under apis.",
        )


def _check_chains(spec: Synthesis, apis: Sequence[Api]) -> None:
    """Raise SpecError if chains are requested and a tool cannot run: only results show whether calls are connected."""
    if "chain" not in spec.kinds:
        return
    if idle := next((api.name for api in apis if not api.runs), None):
        raise SpecError(
            f"chains are checked by running them, but '{idle}' cannot run",
            path=("kinds",),
            hint=f"Add its Python under `source` in {spec.apis}, or a callable, tools: [python:FILE.py:{idle}], or "
            "remove chain from kinds.",
        )
    if not any(api.parameters for api in apis):
        raise SpecError(
            "no tool takes an argument, so none can follow another", hint="Remove chain from kinds.", path=("kinds",)
        )


class _Course:
    """A synthesis. Requests are sent in rounds and read in order, so that a replay keeps the same rows."""

    def __init__(
        self,
        spec: Synthesis,
        apis: Sequence[Api],
        ledger: Ledger,
        pool: LMPool | None,
        failed: Failed | None,
        on_progress: Callable[[Found, int], None] | None = None,
    ):
        self.spec, self.apis, self.ledger, self.failed = spec, {a.name: a for a in apis}, ledger, failed
        self.on_progress = on_progress or (lambda found, wanted: None)
        self.runtime = Runtime(ledger, spec.lm, spec.roles, pool=pool or LMPool())
        self.policies = [policy for policy in (spec.policy, failed and failed.policy) if policy] or [PolicySpec()]
        self.links, self.found, self.earlier = Links(apis), Found(), Duplicates(spec.similar)
        self.requests = Requests(spec, apis, failed, self.links)
        if failed:  # a copy of an existing row teaches nothing new
            self.earlier.words += [words for row in failed.rows if (words := split_question(row.question))]

    async def go(self) -> Found:
        try:
            while len(self.found.rows) < self.spec.rows:
                requests = [self.requests.next() for _ in range(self._wanted())]
                self.found.requests = self.requests.count
                answers = await asyncio.gather(
                    *(self._ask("proposer", r.messages, r.number) for r in requests), return_exceptions=True
                )
                RunRecord(self.ledger.store, self.ledger.run_id).save_seconds(self.ledger.seconds)
                for request, answer in zip(requests, answers, strict=True):
                    # Paid answers are read even if other requests failed.
                    if not isinstance(answer, BaseException):
                        await self._read(answer, request)
                self.on_progress(self.found, self.spec.rows)
                if not self.found.rows and self.found.rejected["unanswered"] >= HOPELESS:
                    self.found.status = "unanswered"
                    break
                if errors := [answer for answer in answers if isinstance(answer, BaseException)]:
                    raise next((e for e in errors if not isinstance(e, BudgetSpent)), errors[0])
        except BudgetSpent:
            self.found.status = "budget"
            try:
                self.ledger.bill.check_answered()
            except ServerDead as dead:
                self.found.status = "unanswered"
                self.found.reject("unanswered", str(dead))
        finally:
            await self.runtime.aclose()
            self.ledger.close()
        self.found.spent = self.ledger.summary()
        return self.found

    def _wanted(self) -> int:
        """The number of requests of a round, limited by missing rows and remaining calls. Raises BudgetSpent."""
        left = self.ledger.remaining("calls")
        if left < 1:
            raise BudgetSpent("calls", self.spec.budget.calls or 0, 1)
        missing = -(-(self.spec.rows - len(self.found.rows)) // self.spec.each)
        return int(min(self.spec.concurrency, missing, left))

    async def _ask(self, role: str, messages: Messages, replica: int) -> str | None:
        spec = self.runtime.lm_spec(role)
        heat = self.spec.temperature if role == "proposer" else 0.0
        request = make_request(spec, messages, replica, {"temperature": heat, "max_tokens": self.spec.max_tokens})
        try:
            return (await self.runtime.complete(spec, request, role))[0].without_thoughts().text
        except LMError as error:
            if error.kind == "auth":
                raise
            self.found.reject("unanswered", str(error))
            return None

    # Checks

    async def _read(self, text: str | None, request: Request) -> None:
        written = list(read_objects(text or ""))
        if text is not None and not written:
            self.found.reject("unreadable", text)
        for row in written:
            if len(self.found.rows) >= self.spec.rows:
                return
            try:
                await self._check(row, request)
            except Refused as refused:
                self.found.reject(refused.reason, refused.why)

    async def _check(self, row: Mapping[str, Any], request: Request) -> None:
        """Keep a row that passes all checks. Raises Refused."""
        shown = {api.name: api for api in request.shown}
        draft = read_draft(row, request.kind, shown, self.spec.most)
        if self.earlier.known(draft):
            raise Refused("duplicate", draft.question)
        calls, results = await self._run(draft)
        if self.earlier.has(draft.kind, calls):
            raise Refused("duplicate", draft.question)
        if self.spec.judge:
            answer = await self._ask(
                "judge", build_judge_messages(draft.kind, draft.question, calls, results, shown), 0
            )
            if answer is None:
                return  # counted as unanswered
            said = re.findall(r"(?i)verdict\s*:\W*(yes|no)", answer)
            if not said or said[-1].lower() != APPROVED[draft.kind]:
                raise Refused("judge", f"{draft.question} -> {dumps(calls)}")
        self._keep(draft, calls, results, request)

    async def _run(self, draft: Draft) -> tuple[list[Call], list[Any] | None]:
        """(calls with values in place of references, their results; None if a tool has no implementation).

        Raises Refused.
        """
        calls, outcomes = [], []
        for written in draft.calls if draft.kind != "chain" else ():
            await self._allowed(written)  # all calls, before the first one runs
        for place, written in enumerate(draft.calls):
            api, call = self.apis[written["name"]], written
            if draft.kind == "chain":
                call = resolve_call(written, api, draft.question, [outcome["value"] for outcome in outcomes])
                await self._allowed(call)
            outcome = await self._execute(api, call["arguments"])
            if "error" in outcome:
                where = f"call {place + 1}, " if len(draft.calls) > 1 else ""
                raise Refused("failed", f"{where}{dumps(call)}: {outcome['error']}")
            if "value" in outcome:
                self.links.see(api.name, outcome["value"])
            calls.append(call)
            outcomes.append(outcome)
        whole = bool(calls) and all("value" in outcome for outcome in outcomes)
        return calls, [outcome["value"] for outcome in outcomes] if whole else None

    async def _allowed(self, call: Call) -> None:
        """Raise Refused for a call that the policy forbids; `ask` counts as a refusal, since no user is present."""
        api = self.apis[call["name"]]
        defaults = api.tool.all_defaults if api.tool else schema_defaults(api.schema)
        try:
            await check_call(self.policies, call["name"], call["arguments"], None, self.ledger.effect, defaults)
        except NodeError as error:
            raise Refused("policy", f"{dumps(call)}: {error}") from None

    async def _execute(self, api: Api, arguments: dict[str, Any]) -> dict[str, Any]:
        """Run a call, journalled: {"value": ...} or {"error": ...}; {} for a tool without an implementation."""
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

    def _keep(self, draft: Draft, calls: list[Call], results: list[Any] | None, request: Request) -> None:
        self.earlier.keep(draft, calls)
        names = [call["name"] for call in calls]
        self.requests.kept_by.update(set(names) or {request.api.name})
        if draft.kind == "chain":
            self.links.prove(names, draft.calls)
        checks = ["format", *(["execution"] if results is not None else []), *(["judge"] if self.spec.judge else [])]
        source = {
            "made_by": self.runtime.lm_spec("proposer").model,
            "request": request.number,
            "seed": self.spec.seed,
            "kind": draft.kind,
            "checks": checks,
        }
        if self.failed and request.like:
            source["like"] = {"run": self.failed.run, "rows": list(request.like)}
        result = (
            {"result": results[0]} if draft.kind == "simple" and results else {"results": results} if results else {}
        )
        self.found.rows.append(
            {
                "id": f"{self.spec.name}-{digest([draft.question, *calls])[:12]}",
                "question": draft.question,
                "calls": calls,
                **({"template": draft.calls} if draft.kind == "chain" else {}),
                "tools": [a.as_dict() for a in sorted(request.shown, key=lambda a: a.name)],
                **result,
                "source": source,
            }
        )


def write_rows(rows: Sequence[Mapping[str, Any]], out: Path) -> None:
    """Write all rows or none."""
    write_whole(out, "".join(dumps(row) + "\n" for row in rows))
