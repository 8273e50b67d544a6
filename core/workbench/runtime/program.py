"""The runtime: runs a workflow on one example, and records what happened as a trace.

Everything with an effect goes through `Context`: that is what makes a run replayable, billed and traced.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any, cast

from workbench.errors import BudgetSpent, LMError, NodeError, ServerDead, SpecError, StoreError, WorkbenchError
from workbench.ledger import Ledger
from workbench.lm import Message, Request, Response
from workbench.runtime.embedding import Vector
from workbench.runtime.runtime import Runtime
from workbench.spec import LMSpec, PolicySpec
from workbench.task import Example
from workbench.workflow import CallRecord, ExampleRun, NodeKind, Schedule, Span, Trace, Workflow


class Program:
    """A workflow made ready to run: nodes, order, and the LM of each."""

    def __init__(self, workflow: Workflow, runtime: Runtime):
        self.workflow, self.runtime = workflow, runtime
        self.nodes = workflow.enabled_nodes
        self.schedule = Schedule(self.nodes, workflow.nodes, workflow.graph)

    @cached_property
    def max_calls(self) -> int:
        return self.workflow.max_calls

    @cached_property
    def places(self) -> dict[str, int]:
        """Nodes by the order in which they can run; where several can, that of the file decides."""
        return {name: place for place, name in enumerate(self.schedule.order)}

    async def run(self, example: Example, replica: int = 0, draws: Sequence[int] = ()) -> ExampleRun:
        """Run all nodes, independent ones at the same time. A failing node ends the example as a failure.

        draws: replicas of the calls by their places (`Context`), the last for all later ones; else `replica` for all.
        """
        trace, begun = Trace(example.id), time.perf_counter()
        written: dict[str, Mapping[str, Any]] = {}

        async def step(name: str, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
            context = Context(self, example.id, trace, name, replica, draws=draws, place=self.places[name])
            return await context.run_node(self.nodes[name], inputs)

        failure = message = None
        try:
            await self.schedule.run(step, example, written)
        except NodeError as error:
            failure, message = error.kind, f"node '{error.node}': {error}" if error.node else str(error)
        trace.spans.sort(key=lambda span: span.order)
        return ExampleRun(self.schedule.merged(written), trace, failure, message, time.perf_counter() - begun)


class Context:
    """What a running node may use. `node` is its path, e.g. `vote.of`. policies: of the files of workflows around it,
    which hold besides the run's own. draws: replicas of calls by their places. A call's place is that of its node
    (`Program.places`), and one more for each call of the task's role and of the same replica that the node made before:
    it does not depend on which of several is faster."""

    def __init__(
        self,
        program: Program,
        example: str,
        trace: Trace,
        node: str,
        replica: int = 0,
        policies: tuple[PolicySpec, ...] = (),
        draws: Sequence[int] = (),
        place: int = 0,
        order: tuple[int, ...] = (),
    ):
        self.program, self.example, self.trace, self.node, self.replica = program, example, trace, node, replica
        self.policies, self.draws, self.place, self.order = policies, draws, place, order or (place,)
        self._span: Span | None = None
        self._effects = 0
        self._asked = Counter[int]()
        self._children: dict[int, int] = {}  # by replica
        self._begun: list[int] = []  # of the calls in the span, the number of each by its begin
        self._calls = 0

    @property
    def span(self) -> Span:
        assert self._span is not None
        return self._span

    def note(self, **values: Any) -> None:
        """Record something on the span, e.g. that a fallback read the answer."""
        self.span.notes.update(values)

    def step(self, state: str, earned: float) -> None:
        """Say of the span's latest call that it was a step in an environment: the state that it was taken in, whose
        name is equal where states are, and what it earned. Training gives credit by it (GiGPO)."""
        call = self.span.calls[-1]
        call.state, call.earned = state, earned

    async def run_node(self, node: NodeKind, inputs: Mapping[str, Any], agent: str | None = None) -> Mapping[str, Any]:
        """Run a node under a span of its own, and turn whatever it raises into a NodeError with a kind."""
        span = Span(self.node, type(node).__name__, inputs, agent=agent, order=self.order)
        self.trace.spans.append(span)
        self._span, begun = span, time.perf_counter()
        try:
            outputs = await node.run(inputs, self)
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
            span.seconds = time.perf_counter() - begun

    async def run_child(
        self,
        node: NodeKind,
        name: str,
        inputs: Mapping[str, Any],
        replica: int = 0,
        agent: str | None = None,
        policy: PolicySpec | None = None,
    ) -> Mapping[str, Any]:
        """Run a node inside this one. Different replicas draw fresh samples. agent: who of several it is. policy: one
        that holds in it, too."""
        policies = self.policies if policy is None else (*self.policies, policy)
        before = self._children.get(replica, 0)
        self._children[replica] = before + 1
        child = Context(
            self.program,
            self.example,
            self.trace,
            f"{self.node}.{name}",
            self.replica * 1000 + replica,
            policies,
            [draw * 1000 + replica for draw in self.draws],
            self.place,
            (*self.order, replica, before),
        )
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

        Raises LMError if all attempts failed, BudgetSpent at the ceiling. A refused, empty or cut answer is
        returned with its `finish`: the node decides what it means.
        """
        runtime = self.program.runtime
        spec = lm or runtime.lm_spec(role, self.program.workflow)
        own = self.replica
        if self.draws:
            asked = self._asked[replica] if role == "task" else max(0, self._asked[replica] - 1)
            own = self.draws[min(self.place + asked, len(self.draws) - 1)]
            self._asked[replica] += role == "task"
        request = make_request(spec, messages, own * 1000 + replica, settings)
        begun = self._begin_call()
        response, paid = await runtime.complete(spec, request, role)
        record = CallRecord(request.messages, response, role, spec.model, paid.cached, paid.usd, paid.seconds)
        self._record(begun, record)
        return response

    async def samples(self, messages: Sequence[Message], count: int, **settings: Any) -> list[Response]:
        """So many draws for one prompt, the replicas 0, 1, ..., in this order. They do not depend on each other, so all
        are sent at once; settings are those of `complete`.

        All come to their end before an error is raised: what they have under way is paid, so it is recorded. An error
        that ends the run goes before one of a single draw; else the first counts, whoever was faster.
        """
        draws = [self.complete(messages, replica=index, **settings) for index in range(count)]
        outcomes = await asyncio.gather(*draws, return_exceptions=True)
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if errors:
            raise next((e for e in errors if ends_run(e, self.program.runtime.ledger)), errors[0])
        return cast(list[Response], outcomes)

    def _begin_call(self) -> int:
        self._calls += 1
        return self._calls

    def _record(self, begun: int, record: CallRecord) -> None:
        """Calls stand in the order in which they began, whichever was answered first."""
        at = bisect(self._begun, begun)
        self._begun.insert(at, begun)
        self.span.calls.insert(at, record)

    async def embed(self, texts: Sequence[str], lm: LMSpec, role: str = "task") -> list[Vector]:
        """A vector for each text. Raises as `complete` does, and SpecError for a model that cannot embed."""
        begun = self._begin_call()
        vectors, paid = await self.program.runtime.embedder(lm, role)(texts)
        for messages, call in paid:
            assert call.response is not None
            seen = replace(call.response, text=f"({len(messages)} vectors)")
            self._record(begun, CallRecord(messages, seen, role, lm.model, call.cached, call.usd, call.seconds))
        return vectors

    async def sandboxed(
        self, source: str, function: str, arguments: Mapping[str, Any], *, timeout: float = 5.0
    ) -> dict[str, Any]:
        """Run code in the sandbox, once for this place in this example. The fields of
        `workbench.runtime.sandbox.SandboxResult`."""

        async def run() -> dict[str, Any]:
            sandbox = await self.program.runtime.sandbox()
            return asdict(await sandbox.call(source, function, arguments, timeout=timeout))

        return await self.effect("code", [source, function, dict(arguments)], run)

    async def effect(self, kind: str, content: Any, run: Callable[[], Awaitable[Any]]) -> Any:
        """Run a tool or another effect once for this place in this example; its result must be JSON."""
        self._effects += 1
        where = [self.program.workflow.hash, self.example, self.node, self.replica, self._effects]
        return await self.program.runtime.ledger.effect(kind, [content, where], run)


def stopped() -> bool:
    """Whether the running task was told to stop: else a CancelledError is a fault of the code that raised it."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def ends_run(error: BaseException, ledger: Ledger) -> bool:
    """Whether an error is of the run, not of the example at hand: a ceiling, a server that is gone, a stop."""
    if isinstance(error, asyncio.CancelledError):
        return stopped()
    of_the_run = (BudgetSpent, StoreError, ServerDead, SpecError)
    return isinstance(error, of_the_run) or (isinstance(error, WorkbenchError) and ledger.stopping is error)


def make_request(spec: LMSpec, messages: Sequence[Message], replica: int, settings: Mapping[str, Any]) -> Request:
    """A Request with the LM's own defaults where the caller gives none. A replica is a fresh draw only where
    there is anything to draw: at temperature 0 every replica is the same call, and is paid once."""
    values = {k: v for k, v in settings.items() if v is not None}
    if spec.temperature is not None:
        values.setdefault("temperature", spec.temperature)
    if spec.max_tokens is not None:
        values.setdefault("max_tokens", spec.max_tokens)
    if not values.get("temperature"):
        replica = 0
    return Request(tuple(messages), replica=replica, **values)
