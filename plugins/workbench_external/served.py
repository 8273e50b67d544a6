"""The gateway without a run: a base URL that an agent uses in production, where its texts are replaced as they pass."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from workbench.errors import NodeError, SpecError
from workbench.gateway import Ask, Gateway, Refused
from workbench.kit.tools import Tool, check_call
from workbench.ledger import Ledger
from workbench.lm import Message, Response
from workbench.runtime import Runtime, make_request
from workbench.spec import BudgetSpec, Spec, lm_spec
from workbench.store import IN_MEMORY, Store, add_run
from workbench.workflow import Workflow, task_lm
from workbench_external.functions import OfferedFunctions
from workbench_external.node import External
from workbench_external.session import choose_settings
from workbench_external.slots.patches import Patched


class ServedSession:
    """Whoever has the key. missed: texts that matched no slot are told to it, once each."""

    def __init__(self, node: External, workflow: Workflow, spec: Spec, runtime: Runtime, missed: Callable[[str], None]):
        self.node, self.runtime = node, runtime
        self.usual, self._missed = task_lm(spec.lm, workflow), missed
        self._told: set[str] = set()
        self.policy, self.functions = spec.policy, OfferedFunctions(node.config.functions, self._call_function)

    async def complete(self, ask: Ask) -> Sequence[Response]:
        patched = self.node.patches.apply(ask, {})
        for text in {*patched.missed} - self._told:
            self._told.add(text)
            self._missed(text)
        return await asyncio.gather(*(self._answer(ask, patched, replica) for replica in range(ask.samples)))

    async def _answer(self, ask: Ask, patched: Patched, replica: int) -> Response:
        spec, settings = choose_settings(self.node.config, ask, patched, self.usual)
        left = self.node.max_calls
        if offered := self.functions.definitions(ask):
            settings["tools"] = (*patched.tools, *offered)

        async def complete(messages: Sequence[Message]) -> Response:
            found, _ = await self.runtime.complete(spec, make_request(spec, messages, replica, settings), "task")
            return found.without_thoughts()

        def count() -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                raise Refused(502, "steps", f"The model called functions in {self.node.max_calls} answers in a row.")

        return await self.functions.answer(patched.messages, offered, complete, count)

    async def _call_function(self, tool: Tool, arguments: dict[str, Any]) -> Any:
        await check_call((self.policy,), tool.name, arguments, None, _unasked, tool.all_defaults)
        found = await (await self.runtime.sandbox()).call(tool.source, tool.name, arguments)
        if not found.ok:
            raise NodeError("tool", f"{tool.name}: {found.kind}: {found.message}")
        return found.value

    async def embed(self, texts: Sequence[str], model: str) -> tuple[Sequence[Sequence[float]], int]:
        if self.node.config.embedder is None:
            raise Refused(400, "unsupported", "There is no model for embeddings here. Name one as `embedder`.")
        vectors, paid = await self.runtime.embedder(lm_spec(self.node.config.embedder), "task")(texts)
        return vectors, sum(call.response.prompt_tokens for _, call in paid if call.response is not None)

    def models(self) -> Sequence[str]:
        return [*self.node.config.models]


async def _unasked(kind: str, content: Any, ask: Callable[[], Awaitable[bool]]) -> bool:
    """Nobody is present whose consent could be asked."""
    return False


async def serve_gateway(
    node: External,
    workflow: Workflow,
    spec: Spec,
    *,
    host: str,
    port: int,
    key: str | None,
    ready: Callable[[dict[str, str]], None],
    log: Callable[[str], None],
) -> None:
    """Answer an agent until SIGTERM or SIGINT. Nothing is recorded, and no budget holds.

    Args:
        node: whose slots replace texts.
        ready: is told the variables of the environment that lead an agent here.
        log: takes lines on errors, and on texts that match no slot.

    Raises SpecError for a host that other machines reach, and for a port that is taken.
    """
    store = Store(IN_MEMORY)
    run = add_run(store, run="gateway", name=spec.name, status="running", spec="", options="{}")
    runtime = Runtime.of_spec(spec, Ledger(store, run, BudgetSpec.model_validate({}), recorded=False))
    gateway = None
    try:
        gateway = await _listen(host, port, lambda error: log(f"{type(error).__name__}: {error}"))
        told = ServedSession(node, workflow, spec, runtime, lambda text: log(f"no slot matches: {text}"))
        ready(gateway.environment(gateway.admit(told, key), {}))
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(RuntimeError, ValueError):  # not in the main thread
                loop.add_signal_handler(number, ended.set)
        await ended.wait()
    finally:
        if gateway is not None:
            await gateway.aclose()
        await runtime.aclose()
        store.close()


async def _listen(host: str, port: int, on_error: Callable[[Exception], None]) -> Gateway:
    try:
        return await Gateway.open(host, port, on_error=on_error)
    except OSError as error:
        message = f"nothing can listen at {host}, port {port}: {os.strerror(error.errno) if error.errno else error}"
        raise SpecError(message, hint="Name another --port, or 0 for any that is free.") from None
