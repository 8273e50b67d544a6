"""HTTP to a vLLM server: one session, as many connections as requests may be in flight, a deadline for every wait."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp

from workbench.errors import LMError, WorkbenchError
from workbench_kit.wire import MAX_BODY, body_of, kind_of_error, redact


class SyncError(WorkbenchError):
    """The server did not take the weights, or does not answer as they do."""


class VLLMClient:
    """A connection to one server. connections: requests in flight at most; more would wait within their deadlines."""

    def __init__(self, url: str, connections: int):
        self.url, self.connections = url.rstrip("/").removesuffix("/v1"), connections
        self._session: aiohttp.ClientSession | None = None

    async def post(self, path: str, body: dict[str, Any] | None, timeout: float) -> Any:
        """The JSON of an answer, or its text. Raises LMError with the server's own words."""
        return await self._ask("POST", path, body, timeout)

    async def get(self, path: str, timeout: float) -> Any:
        return await self._ask("GET", path, None, timeout)

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None, timeout: float) -> Any:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None), connector=aiohttp.TCPConnector(limit=self.connections)
            )
        try:
            async with asyncio.timeout(timeout), self._session.request(method, self.url + path, json=body) as answer:
                text = await _text(answer)
                if answer.status >= 400:
                    wait = answer.headers.get("Retry-After", "")
                    raise LMError(
                        kind_of_error(answer.status, body_of(text)),
                        redact(f"{path}: {answer.status} {text}")[:320],
                        status=answer.status,
                        retry_after=float(wait) if wait.isdigit() else None,
                    )
                return json.loads(text) if answer.content_type == "application/json" else text
        except TimeoutError as error:
            raise LMError("timeout", f"{path}: no answer within {timeout:g} s") from error
        except (aiohttp.ClientError, ValueError) as error:
            kind = "connection" if isinstance(error, aiohttp.ClientConnectorError) else "broken"
            raise LMError(kind, f"{path}: {type(error).__name__}: {error}") from error

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


async def _text(answer: aiohttp.ClientResponse) -> str:
    """The body, read while it is short enough. Raises LMError."""
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > MAX_BODY:
            answer.close()  # or the rest would be read on the way out
            raise LMError("bad_body", f"{answer.url.path}: a body over {MAX_BODY} bytes")
    return body.decode("utf-8", "replace")
