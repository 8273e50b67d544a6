"""A row behind the gateway: each request of its agent is patched, and asked through the ledger."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from workbench.errors import LMError, NodeError, SpecError, WorkbenchError
from workbench.gateway import Ask, Refused
from workbench.hashing import digest
from workbench.lm import Response
from workbench.runtime import Context
from workbench.spec import LMSpec, lm_spec

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
        self.asked, self.missed, self.used = 0, Counter[str](), Counter[str]()
        self.models_asked = Counter[str]()
        self._drawn = Counter[str]()  # answers drawn so far, by request
        self._left: dict[str, asyncio.Task[Sequence[Response]]] = {}  # whose client hung up before the answer
        self._tasks: set[asyncio.Task[Any]] = set()
        self._sequence: list[tuple[int, str, asyncio.Task[Any]]] = []

    async def complete(self, ask: Ask) -> Sequence[Response]:
        """The answers to a request.

        A client that hangs up does not cancel its call, which is paid for: the same request, sent again, gets its
        answer.
        """
        key = digest([ask.messages, ask.tools, ask.settings, ask.samples])
        task = self._left.pop(key, None) or asyncio.ensure_future(self._complete(ask, key))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                self._left[key] = task
            raise

    async def _complete(self, ask: Ask, key: str) -> Sequence[Response]:
        self._begin(ask)
        first = self._drawn[key]
        self._drawn[key] += ask.samples
        self._record_sequence(digest([key, first]))
        patched = self.patches.apply(ask, self.inputs)
        self.missed.update(patched.missed)
        self.used.update(patched.used)
        try:
            spec, settings = self._settings(ask, patched)
            draws = [
                self.ctx.complete(patched.messages, lm=spec, replica=first + i, **settings) for i in range(ask.samples)
            ]
            return await asyncio.gather(*draws)
        except LMError as error:
            if error.kind == "auth":
                self._end(error)
            self.last = error
            raise
        except Exception as error:
            if isinstance(error, WorkbenchError):  # the end of a budget or of the run
                self._end(error)
            raise
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._end(error)
            raise

    def _begin(self, ask: Ask) -> None:
        if self.error is not None:
            raise Refused(429, "budget", "This row has ended. Do not try again.")
        self.asked += ask.samples
        self.models_asked[ask.model] += 1
        if self.asked > self.max_calls:
            self._end(NodeError("steps", f"the agent asked for more than max_calls: {self.max_calls}"))
            raise Refused(429, "budget", f"This task has {self.max_calls} calls of models. Do not try again.")

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
        before = len(self.ctx.span.calls)
        try:
            vectors = await self.ctx.embed(texts, lm_spec(self.config.embedder))
        except SpecError as error:
            self._end(error)
            raise
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
        place = [
            self.ctx.program.workflow.hash,
            self.ctx.example,
            self.ctx.node,
            draw.replica,
            list(draw.order),
            number,
        ]

        async def itself() -> str:
            return request

        self._sequence.append((number, request, asyncio.ensure_future(ledger.effect("asked", place, itself))))

    async def first_difference(self) -> int | None:
        """The number of the first request that the agent did not make when it ran on this row before."""
        before: Collection[str] = set()
        with suppress(WorkbenchError):
            before = {await task for _, _, task in self._sequence}
        return next((number for number, request, _ in self._sequence if before and request not in before), None)
