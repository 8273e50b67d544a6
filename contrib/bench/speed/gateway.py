"""What the gateway adds to a call of an agent: client, gateway and a stub session in one process.

    python contrib/bench/speed/gateway.py [--calls 2000] [--concurrency 64] [--latency 0.1]

- one after the other, with a session that answers at once: median seconds on the clock and CPU a call, beside the same
  call of the session without a gateway and the same request to a bare aiohttp server with a fixed answer. The client's
  own work is in both HTTP figures, so the gateway's is below what is shown.
- many at once, with a session that takes `latency` seconds: the wall time against the ideal of calls / concurrency x
  latency.

Targets: below 2 ms on the clock and 1.5 ms of CPU a call; within 1.25 of the ideal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence

import aiohttp
from aiohttp import web

from workbench.lm import Response
from workbench_external.gateway import Ask, Gateway, chat, chat_events, writing

MESSAGES = [
    {"role": "system", "content": "You are a careful assistant. " * 20},
    {"role": "user", "content": "What is 2 plus 2? " * 10},
]
BODY = {"model": "m", "messages": MESSAGES, "temperature": 0.0, "max_tokens": 64}
PATHS = {
    "chat": ("/v1/chat/completions", BODY),
    "chat, streamed": ("/v1/chat/completions", {**BODY, "stream": True}),
    "responses": ("/v1/responses", {"model": "m", "input": MESSAGES}),
    "messages": ("/v1/messages", {**BODY, "messages": MESSAGES[1:], "system": MESSAGES[0]["content"]}),
}


class StubSession:
    """Gives one fixed answer after so many seconds."""

    def __init__(self, seconds: float):
        self.seconds, self.answer = seconds, Response("It is 4. " * 30, prompt_tokens=150, completion_tokens=90)

    async def complete(self, ask: Ask) -> Sequence[Response]:
        if self.seconds:
            await asyncio.sleep(self.seconds)
        return [self.answer]

    async def embed(self, texts: Sequence[str], model: str) -> tuple[Sequence[Sequence[float]], int]:
        return [[0.0] for _ in texts], 0

    def models(self) -> Sequence[str]:
        return ["m"]


async def repeat(ask: Callable[[], Awaitable[None]], calls: int) -> str:
    """Median milliseconds on the clock, and mean of CPU, of calls one after the other."""
    for _ in range(50):
        await ask()
    times, cpu = [], time.process_time()
    for _ in range(calls):
        begun = time.perf_counter()
        await ask()
        times.append(time.perf_counter() - begun)
    cpu = time.process_time() - cpu
    return f"{statistics.median(times) * 1e3:6.2f} ms on the clock {cpu / calls * 1e3:6.2f} ms of CPU a call"


async def all_at_once(ask: Callable[[], Awaitable[None]], calls: int, concurrency: int) -> float:
    left = iter(range(calls))

    async def worker() -> None:
        for _ in left:
            await ask()

    begun = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return time.perf_counter() - begun


async def bare_server(seconds: float) -> tuple[asyncio.Server, str]:
    """A server with one fixed answer after so many seconds, and its address."""
    raw = json.dumps(writing.write_body(chat_events.ChatWriter(BODY), (), [StubSession(0.0).answer])).encode()

    async def fixed(request: web.BaseRequest) -> web.Response:
        await request.read()
        await asyncio.sleep(seconds)
        return web.Response(body=raw, content_type="application/json")

    bare = await asyncio.get_running_loop().create_server(web.Server(fixed), "127.0.0.1", 0, backlog=1024)
    return bare, f"http://127.0.0.1:{bare.sockets[0].getsockname()[1]}/"


async def one_by_one(client: aiohttp.ClientSession, calls: int) -> None:
    session = StubSession(0.0)

    async def direct() -> None:
        await session.complete(chat.read_chat(BODY))

    print(f"{'no gateway':<18} {await repeat(direct, calls)}")
    bare, url = await bare_server(0.0)
    print(f"{'bare HTTP':<18} {await repeat(lambda: post(client, url, BODY), calls)}")
    bare.close()
    gateway = await Gateway.open()
    base = f"{gateway.address}/s/{gateway.admit(session)}"
    for name, (path, body) in PATHS.items():
        print(f"{name:<18} {await repeat(lambda: post(client, base + path, body), calls)}")  # noqa: B023
    await gateway.aclose()


async def post(client: aiohttp.ClientSession, url: str, body: object) -> None:
    async with client.post(url, json=body) as answer:
        assert answer.status == 200
        await answer.read()


async def at_once(client: aiohttp.ClientSession, calls: int, concurrency: int, latency: float) -> None:
    session, ask = StubSession(latency), chat.read_chat(BODY)
    ideal = calls / concurrency * latency
    print(f"ideal {ideal:.2f} s: {calls} calls, {concurrency} at once, {latency} s each")

    async def direct() -> None:
        await session.complete(ask)

    print(f"{'no gateway':<18} {await all_at_once(direct, calls, concurrency) / ideal:.2f} x ideal")
    bare, url = await bare_server(latency)
    seconds = await all_at_once(lambda: post(client, url, BODY), calls, concurrency)
    print(f"{'bare HTTP':<18} {seconds / ideal:.2f} x ideal")
    bare.close()
    gateway = await Gateway.open()
    base = f"{gateway.address}/s/{gateway.admit(session)}"
    for name, (path, body) in PATHS.items():
        seconds = await all_at_once(lambda: post(client, base + path, body), calls, concurrency)  # noqa: B023
        print(f"{name:<18} {seconds / ideal:.2f} x ideal")
    await gateway.aclose()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--latency", type=float, default=0.1)
    args = parser.parse_args()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
        await one_by_one(client, args.calls)
        await at_once(client, args.calls, args.concurrency, args.latency)


if __name__ == "__main__":
    asyncio.run(main())
