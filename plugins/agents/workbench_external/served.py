"""The gateway without a run: a base URL for an agent in production. Its texts are replaced in transit."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from workbench.errors import LMError, NodeError, SpecError
from workbench.lm import Message, Response
from workbench.runtime import Run, Runtime, make_request
from workbench.spec import LMSpec, Spec, lm_spec
from workbench.workflow import Workflow, task_lm
from workbench_external.asking import Asking, Latest, Models, Named, Refusals, choose, forward, in_its_words
from workbench_external.exchange import NOT_TRACED
from workbench_external.functions import OfferedFunctions
from workbench_external.gateway import Ask, Gateway, Refused
from workbench_external.node import External
from workbench_kit.acting import Tool, check_call
from workbench_kit.wire import Forwarded

#: Maximum concurrent requests to a model whose settings set none: more than a gateway accepts.
UNLIMITED = 4096
#: Number of recent texts without a slot that are not logged again.
MAX_TOLD = 1024
#: Seconds for requests in flight to end after SIGTERM.
DRAIN_SECONDS = 30.0


class ServedSession:
    """The session of all clients with the key. missed: called once per text without a slot; refused: per refusal."""

    passes = True

    def __init__(
        self,
        node: External,
        workflow: Workflow,
        spec: Spec,
        runtime: Runtime,
        missed: Callable[[str], None],
        refused: Callable[[str], None] = lambda words: None,
    ):
        self.node, self.runtime = node, runtime
        self.usual, self._missed, self._refused = serving(task_lm(spec.lm, workflow)), missed, refused
        self._models = Models(node.config, self.usual, serving)
        self._told = Latest(MAX_TOLD)
        self.named, self.refusals = Named(), Refusals()
        self.policy, self.functions = spec.policy, OfferedFunctions(node.config.functions, self._call_function)

    async def complete(self, ask: Ask) -> Sequence[Response]:
        asking = self._choose(ask, self.functions.definitions(ask))
        for text in filter(self._told.is_new, {*asking.patched.missed}):
            self._missed(text)
        self.runtime.ledger.revive()  # retry after earlier failures
        try:
            return await asking.draw(lambda n: self.functions.answer(asking, n, self._send, self._check_rounds))
        except LMError as error:
            raise in_its_words(error) from error

    def _choose(self, ask: Ask, offered: Sequence[Any] = ()) -> Asking:
        return choose(self._models, ask, self.node.patches.apply(ask, {}), self.runtime, offered)

    async def _send(self, asking: Asking, messages: Sequence[Message], replica: int) -> Response:
        messages, settings = asking.request(messages)
        request = make_request(asking.spec, messages, replica, settings)
        found, _ = await self.runtime.complete(asking.spec, request, "task")
        self.named.count(asking.ask.model, found, asking.spec.model)
        return found.without_thoughts()

    def _check_rounds(self, number: int) -> None:
        if number >= self.node.max_calls:
            raise Refused(502, "steps", f"The model called functions in {self.node.max_calls} answers in a row.")

    def note_refusal(self, error: Exception) -> None:
        """Report a request that got no answer."""
        before = self.refusals.count
        self.refusals.note(error)
        if self.refusals.count > before:
            self._refused(self.refusals.last)

    async def forward(
        self, method: str, path: str, body: Any, headers: Mapping[str, str], ask: Ask | None
    ) -> Forwarded | None:
        """Return the answer of the model's server on another path; None if it speaks another API."""
        asking = self._choose(ask) if ask else None
        return await forward(self.runtime, self._models, method, path, body, headers, asking)

    def passes_path(self, method: str, path: str, has_body: bool) -> bool:
        """Return True for a path to pass on to the model's server. No budget applies here."""
        return path != "/embeddings" or self.node.config.embedder is None

    async def _call_function(self, tool: Tool, arguments: dict[str, Any]) -> Any:
        await check_call((self.policy,), tool.name, arguments, None, _unasked, tool.all_defaults)
        found = await (await self.runtime.sandbox()).call(tool.source, tool.name, arguments)
        if not found.ok:
            raise NodeError("tool", f"{tool.name}: {found.kind}: {found.message}")
        return found.value

    async def embed(self, texts: Sequence[str], model: str) -> tuple[Sequence[Sequence[float]], int]:
        assert self.node.config.embedder is not None, "else the request passes"
        vectors, paid = await self.runtime.embedder(lm_spec(self.node.config.embedder), "task")(texts)
        return vectors, sum(call.response.prompt_tokens for _, call in paid if call.response is not None)

    def models(self) -> Sequence[str]:
        return [name for name in self.node.config.models if name != "*"]


def serving(spec: LMSpec) -> LMSpec:
    """Return a model's settings with defaults for serving: the clients decide on concurrency and on retries."""
    usual = {"attempts": 1, "concurrency": UNLIMITED}
    return spec.model_copy(update={name: v for name, v in usual.items() if name not in spec.model_fields_set})


async def _unasked(kind: str, content: Any, ask: Callable[[], Awaitable[bool]]) -> bool:
    """Refuse: no user is present to consent."""
    return False


async def serve_gateway(
    node: External,
    workflow: Workflow,
    spec: Spec,
    *,
    host: str,
    port: int,
    key: str | None,
    ready: Callable[[dict[str, str], str], None],
    log: Callable[[str], None],
) -> None:
    """Serve an agent until SIGTERM or SIGINT. Requests in flight then have DRAIN_SECONDS to end; a second signal ends
    them at once. Nothing is recorded, and no budget applies.

    Args:
        node: its slots replace texts.
        host: address to listen on. Other machines that reach it may connect with the key.
        ready: called with the environment variables for the agent, and a sentence on the limit of concurrent requests.
        log: takes lines on errors, refusals, texts that match no slot, and the models that were named.
    Raises SpecError if the port is taken.
    """
    run, gateway = Run.in_memory("gateway", spec), None
    try:
        gateway = await _listen(host, port, lambda error: log(f"{type(error).__name__}: {error}"))
        session = ServedSession(
            node,
            workflow,
            spec,
            run.runtime,
            lambda text: log(f"no slot matches: {text}"),
            lambda words: log(f"refused: {words}"),
        )
        secret = gateway.admit(session, key)
        ready({**gateway.environment(secret, {}, in_path=False), **NOT_TRACED}, describe_limit(session.usual))
        ended, at_once = _on_signals()
        await ended.wait()
        draining, cut = asyncio.ensure_future(gateway.drain(DRAIN_SECONDS)), asyncio.ensure_future(at_once.wait())
        await asyncio.wait({draining, cut}, return_when=asyncio.FIRST_COMPLETED)
        if draining.done() and draining.result():
            log(f"{draining.result()} requests had not ended after {DRAIN_SECONDS:g} s")
        for task in (draining, cut):
            task.cancel()
        if named := session.named.describe():
            log(named)
        if refused := session.refusals.describe():
            log(f"the agent {refused}")
    finally:
        if gateway is not None:
            await gateway.aclose()
        await run.aclose()


def _on_signals() -> tuple[asyncio.Event, asyncio.Event]:
    """Return two events (set by the first SIGTERM or SIGINT, set by the second)."""
    first, second = asyncio.Event(), asyncio.Event()

    def heard() -> None:
        (second if first.is_set() else first).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(RuntimeError, ValueError):  # not in the main thread
            asyncio.get_running_loop().add_signal_handler(number, heard)
    return first, second


def describe_limit(spec: LMSpec) -> str:
    """Describe the limit of concurrent requests as a sentence."""
    if (most := spec.concurrency or UNLIMITED) >= UNLIMITED:
        return "All requests pass to the model at once (lm.concurrency sets a limit)."
    return f"{most} requests pass to the model at once (lm.concurrency); others wait."


async def _listen(host: str, port: int, on_error: Callable[[Exception], None]) -> Gateway:
    try:
        return await Gateway.open(host, port, on_error=on_error, beyond=True)
    except OSError as error:
        message = f"nothing can listen at {host}, port {port}: {os.strerror(error.errno) if error.errno else error}"
        raise SpecError(message, hint="Name another --port, or 0 for any that is free.") from None
