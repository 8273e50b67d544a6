"""Agents that speak Gemini's API behind a gateway, before a stand-in of Google's server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp

from tests.helpers.gemini_server import GeminiServer
from tests.helpers.passing import model, served
from workbench.lm import Request

USER = [{"role": "user", "parts": [{"text": "hi"}]}]
LOOK = {"name": "look", "description": "Looks."}
SIGNED = {"functionCall": {"name": "look", "args": {"a": 1}}, "thoughtSignature": "c2ln"}
THOUGHT = {"text": "Hm.", "thought": True}


def gemini(server: GeminiServer, name: str = "gemini/up", **settings: Any) -> dict[str, Any]:
    return {**model(name, server.address, **settings), "api_base": f"{server.address}/v1beta"}


def ask(
    lm: Mapping[str, Any],
    body: Any,
    method: str = "generateContent",
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> tuple[int, bytes, Mapping[str, str]]:
    """(status, body, headers) of the answer to an agent that names `gemini-2.5-flash`."""

    async def main() -> tuple[int, bytes, Mapping[str, str]]:
        async with served(lm, **more) as (gateway, secret), aiohttp.ClientSession() as client:
            own = {"x-goog-api-key": secret} if headers is None else headers
            base = gateway.environment(secret, {}, in_path=headers is not None)["GOOGLE_GEMINI_BASE_URL"]
            url = f"{base}/v1beta/models/gemini-2.5-flash:{method}".replace("SECRET", secret)
            async with client.post(url, json=body, headers=own) as found:
                return found.status, await found.read(), found.headers

    return asyncio.run(main())


async def closed(lm: Any, request: Request) -> Any:
    try:
        return await lm.complete(request)
    finally:
        await lm.aclose()
