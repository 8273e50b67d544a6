"""What `workbench agent gateway` costs: CPU a call, the way of a first piece, and many streams at once.

    python contrib/bench/speed/passing.py [--calls 2000] [--streams 500]

The gateway, its session and the client of the model's server run in this process; the server and the agents run in
processes of their own, so that what is measured here is the gateway's alone.

- CPU: of this process a call, one after the other, in each API, whole and streamed (10 events); beside it that of a
  bare proxy, which sends bodies to and fro. What is above it is the gateway's own. The least of ten batches is told:
  what others do on the machine adds to the rest.
- first piece: from the moment when the server writes an event to the moment when the agent has it, less the same
  without a gateway; the clock of the machine is the same for all processes.
- at once: that many streams, none of which ends before all have begun; how many came whole.

Targets: less than 0.3 ms of CPU a call above the bare proxy, whole and streamed; 5 ms for a first piece; none lost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

sys.path.insert(0, str(Path(__file__).parents[3]))  # for the stand-in of the tests

from tests.helpers.passing import APIS, model, served
from tests.helpers.upstream import USUAL, as_event

TEXT = "You are a careful assistant. " * 20
USER = [{"role": "user", "content": "What is 2 plus 2? " * 10}]
BODIES: Mapping[str, Any] = {
    "chat": {"messages": [{"role": "system", "content": TEXT}, *USER], "max_tokens": 64},
    "responses": {"instructions": TEXT, "input": USER},
    "messages": {"system": TEXT, "messages": USER, "max_tokens": 64},
}
ENDS: Mapping[str, list[Any]] = {
    "chat/completions": [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, "[DONE]"],
    "responses": [{"type": "response.completed", "response": USUAL["responses"]}],
    "messages": [
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ],
}
BATCHES = 10
STARTS: Mapping[str, list[Any]] = {"messages": [{"type": "message_start", "message": USUAL["messages"]}]}


def run_server(pipe: Connection) -> None:
    """The model's server. A stream whose request says `together` goes on when so many have begun."""
    begun, all_there = 0, asyncio.Event()

    async def handle(request: web.Request) -> web.StreamResponse:
        nonlocal begun
        body, path = await request.json(), request.path.removeprefix("/v1/")
        if not body.get("stream"):
            return web.json_response(USUAL[path])
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in STARTS.get(path, []):
            await response.write(as_event(event))
        if together := (body.get("metadata") or {}).get("together"):
            begun += 1
            if begun >= together:
                all_there.set()
            await response.write(as_event({"type": "ping"}))
            await all_there.wait()
        for _ in range(10):
            delta = {"choices": [{"index": 0, "delta": {"content": "word "}}], "sent": time.monotonic()}
            await response.write(as_event(delta))
        for event in ENDS[path]:
            await response.write(as_event(event))
        return response

    async def serve() -> None:
        app = web.Application()
        app.router.add_post("/{path:.*}", handle)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=2048).start()
        pipe.send(f"http://127.0.0.1:{runner.addresses[0][1]}")
        await asyncio.Event().wait()

    asyncio.run(serve())


def run_agents(pipe: Connection) -> None:
    """Agents: each job is (what, url, headers, body, number); what comes back is said in `main`."""

    async def one(client: aiohttp.ClientSession, url: str, body: Any) -> tuple[bytes, float]:
        async with client.post(url, json=body) as answer:
            read, late = bytearray(), float("nan")
            async for part in answer.content.iter_any():
                if b'"sent"' in part and late != late:
                    event = next(line for line in part.split(b"\n\n") if b'"sent"' in line)
                    late = time.monotonic() - json.loads(event.partition(b"data: ")[2])["sent"]
                read += part
            return bytes(read), late

    async def work() -> None:
        while (job := await asyncio.to_thread(pipe.recv)) is not None:
            what, url, headers, body, number = job
            connector = aiohttp.TCPConnector(limit=0)
            async with aiohttp.ClientSession(headers=headers, connector=connector) as client:
                if what == "at once":
                    found = await asyncio.gather(*(one(client, url, body) for _ in range(number)))
                else:
                    found = [await one(client, url, body) for _ in range(number)]
            whole = sum(b"finish_reason" in raw and raw.endswith(b"[DONE]\n\n") for raw, _ in found)
            late = [seconds for _, seconds in found if seconds == seconds]
            pipe.send((whole, statistics.median(late) if late else 0.0))

    asyncio.run(work())


def begin(target: Any) -> Connection:
    ours, theirs = multiprocessing.Pipe()
    multiprocessing.get_context("spawn").Process(target=target, args=(theirs,), daemon=True).start()
    return ours


async def cpu_of(ask: Any, calls: int) -> float:
    await ask(50)
    found = list[float]()
    for _ in range(BATCHES):
        begun = time.process_time()
        await ask(calls // BATCHES)
        found.append((time.process_time() - begun) / (calls // BATCHES))
    return min(found)


@asynccontextmanager
async def proxy(upstream: str) -> AsyncIterator[str]:
    """What aiohttp itself costs: a server that sends each body on and gives the answer back, and does nothing else."""
    async with aiohttp.ClientSession() as client:

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            raw = await request.read()
            async with client.post(
                upstream + request.path, data=raw, headers={"Content-Type": "application/json"}
            ) as found:
                if found.content_type != "text/event-stream":
                    return web.Response(body=await found.read(), content_type="application/json")
                response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
                await response.prepare(request)
                async for part in found.content.iter_any():
                    await response.write(part)
                return response

        server = await asyncio.get_running_loop().create_server(web.Server(handle), "127.0.0.1", 0)
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        server.close()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--streams", type=int, default=500)
    args = parser.parse_args()
    server, agents = begin(run_server), begin(run_agents)
    upstream = await asyncio.to_thread(server.recv)

    async def ask(what: str, url: str, headers: Any, body: Any, number: int) -> tuple[int, float]:
        agents.send((what, url, headers, body, number))
        return await asyncio.to_thread(agents.recv)

    async with proxy(upstream) as address:
        for streamed in (False, True):
            sent = {"model": "m", **BODIES["chat"], **({"stream": True} if streamed else {})}
            cpu = await cpu_of(lambda n: ask("one", f"{address}/v1/chat/completions", {}, sent, n), args.calls)  # noqa: B023
            print(f"{'a bare proxy' + (', streamed' if streamed else ''):<22} {cpu * 1e3:.2f} ms of CPU a call")
    for api, body in BODIES.items():
        path, name = APIS[api]
        async with served(model(name, upstream)) as (gateway, secret):
            headers, url = {"Authorization": f"Bearer {secret}"}, f"{gateway.address}/v1/{path}"
            for streamed in (False, True):
                sent = {"model": "m", **body, **({"stream": True} if streamed else {})}
                late = 0.0

                async def ask_often(number: int) -> None:
                    nonlocal late
                    _, late = await ask("one", url, headers, sent, number)  # noqa: B023

                cpu = await cpu_of(ask_often, args.calls)
                line = f"{api + (', streamed' if streamed else ''):<22} {cpu * 1e3:.2f} ms of CPU a call"
                if streamed:
                    _, bare = await ask("one", f"{upstream}/v1/{path}", {}, sent, args.calls)
                    line += f"; first piece after {late * 1e3:.2f} ms, {bare * 1e3:.2f} ms without a gateway"
                print(line)
    async with served(model("openai/up", upstream)) as (gateway, secret):
        headers, url = {"Authorization": f"Bearer {secret}"}, f"{gateway.address}/v1/chat/completions"
        sent = {"model": "m", **BODIES["chat"], "stream": True, "metadata": {"together": args.streams}}
        began = time.monotonic()
        whole, _ = await ask("at once", url, headers, sent, args.streams)
        print(f"{args.streams} streams at once: {whole} came whole, in {time.monotonic() - began:.1f} s")
    agents.send(None)


if __name__ == "__main__":
    asyncio.run(main())
