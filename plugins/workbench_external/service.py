"""An agent behind HTTP: one POST a row."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol

from workbench.errors import NodeError
from workbench_external.config import ExternalConfig
from workbench_external.gateway import GatewaySession
from workbench_external.process import MOST_OUTPUT

#: Seconds between two looks at the clock.
_LOOK = 0.2


class Row(GatewaySession, Protocol):
    """The row whose requests an agent makes while it is running.

    over: set when it must end. missed: texts that matched no slot.
    """

    @property
    def over(self) -> asyncio.Event: ...
    @property
    def missed(self) -> Counter[str]: ...
    def waited(self) -> float:
        """Seconds in which a call was under way."""
        ...


async def ask_service(
    config: ExternalConfig, url: str, inputs: Mapping[str, Any], leading: Mapping[str, str], row: Row
) -> bytes:
    """The body of its answer. Raises NodeError.

    The service learns from headers where its models are and by which key: `X-OpenAI-Base-URL`, `X-Anthropic-Base-URL`,
    `X-API-Key`, new ones for each row.
    """
    from aiohttp import ClientError, ClientSession, ClientTimeout

    headers = {
        "X-OpenAI-Base-URL": leading["OPENAI_BASE_URL"],
        "X-Anthropic-Base-URL": leading["ANTHROPIC_BASE_URL"],
        "X-API-Key": leading["OPENAI_API_KEY"],
    }
    body = json.dumps(dict(inputs), ensure_ascii=False, default=str)

    async def ask() -> bytes:
        async with (
            ClientSession(timeout=ClientTimeout(total=None, sock_connect=30)) as session,
            session.post(
                url,
                data=body,
                headers={"Content-Type": "application/json", **headers},
                allow_redirects=False,
            ) as answer,
        ):
            read = bytearray()
            async for part in answer.content.iter_any():
                read += part
                if len(read) > MOST_OUTPUT:
                    raise NodeError("output", "the service answered with too much")
            if not 200 <= answer.status < 300:
                told = " ".join(read.decode("utf-8", "replace").split())[:200]
                raise NodeError("exit", f"the service answered with status {answer.status}: {told}")
            return bytes(read)

    begun, asking, ended = time.monotonic(), asyncio.ensure_future(ask()), asyncio.ensure_future(row.over.wait())
    try:
        while not asking.done():
            if ended.done():
                raise NodeError("ended", "the row was ended")
            if time.monotonic() - begun > config.timeout + row.waited():
                raise NodeError("deadline", f"the service took more than {config.timeout:g} s")
            await asyncio.wait({asking, ended}, timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED)
        return await asking
    except (ClientError, OSError) as error:
        raise NodeError("start", f"the service cannot be reached: {type(error).__name__}: {error}") from None
    finally:
        for task in (asking, ended):
            task.cancel()
