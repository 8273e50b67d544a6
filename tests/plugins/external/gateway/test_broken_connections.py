"""A server that breaks the connection, or does not answer in time: clients see what they see without a gateway."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from aiohttp import web
from tests.helpers.passing import USER, model, served
from tests.helpers.upstream import as_event, upstream

from workbench.ledger import Ledger
from workbench.lm import LMPool
from workbench.runtime import Program, Runtime
from workbench.spec import BudgetSpec, lm_spec
from workbench.store import IN_MEMORY, Store, add_run
from workbench.task import Example
from workbench.workflow import Workflow, node_tree

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
PIECES: dict[str, Any] = {
    "chat": {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "up",
             "choices": [{"index": 0, "delta": {"role": "assistant", "content": "a"}, "finish_reason": None}]},
    "messages": {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
}  # fmt: skip


class Breaking:
    """A server that reads a request, writes something, and breaks the connection. reset: by RST and not by FIN."""

    def __init__(self, said: bytes, reset: bool, waits: float = 0.0):
        self.said, self.reset, self.waits, self.asked, self.address = said, reset, waits, 0, ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            size = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            await reader.readexactly(int(size[0].partition(b":")[2]) if size else 0)
            self.asked += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(reader.read(1), self.waits)  # until the client hangs up
            writer.write(self.said)
            await writer.drain()
            await asyncio.sleep(0.05)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        if self.reset:
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@asynccontextmanager
async def breaking(*how: Any) -> AsyncIterator[Breaking]:
    server = Breaking(*how)
    listening = await asyncio.start_server(server.handle, "127.0.0.1", 0)
    server.address = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening:
        yield server
        await asyncio.sleep(0.1)  # the last connection's end


async def ask(api: str, base: str, key: str, stream: bool, timeout: float) -> Any:
    settings: dict[str, Any] = {"api_key": key, "timeout": timeout}
    client: Any
    if api == "messages":
        client = anthropic.AsyncAnthropic(base_url=base.removesuffix("/v1"), **settings)
        call, more = client.messages.create, {"max_tokens": 9}
    else:
        client = openai.AsyncOpenAI(base_url=base, **settings)
        call, more = client.chat.completions.create, {}
    async with client:
        if api == "files":
            return await client.files.retrieve("file-1")
        found = await call(model="up", messages=USER, stream=stream, **more)
        return [event async for event in found] if stream else found


async def see(server: Any, *asked: Any) -> tuple[str, int]:
    """(the kind of exception, how often the server was asked)."""
    before = server.asked
    try:
        await ask(*asked)
    except Exception as raised:  # also of the HTTP library, in mid-stream
        name = type(raised).__name__.replace("ReadError", "RemoteProtocolError")  # RST is passed as FIN
        return name, server.asked - before
    raise AssertionError("it was answered")


def chunked(event: Any) -> bytes:
    return b"%x\r\n%b\r\n" % (len(as_event(event)), as_event(event))


BREAKS: dict[str, Callable[[str], Any]] = {
    "before the headers": lambda api: (b"", False),
    "reset before the headers": lambda api: (b"", True),
    "in the headers": lambda api: (HEAD[:40], False),
    "in the body": lambda api: (HEAD + b'{"id":', False),
    "reset in the body": lambda api: (HEAD + b'{"id":', True),
    "in the stream": lambda api: (STREAM + chunked(PIECES.get(api, {})), False),
    "before the first event of a stream": lambda api: (STREAM, False),
    "no answer in time": lambda api: (b"", False, 30.0),
}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many retries as usual, with shorter pauses."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr("anthropic._base_client.INITIAL_RETRY_DELAY", 0.01)


@pytest.mark.parametrize("when", BREAKS)
@pytest.mark.parametrize("api", ["chat", "messages", "files"])
def test_a_broken_connection_breaks_the_clients(api: str, when: str) -> None:
    async def main() -> None:
        async with breaking(*BREAKS[when](api)) as server:
            name = "anthropic/up" if api == "messages" else "openai/up"
            async with served(model(name, server.address)) as (gateway, secret):
                for stream in [False, True] if when == "in the body" and api != "files" else ["stream" in when]:
                    # On a busy machine a short timeout may end before a request has come, on one side only.
                    for timeout in (0.3, 1.5, 6.0) if "time" in when else (9.0,):
                        direct = await see(server, api, f"{server.address}/v1", "k", stream, timeout)
                        through = await see(server, api, f"{gateway.address}/v1", secret, stream, timeout)
                        if through == direct:
                            break
                    assert through == direct

    asyncio.run(main())


# In a row

AGENT = """\
import json, sys, openai, openai._base_client
openai._base_client.INITIAL_RETRY_DELAY = 0.01
said = [{"role": "user", "content": json.load(sys.stdin)["text"]}]
try:
    print(openai.OpenAI().chat.completions.create(model="up", messages=said).choices[0].message.content)
except openai.APIError as error:
    print(type(error).__name__)
"""


@pytest.mark.parametrize(("breaks", "label", "asked"), [(2, "a", 3), (9, "broken", 3)])
def test_in_a_row_the_agents_client_asks_again_and_not_the_ledger(
    breaks: int, label: str, asked: int, tmp_path: Path
) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    tree = {"external": "text -> label", "command": [sys.executable, "agent.py"], "timeout": 60}
    workflow = Workflow({"nodes": {"agent": node_tree(tree)}}, tmp_path)
    store = Store(IN_MEMORY)
    number = add_run(store, run="t", name="t", status="running", spec="", options="{}")
    ledger = Ledger(store, number, BudgetSpec.model_validate({}))

    async def broken(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def main(address: str) -> str:
        runtime = Runtime(ledger, lm_spec(model("openai/up", address)), {}, LMPool())
        try:
            outcome = await Program(workflow, runtime).run(Example("1", {"text": "x"}))
            return str(outcome.failure or outcome.prediction["label"])
        finally:
            await runtime.aclose()

    with upstream() as server:
        server.answers["chat/completions"] = [broken] * breaks
        assert asyncio.run(main(server.address)) == label
        assert len(server.asked) == asked and ledger.paid.calls == asked
        assert ledger.bill.failed == {"broken": min(breaks, asked)}
    store.close()
