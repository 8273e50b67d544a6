"""Who stands behind a gateway in tests: a session whose answers are given beforehand, and a raw client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from workbench.lm import Response
from workbench_external.gateway import Ask, Gateway

HELLO = Response("Hello, world. This is long enough for several pieces.", prompt_tokens=7, completion_tokens=11)
CALLS = Response(
    "Let me see.",
    "tool_calls",
    prompt_tokens=5,
    completion_tokens=9,
    tool_calls=(
        {"id": "call_a", "name": "add", "arguments": {"a": 1, "b": 2}},
        {"id": "call_b", "name": "look", "arguments": '{"at": "the sky"}'},
    ),
)


class ScriptedSession:
    """Gives these answers in turn, the last one for ever; an exception among them is raised. Keeps what it is asked."""

    def __init__(self, *answers: Response | Exception, seconds: float = 0.0):
        self.answers, self.seconds = [*answers] or [HELLO], seconds
        self.asked: list[Ask] = []
        self.cancelled = 0

    async def complete(self, ask: Ask) -> Sequence[Response]:
        self.asked.append(ask)
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return [answer] * ask.samples

    async def embed(self, texts: Sequence[str], model: str) -> tuple[Sequence[Sequence[float]], int]:
        return [[float(len(text)), 0.5] for text in texts], sum(map(len, texts))

    def models(self) -> Sequence[str]:
        return ["small", "large"]


@asynccontextmanager
async def opened(session: Any) -> AsyncIterator[tuple[Gateway, str]]:
    """A gateway and the secret of the session. An error that no agent is told of fails the test."""
    errors: list[Exception] = []
    gateway = await Gateway.open(on_error=errors.append)
    try:
        yield gateway, gateway.admit(session)
    finally:
        await gateway.aclose()
    if errors:
        raise errors[0]


def serve(session: Any, use: Callable[[Gateway, str], Coroutine[Any, Any, Any]]) -> Any:
    """What `use` makes of a gateway and a secret."""

    async def main() -> Any:
        async with opened(session) as (gateway, secret):
            return await use(gateway, secret)

    return asyncio.run(main())


async def send(
    gateway: Gateway,
    path: str,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    method: str | None = None,
) -> tuple[int, Any, Mapping[str, str]]:
    """(status, JSON, headers) of one request. body: bytes as they are, or what is made JSON."""
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    async with aiohttp.ClientSession() as client:
        word = method or ("GET" if body is None else "POST")
        async with client.request(word, gateway.address + path, data=data, headers=headers) as answer:
            raw = await answer.read()
            return answer.status, json.loads(raw) if raw else None, answer.headers


CHAT_BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
