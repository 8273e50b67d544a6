"""The services for a running node, and the record of its actions as a span of the trace.

Everything with an effect goes through `Context`, and is therefore replayable, billed and traced.
One file: each method is one service.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from workbench.base.hashing import digest
from workbench.base.type_guards import copied
from workbench.errors import BudgetSpent, LMError, NodeError, ServerDead, SpecError, StoreError, WorkbenchError
from workbench.ledger import Ledger, Settled
from workbench.lm import Message, Request, Response
from workbench.runtime.clock import NodeClock
from workbench.runtime.draw import FIRST_DRAW, Draw
from workbench.runtime.embedding import Vector
from workbench.runtime.requests import make_request
from workbench.runtime.row import RowScope
from workbench.runtime.runtime import S
from workbench.spec import LMSpec, PolicySpec
from workbench.workflow import CallRecord, EffectRecord, NodeKind, Span, Trace

if TYPE_CHECKING:
    from workbench.runtime.program import Program


class Begun(NamedTuple):
    """A call that has begun: its number in its span, its position in the trace, and the time."""

    number: int
    at: int
    seconds: float


class Context:
    """The services for a running node.

    Args:
        program: the workflow.
        example: the id of the example.
        trace: receives the node's span.
        node: its path, e.g. `vote.of`.
        draw: the replicas of its calls.
        policies: those of the enclosing workflow files, in addition to the run's own.
        clocks: those of the enclosing nodes.
        row: state shared by all nodes of the row.
    """

    def __init__(
        self,
        program: Program,
        example: str,
        trace: Trace,
        node: str,
        draw: Draw = FIRST_DRAW,
        policies: tuple[PolicySpec, ...] = (),
        clocks: tuple[NodeClock, ...] = (),
        row: RowScope | None = None,
    ):
        self.program, self.example, self.trace, self.node = program, example, trace, node
        self.draw, self.policies, self.row = draw, policies, row or RowScope()
        self._span: Span | None = None
        self._effects = 0
        self._task_calls = Counter[int]()  # by replica
        self._children = Counter[int]()  # by replica
        self._begun: list[int] = []  # numbers of the span's calls, in the order of their starts
        self._calls = 0
        self._failed: list[tuple[str, str]] = []  # key and role of calls without an answer
        self.clocks = (*clocks, NodeClock())

    @property
    def span(self) -> Span:
        assert self._span is not None
        return self._span

    @property
    def restricted(self) -> bool:
        """Return True if a policy can refuse a call here."""
        return any(policy.restricts for policy in (self.program.runtime.policy, *self.policies))

    def note(self, **values: Any) -> None:
        """Record values on the span, e.g. that a fallback parsed the answer."""
        self.span.notes.update(values)

    def step(self, state: str, earned: float) -> None:
        """Mark the span's latest call as a step in an environment. Training assigns credit by it (GiGPO).

        state: a name of the state before the step, equal for equal states. earned: its reward.
        """
        call = self.span.calls[-1]
        call.state, call.earned = state, earned

    async def run_node(self, node: NodeKind, inputs: Mapping[str, Any], agent: str | None = None) -> Mapping[str, Any]:
        """Run a node under its own span, and turn its errors into a NodeError with a kind."""
        span = Span(self.node, type(node).__name__, inputs, agent=agent, order=self.draw.order, at=self.trace.tick())
        span.began = time.time()
        self.trace.spans.append(span)
        self._span = span
        try:
            outputs = copied(await self._outputs_of(node, copied(inputs)))  # user code may change or keep them
            if not isinstance(outputs, Mapping):
                raise TypeError(f"the node gave {type(outputs).__name__}, not a mapping of its outputs")
            span.outputs = outputs
            return outputs
        except NodeError as error:
            error.node = error.node or self.node
            span.error = f"{error.kind}: {error}"
            raise
        except LMError as error:
            if error.kind == "auth":
                raise
            span.error = f"{error.kind}: {error}"
            raise NodeError(error.kind, str(error), node=self.node) from error
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            if ends_run(error, self.program.runtime.ledger):
                raise
            span.error = f"code: {type(error).__name__}: {error}"
            raise NodeError("code", f"{type(error).__name__}: {error}", node=self.node) from error
        finally:
            span.seconds, span.queued = self.clocks[-1].read()

    async def _outputs_of(self, node: NodeKind, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        return await node.run(inputs, self)

    async def run_child(
        self,
        node: NodeKind,
        name: str,
        inputs: Mapping[str, Any],
        replica: int = 0,
        agent: str | None = None,
        policy: PolicySpec | None = None,
        place: int | None = None,
    ) -> Mapping[str, Any]:
        """Run a node inside this one. Different replicas draw fresh samples.

        agent: its name among several. policy: applies inside it, in addition to the enclosing ones. place: its position
        among the replica's children, required if several may begin at once; default: the order of their starts.
        """
        policies = self.policies if policy is None else (*self.policies, policy)
        draw = self.draw.child(replica, self._children[replica] if place is None else place)
        self._children[replica] += 1
        path = f"{self.node}.{name}"
        child = type(self)(self.program, self.example, self.trace, path, draw, policies, self.clocks, self.row)
        return await child.run_node(node, inputs, agent)

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        lm: LMSpec | None = None,
        replica: int = 0,
        role: str = "task",
        **settings: Any,
    ) -> Response:
        """Ask the node's language model. Settings are those of `workbench.lm.Request`.

        Raises LMError if all attempts failed, BudgetSpent at the ceiling. A refused, empty or cut answer is returned
        with its `finish`: the node decides how to treat it. Its thoughts are separated from its text; the trace stores
        both unchanged.
        """
        spec = lm or self.program.runtime.lm_spec(role, self.program.workflow)
        number = self._task_calls[replica]
        if role == "task":
            self._task_calls[replica] += 1
        else:
            number = max(0, number - 1)  # it belongs to the preceding call of the task
        return await self._ask(self._begin_call(), spec, role, messages, self.draw.of_call(number, replica), settings)

    async def _ask(
        self,
        begun: Begun,
        spec: LMSpec,
        role: str,
        messages: Sequence[Message],
        replica: int,
        settings: Mapping[str, Any],
    ) -> Response:
        runtime = self.program.runtime
        request = make_request(spec, messages, replica, settings)
        sent = runtime.fit(spec, request)
        if self.row.writer == self.node and role == "task":
            sent = replace(sent, pieces=self.row.pieces)
        try:
            response, paid = await runtime.complete(spec, sent, role)
        except LMError as error:
            if error.key:
                self._failed.append((error.key, role))
            raise
        most = (sent.max_tokens, paid.max_usd, spec.attempts * spec.timeout)
        self._record(begun, _call_record(request, response, role, spec.model, paid, most))
        return response.without_thoughts()

    async def samples(self, messages: Sequence[Message], count: int, **settings: Any) -> list[Response]:
        """Draw `count` answers to one prompt: replicas 0, 1, ..., in order, sent at once. Settings as in `complete`.

        Errors are raised after all draws have ended: those in flight are paid for, so they are recorded. An error that
        ends the run takes precedence; otherwise the error of the lowest replica is raised.
        """
        draws = [self.complete(messages, replica=index, **settings) for index in range(count)]
        outcomes = await asyncio.gather(*draws, return_exceptions=True)
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if errors:
            raise next((e for e in errors if ends_run(e, self.program.runtime.ledger)), errors[0])
        return cast(list[Response], outcomes)

    def _begin_call(self) -> Begun:
        self._calls += 1
        return Begun(self._calls, self.trace.tick(), time.perf_counter())

    def _record(self, begun: Begun, record: CallRecord) -> None:
        """Insert the call in the order of starts, not of answers."""
        record.number, record.at = begun.number, begun.at
        record.began = time.time() - (time.perf_counter() - begun.seconds)
        for clock in self.clocks:
            clock.add_call(begun.seconds, record.queued)
        place = bisect(self._begun, begun.number)
        self._begun.insert(place, begun.number)
        self.span.calls.insert(place, record)

    async def embed(self, texts: Sequence[str], lm: LMSpec, role: str = "task") -> list[Vector]:
        """Return a vector for each text. Raises as `complete`, and SpecError for a model that cannot embed."""
        begun = self._begin_call()
        vectors, paid = await self.program.runtime.embedder(lm, role)(texts)
        for messages, call in paid:
            assert call.response is not None
            seen = replace(call.response, text=f"({len(messages)} vectors)")
            most = (0, call.usd, lm.attempts * lm.timeout)
            record = _call_record(Request(messages), seen, role, lm.model, call, most)
            self._record(begun, record)
            record.number = 0  # not a step: vectors are not repaired
        return vectors

    async def sandboxed(
        self,
        source: str,
        function: str,
        arguments: Mapping[str, Any],
        *,
        timeout: float = 5.0,
        large: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Run code in the sandbox, once for this position in this example. Returns the fields of SandboxResult.

        large: further arguments, stored in journal and trace only as a hash.
        """

        async def run() -> dict[str, Any]:
            sandbox = await self.program.runtime.sandbox()
            return asdict(await sandbox.call(source, function, {**arguments, **(large or {})}, timeout=timeout))

        hashed = {name: digest(value) for name, value in (large or {}).items()}
        return await self.effect("code", [source, function, {**arguments, **hashed}], run)

    async def shared(self, name: str, open_it: Callable[[], Awaitable[S]]) -> S:
        """Return an object that all examples share, e.g. a server: opened at first use, closed with the run."""
        return await self.program.runtime.shared(name, open_it)

    async def recorded(self, kind: str, content: Any, run: Callable[[], Awaitable[Any]]) -> Any:
        """Run something that makes calls on its own, e.g. a foreign program, once for this position in this example.
        Its result must be JSON.

        A replay takes result and calls from the journal and does not run it again, since it might make other calls the
        second time.
        """
        begun, failed, ran = len(self.span.calls), len(self._failed), False

        async def whole() -> dict[str, Any]:
            nonlocal ran
            ran = True
            result = await run()
            made = [call for call in self.span.calls[begun:] if call.key]
            calls = [
                [c.key, c.role, c.lm, None if c.number else c.response.text, c.max_tokens, c.max_usd, c.max_seconds]
                for c in made
            ]
            return {"result": result, "calls": calls, "failed": self._failed[failed:]}

        found = await self.effect(kind, content, whole)
        if not ran:
            await self._recall(found)
        return found["result"]

    async def _recall(self, recorded: Mapping[str, Any]) -> None:
        """Count and trace the calls of a recorded run."""
        ledger = self.program.runtime.ledger
        for key, role in recorded["failed"]:
            await ledger.recall(key, role)
        for key, role, model, vectors, *most in recorded["calls"]:
            paid, asked = await ledger.recall(key, role)
            if paid is None or paid.response is None or asked is None:
                raise StoreError(f"the call {key[:16]} is lost, which a recorded run of node '{self.node}' made")
            request = Request(tuple(asked["request"]["messages"]), tools=tuple(asked["request"].get("tools", ())))
            response = paid.response if vectors is None else replace(paid.response, text=vectors)
            record = _call_record(request, response, role, model, paid, most)
            self._record(self._begin_call(), record)
            if vectors is not None:
                record.number = 0  # as in `embed`

    async def effect(self, kind: str, content: Any, run: Callable[[], Awaitable[Any]]) -> Any:
        """Run a tool or another effect once for this position in this example. Its result must be JSON."""
        self._effects += 1
        record = EffectRecord(kind, content, time.time(), replayed=True)
        self.span.effects.append(record)

        async def timed() -> Any:
            record.replayed = False
            return await run()

        try:
            record.result = await self.program.runtime.ledger.effect(kind, [content, self._place_of_effect()], timed)
            return record.result
        except BaseException as error:
            record.error = type(error).__name__
            raise
        finally:
            record.seconds = time.time() - record.began

    def _place_of_effect(self) -> list[Any]:
        return [self.program.workflow.hash, self.example, self.node, self.draw.replica, self._effects]

    def received(self, tool: str, result: Any) -> Any:
        """Return a tool's result as it reaches the node. A variation of the run may have inserted something."""
        return result

    async def shared_effect(self, kind: str, content: Any, run: Callable[[], Awaitable[Any]]) -> Any:
        """Run an effect with this content once in the whole run, for all callers (`Runtime.shared_effect`). Read from
        its result inside `effect`, so that a resumed run reads the same at this position."""
        return await self.program.runtime.shared_effect(kind, content, run)


def _call_record(
    request: Request, response: Response, role: str, model: str, paid: Settled, most: Sequence[Any]
) -> CallRecord:
    """Make the record of a call. most: its max_tokens, max_usd and max_seconds."""
    cost = (paid.cached, paid.usd, paid.seconds, paid.queued)
    asked = {"tools": request.tools, "response_format": request.response_format}
    asked |= dict(zip(("max_tokens", "max_usd", "max_seconds"), most, strict=True))
    # The journal has what passed unchanged.
    return CallRecord(request.messages, replace(response, native=None), role, model, *cost, key=paid.key, **asked)


def is_cancelled() -> bool:
    """Return True if the running task was cancelled. Otherwise a CancelledError is a bug of the code that raised it."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def ends_run(error: BaseException, ledger: Ledger) -> bool:
    """Return True if an error ends the run, not only the example: a ceiling, a dead server, a stop."""
    if isinstance(error, asyncio.CancelledError):
        return is_cancelled()
    of_the_run = (BudgetSpent, StoreError, ServerDead, SpecError)
    return isinstance(error, of_the_run) or (isinstance(error, WorkbenchError) and ledger.stopping is error)
