"""A server of models that speaks the APIs of OpenAI and Anthropic, refuses what they refuse, and keeps requests.

Rules, by the page that states them: an unknown field (platform.openai.com/docs/guides/error-codes, "Unknown parameter";
docs.claude.com/en/api/errors, "Extra inputs are not permitted"), an empty text block and a thinking turn without its
block (docs.claude.com/en/docs/build-with-claude/extended-thinking, "Preserving thinking blocks"; .../api/messages), a
tool's result without its call (platform.openai.com/docs/guides/function-calling).
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from aiohttp import web

Json = dict[str, Any]
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


class Wrong(Exception):
    """What a server refuses."""


def check_chat(body: Json) -> None:
    open_calls = list[str]()
    for n, message in enumerate(body["messages"]):
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                raise Wrong(f"messages.[{n}].role: messages with role 'tool' must follow a message with 'tool_calls'")
            open_calls.remove(message["tool_call_id"])
        elif open_calls:
            raise Wrong(f"an assistant message with 'tool_calls' must be followed by tool messages: {open_calls}")
        open_calls += [call["id"] for call in message.get("tool_calls") or ()]


def check_messages(body: Json) -> None:
    if not isinstance(body.get("max_tokens"), int):
        raise Wrong("max_tokens: Field required")
    thinks = (body.get("thinking") or {}).get("type") in ("enabled", "adaptive")
    blocks = body.get("system") if isinstance(body.get("system"), list) else []
    for n, message in enumerate(body["messages"]):
        own = message["content"] if isinstance(message["content"], list) else []
        blocks = [*blocks, *own]
        if not message["content"]:
            raise Wrong(f"messages.{n}: all messages must have non-empty content")
        called = any(block["type"] == "tool_use" for block in own)
        if thinks and message["role"] == "assistant" and called and "thinking" not in own[0]["type"]:
            raise Wrong(
                f"messages.{n}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`."
            )
    if any(block["type"] == "text" and not block["text"] for block in blocks):
        raise Wrong("messages: text content blocks must be non-empty")


CHECKS: Mapping[str, Callable[[Json], None]] = {"chat/completions": check_chat, "messages": check_messages}


def chat_answer(text: str = "a", **message: Any) -> Json:
    said = {"role": "assistant", "content": text, "refusal": None, "annotations": [], **message}
    end = "tool_calls" if message.get("tool_calls") else "stop"
    choice = {"index": 0, "message": said, "logprobs": None, "finish_reason": end}
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "up", "choices": [choice],
            "usage": USAGE, "system_fingerprint": "fp"}  # fmt: skip


def message_answer(*content: Json, stop: str = "end_turn") -> Json:
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": "up", "content": [*content],
            "stop_reason": stop, "stop_sequence": None, "usage": {"input_tokens": 7, "output_tokens": 3}}  # fmt: skip


def response_answer(*output: Json) -> Json:
    said = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "a", "annotations": [], "logprobs": []}]}  # fmt: skip
    usage = {"input_tokens": 7, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 3,
             "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 10}  # fmt: skip
    return {"id": "resp_1", "object": "response", "created_at": 1, "model": "up", "status": "completed", "error": None,
            "output": [*output, said] if not output else [*output], "usage": usage, "tools": [],
            "tool_choice": "auto", "parallel_tool_calls": True}  # fmt: skip


USUAL: Mapping[str, Json] = {
    "chat/completions": chat_answer(),
    "messages": message_answer({"type": "text", "text": "a"}),
    "responses": response_answer(),
    "completions": {
        "id": "c",
        "object": "text_completion",
        "created": 1,
        "model": "up",
        "usage": USAGE,
        "choices": [{"index": 0, "text": "a", "logprobs": None, "finish_reason": "stop"}],
    },
}


class Upstream:
    """asked: (path, body, headers) of each request. answers: by path, what is given next: a body, events, an exception,
    or a coroutine function that answers; else the usual one. lacks: paths that are not there. checks: rules by path.
    instead: answers every request."""

    def __init__(self) -> None:
        self.address = ""
        self.asked: list[tuple[str, Json, Mapping[str, str]]] = []
        self.answers: dict[str, list[Any]] = {}
        self.lacks: set[str] = set()
        self.checks = dict(CHECKS)
        self.instead: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
        self.broken = 0  # requests whose client hung up
        self.headers: dict[str, str] = {"x-request-id": "req_1", "x-ratelimit-remaining-requests": "9"}

    def bodies(self, path: str) -> list[Json]:
        return [body for own, body, _ in self.asked if own == path]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if self.instead is not None:
            return await self.instead(request)
        path = request.path.removeprefix("/v1/")
        if path in self.lacks:
            return web.json_response({"error": {"message": "Not Found"}}, status=404)
        body = await request.json() if request.method == "POST" else {"method": request.method, **request.query}
        self.asked.append((path, body, dict(request.headers)))
        try:
            if path in self.checks:
                self.checks[path](body)
        except Wrong as wrong:
            told = {"message": str(wrong), "type": "invalid_request_error"}
            return web.json_response({"type": "error", "error": told}, status=400)
        waiting = self.answers.get(path)
        answer = waiting.pop(0) if waiting else USUAL.get(path, {"object": path})
        try:
            if callable(answer):
                return await answer(request)
            if isinstance(answer, tuple):
                return web.json_response(answer[1], status=answer[0], headers=self.headers)
            if isinstance(answer, list):
                return await self.stream(request, answer)
        except (asyncio.CancelledError, ConnectionError):
            self.broken += 1
            raise
        return web.json_response(answer, headers=self.headers)

    async def stream(self, request: web.Request, events: list[Any], seconds: float = 0.0) -> web.StreamResponse:
        """Events: texts as they are, others as data, with their type as the name where they have one."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **self.headers})
        await response.prepare(request)
        for event in events:
            await response.write(as_event(event))
            await asyncio.sleep(seconds)
        await response.write_eof()
        return response


def as_event(event: Any) -> bytes:
    if isinstance(event, str):
        return f"data: {event}\n\n".encode()
    name = f"event: {event['type']}\n" if isinstance(event.get("type"), str) else ""
    return f"{name}data: {json.dumps(event)}\n\n".encode()


@contextmanager
def upstream() -> Iterator[Upstream]:
    """The server, while it listens on loopback in a thread of its own."""
    server, loop = Upstream(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(_open(server), loop).result()
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _open(server: Upstream) -> web.AppRunner:
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    return runner
