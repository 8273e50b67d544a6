"""An agent behind HTTP: one POST a row, or the requests of a protocol."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol, TypeVar

from workbench.errors import FailureKind, NodeError
from workbench_external.config import ExternalConfig
from workbench_external.gateway import GatewaySession
from workbench_external.process import MAX_OUTPUT
from workbench_kit.wire import kind_of_answer

T = TypeVar("T")

#: Seconds between two checks of the deadline.
_LOOK = 0.2


class Row(GatewaySession, Protocol):
    """The row that a running agent's requests belong to.

    over: set when it must end. missed: texts that matched no slot.
    """

    @property
    def over(self) -> asyncio.Event: ...
    @property
    def missed(self) -> Counter[str]: ...
    def waited(self) -> float:
        """Seconds in which a call was in flight."""
        ...


async def ask_service(
    config: ExternalConfig, url: str, inputs: Mapping[str, Any], leading: Mapping[str, str], row: Row
) -> bytes:
    """Send the inputs, and return the body of the answer. Raises NodeError.

    Headers give the service the addresses of its models and the key: `X-OpenAI-Base-URL`, `X-Anthropic-Base-URL`,
    `X-API-Key`, new ones for each row.
    """
    headers = {
        "X-OpenAI-Base-URL": leading["OPENAI_BASE_URL"],
        "X-Anthropic-Base-URL": leading["ANTHROPIC_BASE_URL"],
        "X-API-Key": leading["OPENAI_API_KEY"],
    }
    body = json.dumps(dict(inputs), ensure_ascii=False, default=str)
    return await in_time(config, row, request(url, body, headers))


async def request(url: str, body: str | None, headers: Mapping[str, str]) -> bytes:
    """Return the body of the answer to a POST of JSON, or to a GET without a body. Raises NodeError, aiohttp errors."""
    from aiohttp import ClientSession, ClientTimeout

    method, kind = ("GET", {}) if body is None else ("POST", {"Content-Type": "application/json"})
    async with (
        ClientSession(timeout=ClientTimeout(total=None, sock_connect=30)) as session,
        session.request(method, url, data=body, headers={**kind, **headers}, allow_redirects=False) as answer,
    ):
        read = bytearray()
        async for part in answer.content.iter_any():
            read += part
            if len(read) > MAX_OUTPUT:
                raise NodeError("output", "the service answered with too much")
        if not 200 <= answer.status < 300:
            told = " ".join(read.decode("utf-8", "replace").split())[:200]
            raise NodeError(_kind_of(answer.status, told), f"the service answered with status {answer.status}: {told}")
        return bytes(read)


def _kind_of(status: int, text: str) -> FailureKind:
    """Return `exit` if the agent itself may have failed on its input; else the kind of the outside cause."""
    kind = kind_of_answer(status, text)
    return FailureKind.EXIT if kind in (FailureKind.BAD_REQUEST, FailureKind.TOO_LONG) or status == 500 else kind


async def in_time(config: ExternalConfig, row: Row, answer: Coroutine[Any, Any, T]) -> T:
    """Wait for a service's answer while the row continues, within the row's own seconds. Raises NodeError."""
    from aiohttp import ClientConnectorError, ClientError

    begun, asking, ended = time.monotonic(), asyncio.ensure_future(answer), asyncio.ensure_future(row.over.wait())
    try:
        while not asking.done():
            if ended.done():
                raise NodeError("ended", "the row was ended")
            if time.monotonic() - begun > config.timeout + row.waited():
                raise NodeError("deadline", f"the service took more than {config.timeout:g} s")
            await asyncio.wait({asking, ended}, timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED)
        return await asking
    except (ClientError, OSError) as error:
        kind, said = (
            (FailureKind.CONNECTION, "cannot be reached")
            if isinstance(error, ClientConnectorError)
            else (FailureKind.BROKEN, "broke off its answer")
        )
        raise NodeError(kind, f"the service {said}: {type(error).__name__}: {error}") from None
    finally:
        for task in (asking, ended):
            task.cancel()
