"""Checks of an executor's contract: rows in its workers give what rows in this process give, whatever happens to them.

Each check starts workers, runs rows of one call each, and raises AssertionError with a remedy. What is about the end of
a process needs workers on this machine.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

from workbench.errors import BudgetSpent
from workbench.lm import LMPool, Request, Response
from workbench.runtime import Draw, Program, Run, SandboxChoice
from workbench.spec import BudgetSpec, LMSpec, PolicySpec, lm_spec
from workbench.store import Store, add_run
from workbench.task import Example
from workbench.workflow import ExampleRun, Workflow, node_tree
from workbench_testing.case import assert_documented, checks_in, name_of, run_all
from workbench_testing.lms import ChatServer
from workbench_workers import Crew, Executor, WorkerSetup

Make = Callable[[], Executor]
Outcome = ExampleRun | BaseException
_ROWS, _LARGE = 12, 8_000_000
_PID = re.compile(r"pid (\d+)")


class _Echo(LMPool):
    """The driver's own model, which answers with the last message after some time."""

    identity, concurrency = "echo, no model", 64

    def __init__(self, seconds: float):
        super().__init__()
        self.seconds = seconds

    def get(self, spec: LMSpec) -> Any:
        return self

    async def complete(self, request: Request) -> Response:
        await asyncio.sleep(self.seconds)
        return Response(str(request.messages[-1]["content"])[-20:], "stop", 1, 1, 0.0)

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return 0.0

    async def aclose(self) -> None:
        """Nothing to close."""


class _Driver:
    """Rows with a journal of their own, in this process or in workers."""

    def __init__(self, folder: Path, executor: Executor | None, pool: LMPool | None, spec: LMSpec, calls: int):
        self.store = Store(folder / f"{'here' if executor is None else 'there'}.db")
        number = add_run(self.store, run="r", name="rows", status="running", spec="", options="{}")
        self.run = Run(self.store, number, "r", spec, budget=BudgetSpec.model_validate({"calls": calls}), pool=pool)
        self.ledger, self.runtime = self.run.ledger, self.run.runtime
        self.events: list[tuple[str, dict[str, Any]]] = []
        if executor is not None:
            setup = WorkerSetup(folder, spec, {}, PolicySpec(), 60.0, SandboxChoice())
            self.runtime.elsewhere = Crew(executor, self.runtime, setup, lambda event, **data: self._hear(event, data))
        workflow = Workflow({"nodes": {"n": node_tree({"predict": "text -> answer"})}}, folder)
        workflow.check()
        self.program = Program(workflow, self.runtime)

    def _hear(self, event: str, data: dict[str, Any]) -> None:
        self.events.append((event, data))

    @property
    def pids(self) -> list[int]:
        """The pids of the workers on this machine."""
        here = f"{socket.gethostname()} "
        names = [str(data["worker"]) for event, data in self.events if event == "worker_started"]
        return [int(found[1]) for name in names if name.startswith(here) and (found := _PID.search(name))]

    def start(self, rows: Sequence[str]) -> list[asyncio.Task[ExampleRun]]:
        examples = [Example(str(i), {"text": text}) for i, text in enumerate(rows)]
        return [asyncio.create_task(self.program.run(example, Draw())) for example in examples]

    async def aclose(self) -> None:
        await self.run.aclose()
        self.store.close()


def _drive(
    make: Make | None,
    use: Callable[[_Driver], Awaitable[Any]],
    *,
    pool: LMPool | None = None,
    address: str = "http://127.0.0.1:9/v1",
    calls: int = 1000,
) -> Any:
    async def main() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            spec = lm_spec({"model": "openai/m", "api_base": address, "attempts": 1})
            async with aclosing(_Driver(Path(folder), make() if make else None, pool, spec, calls)) as driver:
                return await use(driver)

    return asyncio.run(main())


async def _all(driver: _Driver) -> tuple[list[Outcome], int]:
    tasks = driver.start([f"row {i}" for i in range(_ROWS)])
    return await asyncio.gather(*tasks, return_exceptions=True), driver.ledger.spent.calls


def check_executor(make: Make) -> None:
    """Run all checks on an executor. make: gives a new one, with two workers. Raises AssertionError that says what to
    fix."""
    run_all(executor_checks(), make)


def executor_checks() -> list[Callable[[Make], None]]:
    """All checks, for `pytest.mark.parametrize`."""
    return checks_in(__name__)


def check_executor_is_documented(make: Make) -> None:
    """A docstring, and a description of each setting."""
    executor = type(make())
    assert_documented(executor, executor.__name__)
    for name, field in executor.model_fields.items():
        assert field.description, f"{executor.__name__}: the setting '{name}' needs a description"


def check_executor_gives_what_rows_here_give(make: Make) -> None:
    """The same predictions, calls and bill, and the workers send the calls."""
    with ChatServer() as server:
        here, paid_here = _drive(None, _all, address=server.address)
        there, paid_there = _drive(make, _all, address=server.address)
    told = [run.trace.calls[0].response.text if isinstance(run, ExampleRun) else run for run in there]
    expected = [run.trace.calls[0].response.text for run in here]
    assert told == expected, f"{name_of(make)}: rows gave {told}, in this process {expected}"
    assert paid_there == paid_here, f"{name_of(make)}: {paid_there} calls were paid, in this process {paid_here}"


def check_executor_carries_large_rows(make: Make) -> None:
    """A row of eight megabytes arrives whole, and comes back."""

    async def use(driver: _Driver) -> Outcome:
        (task,) = driver.start(["x" * _LARGE])
        return (await asyncio.gather(task, return_exceptions=True))[0]

    found = _drive(make, use, pool=_Echo(0))
    whole = isinstance(found, ExampleRun) and len(found.trace.spans[0].inputs["text"]) == _LARGE
    assert whole, f"{name_of(make)}: a row of {_LARGE / 1e6:g} MB gave {found!r:.200}"


def check_executor_raises_what_ends_a_run(make: Make) -> None:
    """A ceiling that is reached is raised for the row, as BudgetSpent, and holds."""

    async def use(driver: _Driver) -> tuple[list[Outcome], int]:
        return await asyncio.wait_for(_all(driver), 120)

    found, paid = _drive(make, use, pool=_Echo(0), calls=5)
    spent = sum(isinstance(one, BudgetSpent) for one in found)
    assert paid == 5 and spent == _ROWS - 5, (
        f"{name_of(make)}: with 5 calls for {_ROWS} rows, {paid} were paid: {found}"
    )


def check_executor_outlives_a_worker(make: Make) -> None:
    """A worker that is killed is lost at once, its rows run elsewhere, and `start` is asked for another."""

    async def use(driver: _Driver) -> tuple[list[Outcome], int, int]:
        tasks = driver.start([f"row {i}" for i in range(_ROWS)])
        end = time.monotonic() + 120
        while len(driver.pids) < 2 and time.monotonic() < end:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        killed = driver.pids[:1]
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        found = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 120)
        lost = sum(event == "worker_lost" for event, _ in driver.events)
        return found, len(killed), lost

    found, killed, lost = _drive(make, use, pool=_Echo(2.0))
    wrong = [one for one in found if not isinstance(one, ExampleRun) or one.failure]
    assert not wrong, f"{name_of(make)}: after a worker was killed, rows gave {wrong[0]!r:.300}"
    assert lost == killed, (
        f"{name_of(make)}: {killed} workers were killed and {lost} lost: receive() must raise WorkerLost"
    )


def check_executor_ends_its_workers(make: Make) -> None:
    """Once it is closed, no worker is left on this machine."""

    async def use(driver: _Driver) -> list[int]:
        await _all(driver)
        return driver.pids

    pids, end = _drive(make, use, pool=_Echo(0)), time.monotonic() + 20
    while (left := [pid for pid in pids if _is_running(pid)]) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left, f"{name_of(make)}: {len(left)} workers run on after aclose()"


def _is_running(pid: int) -> bool:
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat").read_text() if os.path.isdir("/proc") else ""
    except (ProcessLookupError, FileNotFoundError):  # it may end between the two
        return False
    return not stat.rpartition(")")[2].startswith(" Z")
