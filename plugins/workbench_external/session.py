"""A row behind the gateway: each request of its agent is patched, and asked through the ledger."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from workbench.errors import LMError, NodeError, WorkbenchError
from workbench.gateway import Ask, Refused
from workbench.hashing import digest
from workbench.kit.tools import Tool, check_policy, run_in_sandbox
from workbench.lm import Message, Response
from workbench.runtime import Context
from workbench.spec import LMSpec, lm_spec
from workbench_external.functions import OfferedFunctions

if TYPE_CHECKING:
    from workbench_external.config import ExternalConfig
    from workbench_external.slots.patches import Patched, Patches

#: What the APIs take where a request names no temperature.
_USUAL_TEMPERATURE = 1.0


def choose_settings(config: ExternalConfig, ask: Ask, patched: Patched, usual: LMSpec) -> tuple[LMSpec, dict[str, Any]]:
    """The model of a request, and how it is asked. What our settings name wins over what the agent named.

    usual: the model where the node names none.
    """
    chosen = patched.lm or config.models.get(ask.model) or config.lm
    spec, settings = lm_spec(chosen) if chosen else usual, dict(ask.settings)
    if (temperature := config.temperature if patched.temperature is None else patched.temperature) is not None:
        settings["temperature"] = temperature
    if settings.get("temperature") is None:
        settings["temperature"] = _USUAL_TEMPERATURE if spec.temperature is None else spec.temperature
    if patched.max_tokens is not None:
        settings["max_tokens"] = patched.max_tokens
    if settings.get("max_tokens") is None:
        settings["max_tokens"] = spec.max_tokens or config.max_tokens
    if patched.tools:
        settings["tools"] = tuple(patched.tools)
    if patched.response_format is not None:
        settings["response_format"] = patched.response_format
    return spec, settings


class RowSession:
    """The requests of one row.

    over: set when the row cannot go on; `error` then says why. last: the error of the last call that got no answer.
    """

    def __init__(
        self, config: ExternalConfig, patches: Patches, max_calls: int, inputs: Mapping[str, Any], ctx: Context
    ):
        self.config, self.patches, self.max_calls = config, patches, max_calls
        self.inputs, self.ctx, self.over = inputs, ctx, asyncio.Event()
        self.error: BaseException | None = None
        self.last: LMError | None = None
        self.asked, self.missed = 0, Counter[str]()
        self.models_asked = Counter[str]()
        self.functions = OfferedFunctions(config.functions, self._call_function)
        self._drawn = Counter[str]()  # answers drawn so far, by request
        self._left: dict[str, asyncio.Task[Sequence[Response]]] = {}  # whose client hung up before the answer
        self._tasks: set[asyncio.Task[Any]] = set()
        self._since, self._waited = 0.0, 0.0
        self._sequence: list[tuple[int, str, asyncio.Task[Any]]] = []

    async def complete(self, ask: Ask) -> Sequence[Response]:
        """The answers to a request.

        A client that hangs up does not cancel its call, which is paid for: the same request, sent again, gets its
        answer.
        """
        key = digest([ask.model, ask.messages, ask.tools, ask.settings, ask.samples])
        task = self._left.pop(key, None) or asyncio.ensure_future(self._complete(ask))
        self._follow(task)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                self._left[key] = task
            raise

    def _follow(self, task: asyncio.Task[Any]) -> None:
        if not self._tasks:
            self._since = time.monotonic()
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # of one whose client has hung up, nobody else takes note
        if not self._tasks:
            self._waited += time.monotonic() - self._since

    def waited(self) -> float:
        """Seconds in which a call was under way."""
        return self._waited + (time.monotonic() - self._since if self._tasks else 0.0)

    async def _complete(self, ask: Ask) -> Sequence[Response]:
        self._begin(ask)
        key = digest([ask.messages, ask.tools, ask.settings, ask.samples])
        first = self._drawn[key]
        self._drawn[key] += ask.samples
        self._record_sequence(digest([ask.model, key, first]))
        patched = self.patches.apply(ask, self.inputs)
        self.missed.update(patched.missed)
        with self._watched():
            return await asyncio.gather(*(self._answer(ask, patched, first + i) for i in range(ask.samples)))

    async def _answer(self, ask: Ask, patched: Patched, replica: int) -> Response:
        spec, settings = self._settings(ask, patched)
        if offered := self.functions.definitions(ask):
            settings["tools"] = (*patched.tools, *offered)

        async def complete(messages: Sequence[Message]) -> Response:
            return await self.ctx.complete(messages, lm=spec, replica=replica, **settings)

        return await self.functions.answer(patched.messages, offered, complete, lambda: self._count(1))

    async def _call_function(self, tool: Tool, arguments: dict[str, Any]) -> Any:
        await check_policy(self.ctx, tool.name, arguments, tool.all_defaults)
        return await run_in_sandbox(self.ctx, tool, arguments)

    @contextmanager
    def _watched(self) -> Generator[None]:
        """Around a call: what ends the run, ends the row; other failures are kept, until a call is answered."""
        try:
            yield
            self.last = None
        except LMError as error:
            if error.kind == "auth":
                self._end(error)
            self.last = error
            raise
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if isinstance(error, WorkbenchError) or not isinstance(error, Exception):
                self._end(error)
            raise

    def _begin(self, ask: Ask) -> None:
        self._check_open()
        self.models_asked[ask.model] += 1
        self._count(ask.samples)

    def _count(self, calls: int) -> None:
        """Count calls of models before they are made. Raises Refused, and ends the row, where they are too many."""
        self.asked += calls
        if self.asked > self.max_calls:
            self._end(NodeError("steps", f"the agent asked for more than max_calls: {self.max_calls}"))
            raise Refused(429, "budget", f"This task has {self.max_calls} calls of models. Do not try again.")

    def _check_open(self) -> None:
        if self.error is not None:
            raise Refused(429, "budget", "This row has ended. Do not try again.")

    def _end(self, error: BaseException) -> None:
        self.error = self.error or error
        self.over.set()

    def _settings(self, ask: Ask, patched: Patched) -> tuple[LMSpec, dict[str, Any]]:
        program = self.ctx.program
        return choose_settings(self.config, ask, patched, program.runtime.lm_spec("task", program.workflow))

    async def embed(self, texts: Sequence[str], model: str) -> tuple[Sequence[Sequence[float]], int]:
        """Vectors of the model that `embedder` names."""
        if self.config.embedder is None:
            raise Refused(400, "unsupported", "There is no model for embeddings here. Name one as `embedder`.")
        self._check_open()
        before = len(self.ctx.span.calls)
        with self._watched():
            vectors = await self.ctx.embed(texts, lm_spec(self.config.embedder))
        return vectors, sum(call.response.prompt_tokens for call in self.ctx.span.calls[before:])

    def models(self) -> Sequence[str]:
        return [*self.config.models, *(name for name in self.models_asked if name not in self.config.models)]

    async def settle(self) -> None:
        """Wait for calls that the agent did not wait for: they are paid, so they are recorded."""
        while self._tasks:
            await asyncio.wait({*self._tasks})
            await asyncio.sleep(0)

    # Whether a resumed agent asks what it asked before

    def _record_sequence(self, request: str) -> None:
        ledger = self.ctx.program.runtime.ledger
        if not ledger.recorded:
            return
        number, draw = len(self._sequence) + 1, self.ctx.draw
        row = [self.ctx.program.workflow.hash, self.ctx.example, self.ctx.node, digest(dict(self.inputs))]
        place = [*row, draw.replica, list(draw.order), number]

        async def itself() -> str:
            return request

        self._sequence.append((number, request, asyncio.ensure_future(ledger.effect("asked", place, itself))))

    async def notes(self) -> dict[str, Any]:
        """What is noted of the row: texts that matched no slot, models that were named, a request that is another."""
        found: dict[str, Any] = {}
        if self.missed:
            found["missed_slots"] = dict(self.missed)
        if (number := await self._first_difference()) is not None:
            found["differs_at_call"] = number
        if self.functions.called:
            found["tools"] = self.functions.called
        if self.models_asked:
            found["models"] = dict(self.models_asked)
        return found

    async def _first_difference(self) -> int | None:
        """The number of the first request that the agent did not make when it ran on this row before."""
        before: Collection[str] = set()
        with suppress(WorkbenchError):
            before = {await task for _, _, task in self._sequence}
        if not self.ctx.program.runtime.ledger.resumed:
            return None
        return next((number for number, request, _ in self._sequence if before and request not in before), None)
