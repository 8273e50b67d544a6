"""Streams are streams: pieces pass as they come, one that breaks is told as it is, and nobody asks twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.helpers.passing import APIS, model, served, with_gateway
from tests.helpers.upstream import Upstream, as_event, upstream

from workbench.ledger import Ledger
from workbench.lm import LMPool, Pieces
from workbench.runtime import Program, Runtime
from workbench.spec import BudgetSpec, lm_spec
from workbench.store import Store, add_run
from workbench.task import Example
from workbench.workflow import Workflow, node_tree
from workbench_external.gateway import Gateway, Refused

USER = [{"role": "user", "content": "hi"}]
BODY = {"model": "m", "messages": USER, "stream": True, "max_tokens": 9}
CHUNK = {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]}
END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
EVENTS: dict[str, list[Any]] = {
    "chat": [CHUNK, CHUNK, END, "[DONE]"],
    "responses": [
        {"type": "response.output_text.delta", "delta": "a", "sequence_number": 0},
        {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}},
    ],
    "messages": [
        {"type": "message_start", "message": {"id": "m", "content": [], "usage": {"input_tokens": 1}}},
        {"type": "ping"},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ],
}


def gated(
    server: Upstream, events: list[Any], gates: list[Callable[[], Any]]
) -> Callable[[web.Request], Awaitable[Any]]:
    """Gives the first event, and the others once the gate that it adds is opened."""

    async def answer(request: web.Request) -> web.StreamResponse:
        gate = asyncio.Event()
        loop = asyncio.get_running_loop()
        gates.append(lambda: loop.call_soon_threadsafe(gate.set))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **server.headers})
        await response.prepare(request)
        await response.write(as_event(events[0]))
        await gate.wait()
        for event in events[1:]:
            await response.write(as_event(event))
        await response.write_eof()
        return response

    return answer


@pytest.mark.parametrize("api", EVENTS)
def test_the_first_piece_passes_while_the_answer_is_not_there_yet(api: str) -> None:
    path, name = APIS[api]
    gates: list[Callable[[], Any]] = []

    async def use(client: aiohttp.ClientSession, base: str) -> tuple[bytes, bytes, Any]:
        async with client.post(f"{base}/{path}", json={**BODY, "input": "hi"}) as answer:
            first = await answer.content.readuntil(b"\n\n")
            gates[0]()
            return first, await answer.read(), answer.headers

    with upstream() as server:
        server.answers[path] = [gated(server, EVENTS[api], gates)]
        first, rest, headers = with_gateway(model(name, server.address), use)
    assert first == as_event(EVENTS[api][0]) and rest == b"".join(map(as_event, EVENTS[api][1:]))
    assert headers["x-request-id"] == "req_1" and headers["Content-Type"].startswith("text/event-stream")


def test_all_requests_pass_at_once() -> None:
    """16 did, unless the file said otherwise."""
    gates: list[Callable[[], Any]] = []

    async def one(client: aiohttp.ClientSession, base: str) -> bytes:
        async with client.post(f"{base}/chat/completions", json=BODY) as answer:
            return await answer.read()

    async def use(client: aiohttp.ClientSession, base: str) -> list[bytes]:
        asking = [asyncio.ensure_future(one(client, base)) for _ in range(80)]
        while len(gates) < 80:
            await asyncio.sleep(0.005)
        for gate in gates:
            gate()
        return await asyncio.gather(*asking)

    with upstream() as server:
        server.answers["chat/completions"] = [gated(server, EVENTS["chat"], gates) for _ in range(80)]
        found = with_gateway(model("openai/up", server.address), use)
    assert found == [b"".join(map(as_event, EVENTS["chat"]))] * 80


@pytest.mark.parametrize("whole", [True, False], ids=["ends without its end", "breaks"])
def test_a_stream_that_breaks_is_told_as_it_is_and_is_not_asked_again(whole: bool) -> None:
    async def breaking(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(as_event(CHUNK))
        if not whole:
            await asyncio.sleep(0.05)
            assert request.transport is not None
            request.transport.abort()
        return response

    async def use(client: aiohttp.ClientSession, base: str) -> tuple[bytes, bool]:
        read = bytearray()
        async with client.post(f"{base}/chat/completions", json=BODY) as answer:
            try:
                async for part in answer.content.iter_any():
                    read += part
            except aiohttp.ClientPayloadError:
                return bytes(read), True
        return bytes(read), False

    with upstream() as server:
        server.answers["chat/completions"] = [breaking] * 4
        found, broke = with_gateway(model("openai/up", server.address), use)
        assert len(server.asked) == 1
    assert found.startswith(as_event(CHUNK)) and b"[DONE]" not in found
    assert broke is not whole and b'"error"' not in found


def test_a_client_that_hangs_up_ends_the_request_upstream() -> None:
    gates: list[Callable[[], Any]] = []

    async def use(client: aiohttp.ClientSession, base: str) -> None:
        async with client.post(f"{base}/chat/completions", json=BODY) as answer:
            await answer.content.readuntil(b"\n\n")
        while not server.broken:
            await asyncio.sleep(0.005)

    with upstream() as server:
        server.answers["chat/completions"] = [gated(server, EVENTS["chat"], gates)]
        with_gateway(model("openai/up", server.address), use)
        assert server.broken == 1


def test_nothing_is_asked_again_after_a_deadline() -> None:
    async def never(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        raise AssertionError("it was waited for")

    async def use(client: aiohttp.ClientSession, base: str) -> None:
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await client.post(f"{base}/chat/completions", json={"model": "m", "messages": USER})

    with upstream() as server:
        server.answers["chat/completions"] = [never] * 4
        with_gateway(model("openai/up", server.address, timeout=0.5, attempts=4), use)
        assert len(server.asked) == 1


# In a run

AGENT = """\
import json, os, sys, urllib.request, urllib.error
url, key = os.environ["OPENAI_BASE_URL"] + "/chat/completions", os.environ["OPENAI_API_KEY"]
messages = [{"role": "user", "content": json.load(sys.stdin)["text"]}]
body = json.dumps({"model": "m", "stream": True, "messages": messages})
headers = {"Content-Type": "application/json", "Authorization": "Bearer " + key}
read = b""
try:
    with urllib.request.urlopen(urllib.request.Request(url, body.encode(), headers)) as answer:
        while part := answer.read1():
            read += part
    print(read.hex())
except Exception as error:
    print("broken", read.hex())
"""


def run_row(server: Upstream, folder: Path, database: Path, run: int | None = None) -> tuple[str, Any]:
    """(what the agent printed, the ledger) of one row, in a new run or a resumed one."""
    (folder / "agent.py").write_text(AGENT)
    tree = {"external": "text -> label", "command": ["python", "agent.py"], "timeout": 30}
    workflow = Workflow({"nodes": {"agent": node_tree(tree)}}, folder)
    store = Store(database)
    number = run or add_run(store, run="t", name="t", status="running", spec="", options="{}")
    ledger = Ledger(store, number, BudgetSpec.model_validate({}))

    async def main() -> str:
        runtime = Runtime(ledger, lm_spec(model("openai/up", server.address)), {}, LMPool())
        try:
            outcome = await Program(workflow, runtime).run(Example("1", {"text": "x"}))
            return str(outcome.failure or outcome.prediction["label"])
        finally:
            await runtime.aclose()

    try:
        return asyncio.run(main()), (number, ledger.paid.calls, ledger.sent.usd, ledger.bill.failed)
    finally:
        store.close()


@pytest.mark.parametrize("pieces", [1, 2000], ids=["short", "long, which is packed"])
def test_a_streamed_call_of_a_run_is_recorded_and_replayed_byte_by_byte(pieces: int, tmp_path: Path) -> None:
    """h11: an answer of 4000 tokens took 1.7 MB of the database, and takes 150 kB."""
    events = [*[CHUNK] * pieces, END, "[DONE]"]
    wanted = b"".join(map(as_event, events))
    with upstream() as server:
        server.answers["chat/completions"] = [events]
        printed, (number, calls, _, _) = run_row(server, tmp_path, tmp_path / "run.db")
        assert bytes.fromhex(printed) == wanted and calls == 1
        store = Store(tmp_path / "run.db")
        (kept,) = store.rows("select response from calls where kind = 'lm'")
        assert len(kept["response"]) < 6000 + 8 * pieces
        store.execute("delete from calls where kind != 'lm'")  # as after a kill: the row is run again
        store.close()
        again, _ = run_row(server, tmp_path, tmp_path / "run.db", number)
        assert again == printed and len(server.asked) == 1


def test_a_stream_that_breaks_in_a_run_is_billed_and_not_asked_again(tmp_path: Path) -> None:
    async def breaking(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(as_event(CHUNK))
        await asyncio.sleep(0.05)
        assert request.transport is not None
        request.transport.abort()
        return response

    with upstream() as server:
        server.answers["chat/completions"] = [breaking]
        printed, (_, _, usd, failed) = run_row(server, tmp_path, tmp_path / "run.db")
        assert printed == "broken" and len(server.asked) == 1, "whatever the agent said, the row has no result"
    assert usd > 0 and failed == {"broken": 1}


# Pieces


def test_a_request_that_is_sent_again_reads_the_pieces_of_the_first() -> None:
    async def main() -> None:
        first, second = Pieces(), Pieces()
        first.begin({"x": "1"})
        first.add(b"a")
        second.follow(first)
        await asyncio.wait_for(second.wait(), 1)
        first.add(b"b")
        await asyncio.wait_for(second.wait(), 1)
        assert second.source.begun and second.after(0) == ([b"a", b"b"], 2) and second.after(1) == ([b"b"], 2)

    asyncio.run(main())


# Draining


def test_while_it_drains_requests_in_flight_end_and_new_ones_are_told_to_try_again() -> None:
    gates: list[Callable[[], Any]] = []

    async def main(server: Upstream) -> None:
        async with served(model("openai/up", server.address)) as (gateway, secret):
            headers = {"Authorization": f"Bearer {secret}"}
            async with aiohttp.ClientSession(headers=headers) as client:
                url = f"{gateway.address}/v1/chat/completions"
                async with client.post(url, json=BODY) as answer:
                    await answer.content.readuntil(b"\n\n")
                    draining = asyncio.ensure_future(gateway.drain(10))
                    await asyncio.sleep(0)
                    async with client.post(url, json=BODY) as other:
                        assert other.status == 503 and other.headers["retry-after"] == "1"
                        assert "x-should-retry" not in other.headers
                    assert not draining.done()
                    gates[0]()
                    assert (await answer.read()).endswith(b"[DONE]\n\n")
                assert await draining == 0

    with upstream() as server:
        server.answers["chat/completions"] = [gated(server, EVENTS["chat"], gates)]
        asyncio.run(main(server))


def test_a_drain_waits_no_longer_than_it_is_told() -> None:
    class Silent:
        async def complete(self, ask: Any) -> Any:
            await asyncio.sleep(60)
            raise Refused(500, "internal", "")

    async def main() -> None:
        gateway = await Gateway.open()
        secret = gateway.admit(Silent())  # type: ignore[arg-type]
        async with aiohttp.ClientSession() as client:
            body = {"model": "m", "messages": USER}
            url = f"{gateway.address}/s/{secret}/v1/chat/completions"
            asking = asyncio.ensure_future(client.post(url, data=json.dumps(body)))
            while not gateway._door.everybody()[0].requests:
                await asyncio.sleep(0.005)
            assert await gateway.drain(0.05) == 1
            await gateway.aclose()
            with suppress(aiohttp.ClientError):
                (await asking).close()

    asyncio.run(main())


# Siblings


@pytest.mark.parametrize(
    ("answer", "status", "type_", "again"),
    [
        ((400, {"error": {"message": "no", "type": "invalid_request_error"}}), 400, "application/json", 1),
        ((429, {"error": {"message": "slow down", "type": "rate_limit_error"}}), 429, "application/json", 1),
        ((503, {"error": {"message": "busy"}}), 503, "application/json", 1),
        ((200, {"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}), 200, "application/json", 1),
        ([CHUNK, END], 200, "text/event-stream", 1),
        ([{"error": {"message": "overloaded", "code": 503}}], 200, "text/event-stream", 1),
        ([], 200, "text/event-stream", 1),
    ],
    ids=["400", "429", "503", "no stream", "no [DONE]", "error as an event", "nothing"],
)
def test_what_answers_a_streamed_request_comes_as_it_is_and_once(
    answer: Any, status: int, type_: str, again: int
) -> None:
    async def use(client: aiohttp.ClientSession, base: str) -> tuple[int, str, bytes, str]:
        async with client.post(f"{base}/chat/completions", json=BODY) as found:
            return found.status, found.content_type, await found.read(), found.headers.get("retry-after", "")

    with upstream() as server:
        server.headers["retry-after"] = "3"
        server.answers["chat/completions"] = [answer] * 3
        found = with_gateway(model("openai/up", server.address), use)
        assert len(server.asked) == again
    assert found[:2] == (status, type_)
    if isinstance(answer, list):
        assert found[2] == b"".join(map(as_event, answer))
    else:
        assert json.loads(found[2]) == answer[1] and found[3] == "3"


def test_several_answers_are_streamed_in_one_stream() -> None:
    events = [{"choices": [{"index": n, "delta": {"content": str(n)}, "finish_reason": None}]} for n in (1, 0)]
    events += [{"choices": [{"index": n, "delta": {}, "finish_reason": "stop"}]} for n in (1, 0)]

    async def use(client: aiohttp.ClientSession, base: str) -> bytes:
        async with client.post(f"{base}/chat/completions", json={**BODY, "n": 2}) as found:
            return await found.read()

    with upstream() as server:
        server.answers["chat/completions"] = [[*events, "[DONE]"]]
        found = with_gateway(model("openai/up", server.address), use)
        assert len(server.asked) == 1
    assert found == b"".join(map(as_event, [*events, "[DONE]"]))
