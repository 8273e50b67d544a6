"""Paths that are not read here pass piece by piece, both ways, with their headers as they came."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.helpers.passing import model, served, with_gateway
from tests.helpers.upstream import upstream
from yarl import URL

from workbench_external.session import RowSession
from workbench_kit.wire import MAX_BODY, Mask

GET = "GET /s/SECRET/v1/files/a HTTP/1.1\r\n\r\n"


@asynccontextmanager
async def raw_server(*answers: bytes) -> AsyncIterator[tuple[str, list[bytes]]]:
    """(address, heads of requests) of a server that says these bytes, one after the other; UP/ stands for itself."""
    waiting, heads = [*answers], list[bytes]()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        own = writer.get_extra_info("sockname")
        writer.write(waiting.pop(0).replace(b"UP/", f"http://127.0.0.1:{own[1]}/".encode()))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    listening = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", heads


async def said_raw(address: str, request: bytes) -> tuple[list[bytes], bytes]:
    """(lines of the head, body) of an answer, as they are on the connection."""
    url = URL(address)
    reader, writer = await asyncio.open_connection("127.0.0.1", url.port)
    own = f"HTTP/1.1\r\nHost: {url.authority}\r\nConnection: close\r\n"
    writer.write(request.replace(b"HTTP/1.1\r\n", own.encode()))
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    left_out = (b"Date", b"Server", b"Connection")
    return [line for line in head.split(b"\r\n") if not line.startswith(left_out)], body


def through(answer: str, request: str = GET, **settings: Any) -> tuple[list[str], bytes, str]:
    """(lines of the head, body) of an answer through the gateway, and the head of what was asked."""

    async def main() -> tuple[list[str], bytes, str]:
        async with raw_server(answer.encode("latin-1")) as (address, heads):
            async with served(model("openai/up", address, **settings)) as (gateway, secret):
                lines, body = await said_raw(gateway.address, request.replace("SECRET", secret).encode())
            names = {address: "UP", gateway.address: "GATE", secret: "SECRET"}
            told = list[str]()
            for line in lines:
                text = line.decode("utf-8", "surrogateescape")
                for old, new in names.items():
                    text = text.replace(old, new)
                told.append(text)
            return told, body, heads[0].decode()

    return asyncio.run(main())


OK = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"


@pytest.mark.parametrize(
    ("answer", "request_", "head", "body"),
    [
        (f"{OK}\r\n", GET, ["HTTP/1.1 200 OK", "Content-Length: 0"], b""),
        (
            f"{OK}Set-Cookie: a=1; Path=/\r\nSet-Cookie: b=2\r\n\r\n",
            GET,
            ["HTTP/1.1 200 OK", "Content-Length: 0", "Set-Cookie: a=1; Path=/", "Set-Cookie: b=2"],
            b"",
        ),
        (f"{OK}X-Name: caf\xe9\r\n\r\n", GET, ["HTTP/1.1 200 OK", "Content-Length: 0", "X-Name: caf\u00e9"], b""),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff{", GET, ["HTTP/1.1 200 OK", "Content-Length: 2"], b"\xff{"),
        ("HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n", GET, ["HTTP/1.1 204 No Content", "X-A: 1"], b""),
        ('HTTP/1.1 304 Not Modified\r\nETag: "x"\r\n\r\n', GET, ["HTTP/1.1 304 Not Modified", 'Etag: "x"'], b""),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: audio/mpeg\r\nContent-Length: 12345678\r\n\r\n",
            GET.replace("GET", "HEAD"),
            ["HTTP/1.1 200 OK", "Content-Type: audio/mpeg", "Content-Length: 12345678"],
            b"",
        ),
    ],
    ids=["empty", "cookies", "latin-1", "no type", "204", "304", "HEAD"],
)
def test_headers_come_as_they_came(answer: str, request_: str, head: list[str], body: bytes) -> None:
    assert through(answer, request_)[:2] == (head, body)


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ("Location: UP/v1/files/b?x=1", "Location: GATE/s/SECRET/v1/files/b?x=1"),
        ("Location: /v1/files/b", "Location: GATE/s/SECRET/v1/files/b"),
        ("Location: ../files/b", "Location: GATE/s/SECRET/v1/files/b"),
        ("Location: https://blobs.example/b?sig=1", "Location: https://blobs.example/b?sig=1"),
        ("Location: /login", "Location: UP/login"),
        ("Link: <UP/v1/files?after=a>; rel=next", "Link: <GATE/s/SECRET/v1/files?after=a>; rel=next"),
    ],
)
def test_addresses_below_the_servers_base_lead_here(header: str, wanted: str) -> None:
    answer = f"HTTP/1.1 307 Temporary Redirect\r\nContent-Length: 0\r\n{header}\r\n\r\n"
    assert wanted in through(answer)[0]


def test_a_request_has_no_headers_that_its_client_did_not_send() -> None:
    """A server that gets a type of content without a body may refuse it (fastify does: FST_ERR_CTP_EMPTY_JSON_BODY)."""
    *_, asked = through(f"{OK}\r\n", GET.replace("/files/a", "/files/a/"))
    first, *lines = asked.strip().split("\r\n")
    assert first == "GET /v1/files/a/ HTTP/1.1", "the slash at its end, too: else a redirect to it would not end"
    assert {line.partition(":")[0] for line in lines} == {"Host", "Accept-Encoding"}


def test_events_on_any_path_pass_one_by_one() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        await asyncio.wait_for(asyncio.to_thread(gate.wait), 10)
        await response.write(b"data: 2\n\n")
        return response

    async def use(client: aiohttp.ClientSession, base: str) -> bytes:
        async with client.get(f"{base}/fine_tuning/jobs/x/events?stream=true") as answer:
            first = await answer.content.readany()
            assert first == b"data: 1\n\n" and answer.content_type == "text/event-stream"
            gate.set()
            return first + await answer.read()

    gate = threading.Event()
    with upstream() as server:
        server.instead = handle
        assert with_gateway(model("openai/up", server.address), use) == b"data: 1\n\ndata: 2\n\n"


def test_large_bodies_pass_both_ways_with_their_lengths() -> None:
    large = MAX_BODY + 5
    parts = [b"x" * (1 << 20)] * (large >> 20) + [b"x" * (large & ((1 << 20) - 1))]

    async def handle(request: web.Request) -> web.StreamResponse:
        got.append((sum([len(part) async for part in request.content.iter_any()]), request.headers))
        response = web.StreamResponse(headers={"Content-Length": str(large)})
        await response.prepare(request)
        for part in parts:
            await response.write(part)
        return response

    async def body() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    async def use(client: aiohttp.ClientSession, base: str) -> list[tuple[int, str | None]]:
        found = list[tuple[int, str | None]]()
        for headers in ({"Content-Length": str(large)}, {}):
            async with client.post(f"{base}/files", data=body(), headers=headers) as answer:
                size = sum([len(part) async for part in answer.content.iter_any()])
                found.append((size, answer.headers.get("Content-Length")))
        return found

    got: list[tuple[int, Any]] = []
    with upstream() as server:
        server.instead = handle
        assert with_gateway(model("openai/up", server.address), use) == [(large, str(large))] * 2
    assert [size for size, _ in got] == [large] * 2
    assert [headers.get("Content-Length") for _, headers in got] == [str(large), None]


def test_security_a_key_that_is_cut_by_parts_of_an_answer_is_masked() -> None:
    key = "sk-very-secret-key"
    for cut in range(1, len(key)):
        mask = Mask(key)
        said = [mask.add(f"a {key[:cut]}".encode()), mask.add(f"{key[cut:]} b sk-v".encode()), mask.end()]
        assert b"".join(said) == b"a " + b"*" * len(key) + b" b sk-v"
        assert said[0] == b"a ", "only what may be the key is held back"
    assert Mask(key).add(b"data: 1\n\n") == b"data: 1\n\n"


def test_security_a_key_in_an_answer_on_another_path_is_masked() -> None:
    answer = "HTTP/1.1 200 OK\r\nX-Echo: hush-hush\r\nContent-Length: 11\r\n\r\na hush-hush"
    head, body, _ = through(answer, extra={"headers": {"x-secret": "hush-hush"}})
    assert body == b"a *********" and "X-Echo: ***" in head


@pytest.mark.parametrize(
    ("method", "path", "has_body", "passes"),
    [
        ("GET", "/models", False, True),
        ("GET", "/batches/b/", False, True),
        ("HEAD", "/files", False, True),
        ("GET", "/search", True, False),
        ("DELETE", "/files/x", False, True),
        ("DELETE", "/assistants/a", False, True),
        ("DELETE", "/assistants", False, False),
        ("DELETE", "/chat/completions", False, True),
        ("POST", "/batches/b/cancel", False, True),
        ("POST", "/responses/r/cancel", True, True),
        ("POST", "/cancel", False, False),
        ("POST", "/batches", True, False),
        ("POST", "/batches", False, False),
        ("POST", "/audio/speech", True, False),
        ("PUT", "/assistants/a", True, False),
        ("PATCH", "/assistants/a", True, False),
        ("QUERY", "/search/x", False, False),
        ("POST", "/files", True, True),
        ("PATCH", "/conversations/c", True, True),
    ],
)
def test_in_a_run_what_makes_nothing_passes_by_any_method(method: str, path: str, has_body: bool, passes: bool) -> None:
    assert RowSession.passes_path(None, method, path, has_body) is passes  # type: ignore[arg-type]
