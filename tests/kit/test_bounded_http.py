"""Bodies that clients on httpx and httpx2 read: counted inside `bounded_bodies()`, and left alone outside of it."""

from __future__ import annotations

import asyncio
import json
import threading
import zlib
from typing import Any

import httpx
import pytest
from hypothesis import given, settings, strategies as st
from tests.helpers.lm_faults import ChatServer

from workbench.errors import PluginError
from workbench_kit.lms import bounded_http
from workbench_kit.lms.bounded_http import BodyError, BodyReader, bounded_bodies
from workbench_kit.wire import MAX_BODY

ASK = {"messages": [{"role": "user", "content": "hello there"}]}


@pytest.fixture(params=["httpx", "httpx2"])
def library(request: pytest.FixtureRequest) -> Any:
    """httpx2 comes with openai 3, anthropic and llm."""
    return pytest.importorskip(request.param)


def post(server: ChatServer, library: Any = httpx) -> Any:
    with library.Client(trust_env=False, timeout=30) as client:
        return client.post(server.base, json=ASK)


async def apost(server: ChatServer, library: Any) -> Any:
    async with library.AsyncClient(trust_env=False, timeout=30) as client:
        return await client.post(server.base, json=ASK)


def asend(server: ChatServer, library: Any) -> Any:
    return asyncio.run(apost(server, library))


@pytest.mark.parametrize(
    ("fault", "send"),
    [
        *(pytest.param("endlessbomb", send) for send in (post, asend)),
        *(pytest.param(fault, post) for fault in ("huge", "oddcoding")),
        *(pytest.param(fault, post, marks=pytest.mark.slow) for fault in ("endless", "bomb")),
        *(pytest.param(f, asend, marks=pytest.mark.slow) for f in ("huge", "endless", "bomb", "oddcoding")),
    ],
)
def test_a_body_is_read_to_its_bound(fault: str, send: Any, library: Any) -> None:
    with ChatServer(fault) as server, bounded_bodies(), pytest.raises(BodyError):
        send(server, library)
    assert server.sent < 48 << 20


def test_outside_nothing_changes(library: Any) -> None:
    with ChatServer("hugechunked") as server:
        with bounded_bodies(), pytest.raises(BodyError):
            post(server, library)
        assert len(post(server, library).content) > MAX_BODY
        server.kind = "packed"
        found = post(server, library)
        assert found.headers["Content-Encoding"] == "gzip" and found.json()["choices"]


def test_a_thread_of_another_is_not_bounded() -> None:
    """The bound is one of a context: a client elsewhere in the process reads on as it did."""
    found: list[Any] = []
    with ChatServer("hugechunked") as server, bounded_bodies():
        thread = threading.Thread(target=lambda: found.append(post(server)))
        thread.start()
        thread.join()
    assert len(found[0].content) > MAX_BODY


@settings(derandomize=True, max_examples=60, deadline=None)
@given(
    st.binary(max_size=5000),
    st.sampled_from([("identity", 0), ("gzip", 31), ("x-gzip", 31), ("deflate", 15), ("deflate", -15)]),
    st.integers(1, 700),
    st.integers(1, 300),
)
def test_what_was_packed_comes_out_however_it_is_cut(data: bytes, how: tuple[str, int], cut: int, times: int) -> None:
    coding, window = how
    data = data * times
    packed = data
    if window:
        packer = zlib.compressobj(wbits=window)
        packed = packer.compress(data) + packer.flush()
    reader = BodyReader(coding)
    out = b"".join(piece for i in range(0, len(packed), cut) for piece in reader.feed(packed[i : i + cut]))
    reader.finish()
    assert out == data
    if window and len(packed) > 3:
        reader = BodyReader(coding)
        list(reader.feed(packed[:-1]))
        with pytest.raises(BodyError, match="breaks off"):
            reader.finish()


def test_a_bomb_is_unpacked_piece_by_piece() -> None:
    """32 kB become 32 MB: never more at once than a piece, whatever arrives at once."""
    packer = zlib.compressobj(9, wbits=31)
    bomb = packer.compress(bytes(MAX_BODY + 1)) + packer.flush()
    sizes = []
    with pytest.raises(BodyError, match="over 33554432 bytes"):
        for piece in BodyReader("gzip").feed(bomb):
            sizes.append(len(piece))
    assert max(sizes) <= 256 * 1024 and sum(sizes) == MAX_BODY


def test_what_is_not_packed_as_it_says_is_refused() -> None:
    with pytest.raises(BodyError, match="no gzip"):
        list(BodyReader("gzip").feed(json.dumps(ASK).encode()))


def test_another_version_is_refused_and_not_read_without_a_bound(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(library.Client, "_send_single_request")
    with pytest.raises(PluginError, match=rf"has no place for a bound of bodies: install {library.__name__} \d"):
        bounded_http._bound_clients.__wrapped__()
