"""A winner under load, called from Python and served over HTTP, against an echo server with a fixed latency.

    python contrib/bench/speed/serve_load.py [--requests 1000] [--concurrency 64]

The ideal is requests / concurrency x latency. Four ways to ask for the same rows, one call a row:

- client alone: our HTTP client without workflow and ledger; what it takes above the ideal is HTTP and the machine;
- direct: `wf.acall` of each row from the event loop of a program;
- batch: `wf.batch`, with its CPU a row above that of direct calls of the same program;
- serve: `workbench serve` in a process of its own, asked over HTTP by this one.

Targets: wall time within 1.2 of the ideal for direct calls and through `serve`; less than 1 ms of CPU a row that
`batch` adds to direct calls. The machine is often shared: compare ratios with those of the client alone.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from overhead import client, echo_server

import workbench
from workbench.inference import LoadedWorkflow

Found = tuple[float, float]
"""Seconds on the clock, and seconds of CPU a request."""


def write_workflow(folder: Path, url: str, concurrency: int) -> Path:
    path = folder / "winner.yaml"
    lm = {"model": "openai/echo", "api_base": url, "concurrency": concurrency}
    nodes = {"answer": {"predict": "question -> answer"}}
    path.write_text(json.dumps({"name": "winner", "lm": lm, "nodes": nodes, "concurrency": concurrency}))
    return path


async def ask_all(rows: list[dict], concurrency: int, ask: Callable[[dict], Awaitable[None]]) -> float:
    """Seconds until all rows are answered, with so many in flight."""
    left = iter(rows)

    async def worker() -> None:
        for row in left:
            await ask(row)

    begun = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return time.perf_counter() - begun


def direct(wf: LoadedWorkflow, rows: list[dict], concurrency: int) -> Found:
    async def ask(row: dict) -> None:
        assert (await wf.acall(**row)).ok

    cpu = time.process_time()
    seconds = asyncio.run(ask_all(rows, concurrency, ask))
    return seconds, (time.process_time() - cpu) / len(rows)


def batch(wf: LoadedWorkflow, rows: list[dict], concurrency: int) -> Found:
    cpu, begun = time.process_time(), time.perf_counter()
    assert all(p.ok for p in wf.batch(rows, concurrency=concurrency))
    return time.perf_counter() - begun, (time.process_time() - cpu) / len(rows)


def served(address: str, pid: int, rows: list[dict], concurrency: int) -> Found:
    """CPU is that of the server. The client reads no more of HTTP than the server writes: it shares the machine."""
    host, port = address.removeprefix("http://").split(":")

    async def main() -> float:
        connections = [await asyncio.open_connection(host, int(port)) for _ in range(concurrency)]

        async def ask(row: dict) -> None:
            reader, writer = connections.pop()
            body = json.dumps(row).encode()
            head = f"POST /predict HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answered = await reader.readuntil(b"\r\n\r\n")
            assert answered.startswith(b"HTTP/1.1 200")
            length = int(answered.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            assert json.loads(await reader.readexactly(length))["outputs"]["answer"]
            connections.append((reader, writer))

        seconds = await ask_all(rows, concurrency, ask)
        for _, writer in connections:
            writer.close()
        return seconds

    cpu = cpu_of(pid)
    seconds = asyncio.run(main())
    return seconds, (cpu_of(pid) - cpu) / len(rows)


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def server(path: Path) -> Iterator[tuple[str, int]]:
    """The address and the process of `workbench serve`."""
    command = [sys.executable, "-m", "workbench", "serve", str(path), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield process.stderr.readline().split()[-1], process.pid
        finally:
            process.terminate()


def show(name: str, found: list[Found], ideal: float) -> None:
    wall, cpu = (statistics.median(values) for values in zip(*found, strict=True))
    ratios = ", ".join(f"{seconds / ideal:.2f}" for seconds, _ in found)
    shown = f"   {cpu * 1e3:.2f} ms CPU a request" if cpu else ""
    print(f"{name:<14} {wall:.3f} s = {wall / ideal:.2f} x ideal ({ratios}){shown}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    rows = [{"question": f"What is {i} plus {i}?"} for i in range(args.requests)]
    ideal = args.requests / args.concurrency * args.latency
    print(f"ideal {ideal:.3f} s: {args.requests} requests, {args.concurrency} at once, {args.latency} s each")
    with tempfile.TemporaryDirectory() as folder, echo_server(args.latency) as url:
        path = write_workflow(Path(folder), url, args.concurrency)
        with workbench.load(path) as wf, server(path) as (address, pid):
            ways: dict[str, Callable[[], Found]] = {
                "client alone": lambda: (client(url, rows, args.concurrency), 0.0),
                "direct": lambda: direct(wf, rows, args.concurrency),
                "batch": lambda: batch(wf, rows, args.concurrency),
                "serve": lambda: served(address, pid, rows, args.concurrency),
            }
            for ask in ways.values():
                ask()  # connections, caches
            gc.freeze()  # as a program does once it has loaded all: a pass over the whole heap takes 60 ms
            found = {name: [] for name in ways}
            for _ in range(args.repeats):  # by turns, so that what others do on the machine meets all of them
                for name, ask in ways.items():
                    found[name].append(ask())
    for name, values in found.items():
        show(name, values, ideal)
    added = [b[1] - d[1] for b, d in zip(found["batch"], found["direct"], strict=True)]
    print(f"batch adds {statistics.median(added) * 1e3:+.2f} ms of CPU a row to direct calls")


if __name__ == "__main__":
    main()
