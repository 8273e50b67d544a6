"""The two halves of an executor, in one loop: stops, ends of workers, what they share, and what a line may do."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from multiprocessing.connection import Client
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.helpers.scripted import Script, make_workflow
from tests.helpers.task_executor import Tasks

from workbench.errors import FailureKind, Interrupted, SpecError
from workbench.ledger import Ledger
from workbench.lm import LMPool
from workbench.run import prepare
from workbench.runtime import Draw, Program, Runtime, SandboxChoice, make_crew, make_executor
from workbench.spec import BudgetSpec, PolicySpec, lm_spec
from workbench.store import Store
from workbench.task import Example
from workbench.workflow import ExampleRun, Trace
from workbench_testing import write_task
from workbench_workers import Crew, Executor, Sockets, WorkerLost, WorkerSetup, member, messages, sockets, worker

SPEC = lm_spec({"model": "openai/scripted", "attempts": 1})


def setup_in(folder: Path) -> WorkerSetup:
    return WorkerSetup(folder, SPEC, {}, PolicySpec(), 60.0, SandboxChoice())


def run_rows(
    folder: Path,
    executor: Executor,
    number: int,
    meanwhile: Callable[[Crew], Coroutine[Any, Any, None]] | None = None,
    rows: int | None = 64,
    pool: LMPool | None = None,
) -> list[ExampleRun | BaseException]:
    """Run rows of one call each in workers."""
    workflow = make_workflow({"n": {"predict": "text -> label: Literal['yes', 'no']"}}, folder)

    async def main() -> list[ExampleRun | BaseException]:
        store = Store(folder / "run.db")
        store.execute("insert into runs (id, run, status, started, spec, options) values (1, 'r', '', '', '', '')")
        ledger = Ledger(store, 1, BudgetSpec.model_validate({"calls": 100}))
        runtime = Runtime(ledger, SPEC, {}, pool or Script(lambda request: "yes"))
        crew = runtime.elsewhere = Crew(executor, runtime, setup_in(folder), rows=rows)
        program = Program(workflow, runtime)
        given = [Example(str(i), {"text": f"row {i}"}) for i in range(number)]
        work = [asyncio.ensure_future(program.run(one, Draw())) for one in given]
        if meanwhile is not None:
            await meanwhile(crew)
        try:
            return await asyncio.gather(*work, return_exceptions=True)
        finally:
            await runtime.aclose()
            store.close()

    return asyncio.run(main())


def test_a_stop_ends_each_row_and_is_no_rows_failure(tmp_path: Path) -> None:
    async def stop(crew: Crew) -> None:
        crew._runtime.ledger.stopping = Interrupted("interrupted")

    outcomes = run_rows(tmp_path, Tasks(workers=1), 8, stop)
    assert [type(one) for one in outcomes] == [Interrupted] * 8, outcomes


def test_workers_close_what_their_rows_share_before_they_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor, closing = Tasks(workers=2), worker.WorkerRuntime.aclose

    async def aclose(self: worker.WorkerRuntime) -> None:
        await asyncio.sleep(0.01)
        await closing(self)
        executor._heard.append("shared")

    monkeypatch.setattr(worker.WorkerRuntime, "aclose", aclose)
    run_rows(tmp_path, executor, 4)
    assert sorted(executor._heard[:4]) == ["ended", "ended", "shared", "shared"]
    assert executor._heard[4:] == ["closed"]


def test_a_worker_that_does_not_close_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(self: worker.WorkerRuntime) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(worker.WorkerRuntime, "aclose", hang)
    monkeypatch.setattr(member, "FAREWELL", 0.05)
    executor = Tasks(workers=1)
    run_rows(tmp_path, executor, 1)
    assert executor._heard == ["killed", "closed"]


@pytest.mark.parametrize(("rows", "part"), [(6, 3), (5, 3), (None, 6)])
def test_the_first_worker_takes_its_part_of_the_rows_while_others_start(
    rows: int | None, part: int, tmp_path: Path
) -> None:
    executor, most = Tasks(workers=2), list[int]()

    async def start_the_other(crew: Crew) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
            most.append(max((len(one.rows) for one in crew._members.values()), default=0))
        assert executor._late is not None
        executor._late.set()

    executor._late = asyncio.Event()
    outcomes = run_rows(tmp_path, executor, 6, start_the_other, rows=rows)
    assert max(most) == part and all(isinstance(one, ExampleRun) and not one.failure for one in outcomes)


def test_a_row_is_not_given_to_a_worker_that_is_lost(tmp_path: Path) -> None:
    runtime: Any = SimpleNamespace()
    crew = Crew(Tasks(workers=2), runtime, setup_in(tmp_path))
    line: Any = SimpleNamespace()
    lost, there = member.Member(line, runtime), member.Member(line, runtime)
    crew._members = {0: lost, 1: there}
    lost._lose(WorkerLost("killed"))
    assert crew._free_members(alone=False) == [there]


def test_what_was_opened_in_part_is_closed(tmp_path: Path) -> None:
    class Broken(Tasks):
        async def open(self, setup: WorkerSetup) -> None:
            raise SpecError("no queue")

    executor = Broken(workers=1)
    outcomes = run_rows(tmp_path, executor, 1)
    assert str(outcomes[0]) == "no queue" and executor._heard == ["closed"]


def test_an_outcome_that_cannot_be_carried_is_the_failure_of_its_row() -> None:
    local = ExampleRun({"answer": lambda: 0}, Trace("7"))
    elsewhere = b"cnowhere_else\nThing\n."  # of a class that this process does not have
    for found in (messages.unpack_outcome(messages.pack_outcome(local), "7"), messages.unpack_outcome(elsewhere, "7")):
        assert found.failure == FailureKind.CODE and found.trace.example == "7"
        assert "its outcome cannot be brought from a worker" in str(found.message)
    fine = ExampleRun({"answer": {1, 2}}, Trace("7"))
    assert messages.unpack_outcome(messages.pack_outcome(fine), "7") == fine


@pytest.mark.fault("workers-silent")
def test_a_driver_that_did_nothing_for_long_still_hears_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "LEASE", 0.3)

    async def main() -> Any:
        came, loop = asyncio.Queue[Any](), asyncio.get_running_loop()
        one = member.Member(SimpleNamespace(receive=came.get), SimpleNamespace())  # type: ignore[arg-type]
        hearing = asyncio.create_task(one._hear())
        await asyncio.sleep(0)
        loop.call_soon_threadsafe(came.put_nowait, [messages.Alive()])
        time.sleep(0.4)  # a metric, say
        return await hearing

    assert asyncio.run(main()) == [messages.Alive()]


def test_a_stranger_that_says_nothing_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "GREETING", 1)

    def join(place: Sockets) -> None:
        with Client(place.address, authkey=place.key) as line:
            line.send(0)
            line.recv()
            time.sleep(1.2)  # it may be silent for longer than the greeting takes
            line.send(["here"])
            line.recv()

    async def main() -> None:
        place = Sockets("127.0.0.1", setup_in(tmp_path))
        stranger = socket.create_connection(place.address)
        stranger.settimeout(20)
        friend = threading.Thread(target=join, args=(place,))
        friend.start()
        channel = await place.join(0, seconds=20)
        assert await channel.receive() == ["here"]
        await channel.send([])
        await asyncio.to_thread(friend.join)
        while await asyncio.to_thread(stranger.recv, 1000):  # the challenge, and then the end
            pass
        stranger.close()
        await channel.aclose()
        place.close()

    asyncio.run(main())


def test_a_worker_that_would_ask_another_server_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []

    class Hosted:
        identity, concurrency = "m@elsewhere", 1

        async def complete(self, request: Any) -> Any:
            sent.append(request)

    monkeypatch.setattr(worker.WorkerPool, "get", lambda self, spec: Hosted())
    outcomes = run_rows(tmp_path, Tasks(workers=1), 2, pool=LMPool())
    assert all(isinstance(one, SpecError) for one in outcomes) and not sent
    assert "would ask m@elsewhere, and the driver scripted@" in str(outcomes[0])


@pytest.mark.parametrize(
    ("lm", "variables"),
    [
        ("openai/m", ["OPENAI_API_KEY", "OPENAI_BASE_URL"]),
        ("anthropic/m", ["ANTHROPIC_API_KEY"]),
        ("gemini/m", ["GEMINI_API_KEY"]),
        ("openai/m", ["OPENAI_API_KEY"]),
        ({"model": "openai/m", "extra": {"headers": {"X-Token": "Bearer ${GATE_PASS}"}}}, ["GATE_PASS"]),
        ({"model": "openai/m", "api_key_env": "GATE_PASS"}, ["GATE_PASS"]),
    ],
    ids=["with-an-address", "another-provider", "catch-all", "hosted", "in-a-header", "named"],
)
def test_workers_get_the_variables_that_requests_depend_on(
    lm: Any, variables: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = json.loads(write_task(tmp_path, budget={"calls": 100}, seed=1, rows=(4, 4, 4)).read_text())
    (tmp_path / "here.yaml").write_text(json.dumps({**value, "lm": lm, "executor": "ray"}))
    for name in (*variables, "ELSEWHERE_API_KEY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/v1" if name.endswith("URL") else "hunter2")
    task = prepare(tmp_path / "here.yaml")[2]
    runtime: Any = Runtime(SimpleNamespace(), task.spec.lm)  # type: ignore[arg-type]
    crew = make_crew(task, runtime, lambda event, **data: None)
    assert isinstance(crew, Crew)
    assert sorted(crew._setup.secrets.keys() - {"WORKBENCH_NO_PLUGINS", "WORKBENCH_LOAD_PLUGINS"}) == sorted(variables)
    assert "hunter2" not in repr(crew._setup)


def test_the_folder_of_a_program_is_compared_and_shipped(tmp_path: Path) -> None:
    for name in ("agent/main.py", "agent/lib/tools.py", "agent/.venv/big.py", "agent/__pycache__/main.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    value = json.loads(write_task(tmp_path, budget={"calls": 100}, seed=1, rows=(4, 4, 4)).read_text())
    value["nodes"] = {"n": {"external": "text -> label", "command": ["python", "main.py"], "folder": "agent"}}
    value |= {"lm": "openai/m", "executor": "ray", "search": {}, "optimize": []}
    (tmp_path / "here.yaml").write_text(json.dumps(value))
    task = prepare(tmp_path / "here.yaml")[2]
    crew = make_crew(task, Runtime(SimpleNamespace(), task.spec.lm), lambda event, **data: None)  # type: ignore[arg-type]
    assert isinstance(crew, Crew)
    shipped = {name for name in crew._setup.files if name.startswith("agent")}
    assert shipped == {"agent/main.py", "agent/lib/tools.py"}


def test_local_takes_no_settings() -> None:
    assert make_executor({"local": None}) is make_executor({"local": {}}) is None
    with pytest.raises(SpecError, match="local has no settings: workers"):
        make_executor({"local": {"workers": 3}})
