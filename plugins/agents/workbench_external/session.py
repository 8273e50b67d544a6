"""A row behind the gateway. Each request of its agent is patched, and sent through the ledger."""

from __future__ import annotations

import asyncio
import re
import time
from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from workbench.base.hashing import digest
from workbench.errors import LMError, NodeError, WorkbenchError
from workbench.lm import Message, Pieces, Response
from workbench.runtime import Context
from workbench.spec import lm_spec
from workbench_external.asking import OTHERS, Asking, Models, Named, Refusals, choose, forward, in_its_words
from workbench_external.functions import OfferedFunctions
from workbench_external.gateway import Ask, Refused
from workbench_kit.acting import Tool, permitted, run_in_sandbox
from workbench_kit.wire import Forwarded

if TYPE_CHECKING:
    from workbench_external.config import ExternalConfig
    from workbench_external.slots.patches import Patches


#: Methods that only read (RFC 9110, 9.2.1), unless they have a body.
_READ = ("GET", "HEAD", "OPTIONS")
#: An existing resource, named by an id in its collection. Deleting or canceling it creates nothing.
_ONE_THING = re.compile(r"(/[^/]+)*/[^/]+/[^/]+")
#: Paths that call no model with any method (platform.openai.com/docs/api-reference, docs.claude.com/en/api).
_FREE = re.compile(
    r"/(moderations|responses/input_tokens|messages/count_tokens|(conversations|files|uploads|vector_stores)(/.*)?)"
)
#: Failures allowed per call of a row: more than clients and their fallbacks retry.
MAX_FAILURES = 10


class RowSession:
    """The requests of one row.

    over: set when the row cannot continue; `error` is then the reason. last: the error of the last unanswered call.
    """

    passes = True

    def __init__(
        self, config: ExternalConfig, patches: Patches, max_calls: int, inputs: Mapping[str, Any], ctx: Context
    ):
        self.config, self.patches, self.max_calls = config, patches, max_calls
        self.inputs, self.ctx, self.over = inputs, ctx, asyncio.Event()
        self.error: BaseException | None = None
        self.last: LMError | None = None
        self.asked, self.failed, self.missed = 0, 0, Counter[str]()
        self.named, self.refusals = Named(), Refusals()
        self.functions = OfferedFunctions(config.functions, self._call_function)
        #: By request: answers drawn so far, and the first replicas of draws that failed.
        self._drawn, self._undrawn = Counter[str](), defaultdict[str, list[int]](list)
        #: Calls whose client hung up before the answer.
        self._left: dict[tuple[str, str], tuple[asyncio.Task[Sequence[Response]], Pieces | None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._since, self._waited = 0.0, 0.0
        self._sequence: list[tuple[int, str, asyncio.Task[Any]]] = []

    async def complete(self, ask: Ask) -> Sequence[Response]:
        """Return the answers to a request.

        A client that hangs up does not cancel its call, which is paid for. The same request, sent again, gets its
        answer.
        """
        content = digest(ask.content)
        key = ask.model, content
        task, pieces = self._left.pop(key, None) or (asyncio.ensure_future(self._draw(ask, content)), ask.pieces)
        if pieces is not ask.pieces and pieces is not None and ask.pieces is not None:
            ask.pieces.follow(pieces)
        self._follow(task)
        try:
            return await asyncio.shield(task)
        except LMError as error:
            raise in_its_words(error) from error
        except asyncio.CancelledError:
            if not task.cancelled():
                self._left[key] = task, pieces
            raise

    def note_refusal(self, error: Exception) -> None:
        """Note a request that got no answer."""
        self.refusals.note(error)

    async def forward(
        self, method: str, path: str, body: Any, headers: Mapping[str, str], ask: Ask | None
    ) -> Forwarded | None:
        """Return the answer of the model's server on another path; None if it speaks another API."""
        self._check_open()
        runtime = self.ctx.program.runtime
        asking = choose(self._models, ask, self.patches.apply(ask, self.inputs), runtime) if ask else None
        return await forward(runtime, self._models, method, path, body, headers, asking)

    def passes_path(self, method: str, path: str, has_body: bool) -> bool:
        """Return True for a request that creates nothing: it reads, or deletes or cancels one resource; and for paths
        known to be free. The cost of other requests cannot be counted."""
        path = path.rstrip("/")
        if method in _READ and not has_body:
            return True
        cancelled = path.removesuffix("/cancel") if method == "POST" and path.endswith("/cancel") else ""
        thing = path if method == "DELETE" else cancelled
        return _ONE_THING.fullmatch(thing) is not None or _FREE.fullmatch(path) is not None

    @cached_property
    def _models(self) -> Models:
        program = self.ctx.program
        return Models(self.config, program.runtime.lm_spec("task", program.workflow))

    def _follow(self, task: asyncio.Task[Any]) -> None:
        if not self._tasks:
            self._since = time.monotonic()
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # if its client has hung up, nobody else retrieves it
        if not self._tasks:
            self._waited += time.monotonic() - self._since

    def waited(self) -> float:
        """Return the seconds in which a call was in flight."""
        return self._waited + (time.monotonic() - self._since if self._tasks else 0.0)

    async def _draw(self, ask: Ask, key: str) -> Sequence[Response]:
        self._check_open()
        self._count(ask.samples)
        if undrawn := self._undrawn[key]:  # never a replica that another call has, whose answer would be given twice
            first = undrawn.pop(0)
        else:
            first = self._drawn[key]
            self._drawn[key] += ask.samples
        patched = self.patches.apply(ask, self.inputs)
        self.missed.update(patched.missed)
        asking = choose(self._models, ask, patched, self.ctx.program.runtime, self.functions.definitions(ask))
        with self._watched():
            try:
                found = await asking.draw(
                    lambda replica: self.functions.answer(asking, replica, self._send, lambda n: self._count(1)), first
                )
            except LMError as error:
                if error.passed is not None:  # the agent may retry: no answer was drawn
                    self.asked -= ask.samples
                    insort(self._undrawn[key], first)
                    self._count_failure()
                raise
        self._record_sequence(digest([ask.model, key, first]))
        return found

    async def _send(self, asking: Asking, messages: Sequence[Message], replica: int) -> Response:
        messages, settings = asking.request(messages)
        found = await self.ctx.complete(messages, lm=asking.spec, replica=replica, **settings)
        self.named.count(asking.ask.model, found, asking.spec.model)
        return found

    async def _call_function(self, tool: Tool, arguments: dict[str, Any]) -> Any:
        async with permitted(self.ctx, tool.name, arguments, tool.all_defaults):
            return await run_in_sandbox(self.ctx, tool, arguments)

    @contextmanager
    def _watched(self) -> Generator[None]:
        """Watch a call. An error that ends the run ends the row; other failures are kept until a call is answered."""
        try:
            yield
            self.last = None
        except LMError as error:
            self.last = error
            raise
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if isinstance(error, WorkbenchError) or not isinstance(error, Exception):
                self._end(error)
            raise

    def _count(self, calls: int) -> None:
        """Count model calls before they are made. Raises Refused and ends the row if they exceed the maximum."""
        self.asked += calls
        if self.asked > self.max_calls:
            self._end(NodeError("steps", f"the agent asked for more than calls: {self.max_calls}"))
            raise Refused(429, "budget", f"This task has {self.max_calls} calls of models. Do not try again.")

    def _count_failure(self) -> None:
        """Count a failure that is reported to the agent. Ends the row of an agent that never stops retrying."""
        self.failed += 1
        if self.failed > MAX_FAILURES * self.max_calls:
            self._end(NodeError("steps", f"{self.failed} requests of the agent failed, with calls: {self.max_calls}"))

    def _check_open(self) -> None:
        if self.error is not None:
            raise Refused(429, "budget", "This row has ended. Do not try again.")

    def _end(self, error: BaseException) -> None:
        self.error = self.error or error
        self.over.set()

    async def embed(self, texts: Sequence[str], model: str) -> tuple[Sequence[Sequence[float]], int]:
        """Return vectors of the model that `embedder` names."""
        if self.config.embedder is None:
            raise Refused(400, "unsupported", "There is no model for embeddings here. Name one as `embedder`.")
        self._check_open()
        before = len(self.ctx.span.calls)
        with self._watched():
            vectors = await self.ctx.embed(texts, lm_spec(self.config.embedder))
        return vectors, sum(call.response.prompt_tokens for call in self.ctx.span.calls[before:])

    def models(self) -> Sequence[str]:
        known = [name for name in self.config.models if name != "*"]
        return [*known, *(name for name in self.named.by_name if name not in (*known, OTHERS))]

    async def settle(self) -> None:
        """Wait for calls that the agent did not wait for. They are paid, so they are recorded."""
        while self._tasks:
            await asyncio.wait({*self._tasks})
            await asyncio.sleep(0)

    # Whether a resumed agent sends the same requests as before

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
        """Return the notes on the row: texts that matched no slot, models that were named, the first request that
        differs."""
        found: dict[str, Any] = {}
        if self.missed:
            found["missed_slots"] = dict(self.missed)
        if (number := await self._first_difference()) is not None:
            found["differs_at_call"] = number
        if self.functions.called:
            found["tools"] = self.functions.called
        if self.named.by_name:
            found["models"] = self.named.by_name
        if refused := self.refusals.describe():
            found["refused"] = refused
        return found

    async def _first_difference(self) -> int | None:
        """Return the number of the first request that the agent did not send in its earlier run of this row."""
        before: Collection[str] = set()
        with suppress(WorkbenchError):
            before = {await task for _, _, task in self._sequence}
        if not self.ctx.program.runtime.ledger.resumed:
            return None
        return next((number for number, request, _ in self._sequence if before and request not in before), None)
