"""How many calls a second a driver settles: simulated workers in other processes, real messages, ledger and journal.

    python contrib/bench/speed/saturation.py [--workers 100] [--rows 10000] [--latency 10] [--processes 2]

Nothing here sends a request: a simulated worker asks for a call, waits as long as a model would take, and answers. All
else is as in a run. `--rows` are in flight at once, so without a limit there would be rows / latency calls a second;
lower latencies show where the driver ends.

Printed: calls a second, the share of what the latency allows, CPU of the driver for each call, and its memory.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr

from workbench.base.concurrency import run_in_loop
from workbench.ledger import Ledger
from workbench.lm import LMPool, Request, Response
from workbench.runtime import Runtime, SandboxChoice
from workbench.spec import BudgetSpec, PolicySpec, lm_spec
from workbench.store import Store, add_run
from workbench.study import Evaluator
from workbench.task import Example
from workbench.workflow import CallRecord, ExampleRun, Span, Trace, Workflow
from workbench_workers import Channel, Crew, Executor, Sockets, WorkerSetup, messages, sockets

QUESTION = "What is the capital of the country in which the river of this name rises, and how many people live there? "


class Simulated(Executor):
    """Workers that only answer, many in a process."""

    processes: int = 2
    latency: float = 10.0
    _sockets: Sockets = PrivateAttr()
    _children: list[subprocess.Popen[bytes]] = PrivateAttr(default_factory=list)

    async def open(self, setup: WorkerSetup) -> None:
        self._sockets = Sockets("127.0.0.1", setup)
        port = str(self._sockets.address[1])
        for number in range(self.processes):
            mine = ",".join(map(str, range(number, self.workers, self.processes)))
            command = [sys.executable, __file__, "--join", port, self._sockets.key.hex(), mine, str(self.latency)]
            self._children.append(subprocess.Popen(command))

    async def start(self, number: int) -> Channel:
        return await self._sockets.join(number, 120)

    async def aclose(self) -> None:
        self._sockets.close()
        for child in self._children:
            child.kill()
            child.wait()


async def simulate(port: int, key: bytes, numbers: list[int], latency: float) -> None:
    """The workers of one process."""
    await asyncio.gather(*(simulate_worker(port, key, number, latency) for number in numbers))


async def simulate_worker(port: int, key: bytes, number: int, latency: float) -> None:
    connection = await asyncio.to_thread(Client, ("127.0.0.1", port), authkey=key)
    connection.send(number)
    line, loop, rows = sockets.SocketLine(connection), asyncio.get_running_loop(), dict[int, messages.RunRow]()
    (setup,) = await line.receive()
    identity = LMPool().get(setup.lm).identity
    line.send(messages.Ready(f"simulated {number}", os.getpid()))

    def take(message: Any) -> None:
        if isinstance(message, messages.RunRow):
            rows[message.row] = message
            request = Request(({"role": "user", "content": QUESTION + str(message.example["question"])},))
            line.send(messages.Call(message.row, message.row, request, "task", setup.lm, identity))
        elif isinstance(message, messages.Reply) and message.value is messages.Order.SEND:
            answer = Response("Here is an answer of some length, as models give it.", "stop", 40, 12, 0.0)
            loop.call_later(latency, line.send, messages.Came(message.number, message.number, answer, None, latency))
        elif isinstance(message, messages.Reply):
            row, (_, settled) = rows.pop(message.number), message.value
            record = CallRecord((), Response("yes", "stop", 40, 12, 0.0), "task", "m", False, 0.0, key=settled.key)
            trace = Trace(row.example.id, [Span("n", "Predict", dict(row.example), {"answer": "yes"}, [record])])
            outcome = messages.pack_outcome(ExampleRun({"answer": "yes"}, trace))
            line.send(messages.RowEnded(row.row, outcome, None, time.time()))
        elif isinstance(message, messages.End):
            line.send(messages.Ended())

    async def beat() -> None:
        while True:
            await asyncio.sleep(5)
            line.send(messages.Alive())

    beating = asyncio.create_task(beat())
    try:
        while True:
            for message in await line.receive():
                take(message)
    except ConnectionError:
        beating.cancel()


def right(example: Example, prediction: Any, trace: Any) -> float:
    return 1.0


def measure(asked: argparse.Namespace) -> None:
    rows = int(asked.rows * asked.rounds)
    examples = [Example(str(i), {"question": f"number {i}"}) for i in range(rows)]
    workflow = Workflow({"nodes": {"n": {"kind": "predict", "signature": "question -> answer"}}})

    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            store = Store(Path(folder) / "run.db")
            number = add_run(store, run="b", name="b", status="running", spec="", options="{}")
            marks: list[tuple[float, float]] = []
            ledger = Ledger(
                store,
                number,
                BudgetSpec.model_validate({}),
                lambda call: marks.append((time.perf_counter(), time.process_time())),
            )
            each = -(-asked.rows // asked.workers)
            spec = lm_spec({"model": "openai/m", "api_base": "http://127.0.0.1:9/v1", "concurrency": each + 1})
            runtime = Runtime(ledger, spec)
            given = {"workers": asked.workers, "processes": asked.processes, "latency": asked.latency}
            setup = WorkerSetup(Path(folder), spec, {}, PolicySpec(), 60.0, SandboxChoice())
            runtime.elsewhere = crew = Crew(Simulated.model_validate(given), runtime, setup)
            await crew.open()
            await Evaluator(runtime, right, asked.rows).evaluate(workflow, examples)
            await runtime.aclose()
            ledger.close()
            store.close()
        first, last = marks[rows // 10], marks[-rows // 10]
        rate = (rows - 2 * (rows // 10)) / (last[0] - first[0])
        cpu = (last[1] - first[1]) / (rows - 2 * (rows // 10))
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        share = rate * asked.latency / asked.rows
        print(
            f"{asked.workers:7d}  {asked.rows:6d}  {asked.latency:7g}  {rate:7.0f}  {share:8.2f}  "
            f"{cpu * 1000:7.2f}  {most:6d}"
        )

    run_in_loop(main())


def main() -> None:
    if sys.argv[1:2] == ["--join"]:
        port, key, numbers, latency = sys.argv[2:6]
        asyncio.run(simulate(int(port), bytes.fromhex(key), [*map(int, numbers.split(","))], float(latency)))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--rows", type=int, default=10_000, help="in flight at once")
    parser.add_argument("--rounds", type=float, default=3.0, help="times that many rows in all")
    parser.add_argument("--latency", type=float, default=10.0)
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    print("workers    rows  latency  calls/s  of ideal  ms/call  MiB")
    measure(asked)


if __name__ == "__main__":
    main()
