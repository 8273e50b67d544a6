"""Rows in workers: same outcomes, journal and bill as in this process, whatever happens to the workers."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.helpers.process_executor import Processes
from tests.helpers.scripted import Script, make_workflow

from workbench.errors import BudgetSpent, LMError, NodeError, SearchStopped, SpecError
from workbench.ledger import Ledger
from workbench.runtime import Draw, Program, Runtime, SandboxChoice
from workbench.spec import BudgetSpec, PolicySpec, lm_spec
from workbench.store import Store
from workbench.task import Example
from workbench.workflow import ExampleRun, Workflow
from workbench_workers import Crew, Secrets, WorkerLost, WorkerSetup, find_missing, member, messages


def answer(request: Any) -> str:
    return "yes" if "1" in str(request.messages[-1]["content"]) else "no"


async def run_all(
    workflow: Workflow,
    folder: Path,
    executor: Processes | None,
    rows: int = 12,
    meanwhile: Callable[[Crew | None], Coroutine[Any, Any, None]] | None = None,
    say: Any = answer,
    calls: int = 100,
) -> tuple[list[ExampleRun | BaseException], Ledger]:
    store = Store(folder / ("there.db" if executor else "here.db"))
    store.execute(
        "insert or ignore into runs (id, run, status, started, spec, options) values (1, 'r', '', '', '', '')"
    )
    ledger = Ledger(store, 1, BudgetSpec.model_validate({"calls": calls}))
    spec = lm_spec({"model": "openai/scripted", "attempts": 1})
    runtime = Runtime(ledger, spec, {}, Script(say))
    if executor is not None:
        setup = WorkerSetup(folder, spec, {}, PolicySpec(), 60.0, SandboxChoice())
        runtime.elsewhere = Crew(executor, runtime, setup)
    program = Program(workflow, runtime)
    work = [asyncio.ensure_future(program.run(Example(str(i), {"text": f"row {i}"}), Draw())) for i in range(rows)]
    if meanwhile is not None:
        await meanwhile(runtime.elsewhere)  # type: ignore[arg-type]
    try:
        return await asyncio.gather(*work, return_exceptions=True), ledger
    finally:
        await runtime.aclose()
        store.close()


def comparable(run: ExampleRun | BaseException) -> Any:
    """What does not depend on time."""
    assert isinstance(run, ExampleRun)
    calls = [(c.messages, c.response, c.key, c.number, c.max_tokens, c.max_usd) for c in run.trace.calls]
    return run.prediction, run.failure, run.message, calls, [(s.node, s.order, s.outputs) for s in run.trace.spans]


def test_rows_in_workers_give_what_rows_here_give(tmp_path: Path) -> None:
    workflow = make_workflow({"n": {"predict": "text -> label: Literal['yes', 'no']"}}, tmp_path)
    here, paid_here = asyncio.run(run_all(workflow, tmp_path, None))
    there, paid_there = asyncio.run(run_all(workflow, tmp_path, Processes(workers=2)))
    assert list(map(comparable, here)) == list(map(comparable, there))
    assert paid_here.spent.calls == paid_there.spent.calls == 12


STEPS = """
def begin(text): return text
def look(result): return result + "!"
def close(result): return result + "?"
"""


def test_effects_in_workers_have_the_keys_of_effects_here(tmp_path: Path) -> None:
    """The keys hold the workflow's hash, which knows which of two writers of a field is read."""
    (tmp_path / "steps.py").write_text(STEPS)
    tools = {"a": "begin", "b": "look", "c": "close"}
    nodes = {name: {"tool": f"python:steps.py:{tool}"} for name, tool in tools.items()}
    workflow = make_workflow({**nodes, "c": {**nodes["c"], "output": "end"}}, tmp_path)
    asyncio.run(run_all(workflow, tmp_path, None, rows=3))
    asyncio.run(run_all(workflow, tmp_path, Processes(workers=2), rows=3))
    keys: list[list[str]] = []
    for name in ("here.db", "there.db"):
        with Store(tmp_path / name) as store:
            keys.append(sorted(row["key"] for row in store.rows("select key from calls where kind != 'lm'")))
    assert keys[0] == keys[1] and len(keys[0]) == 9


@pytest.mark.parametrize("code", ["unread", "outlined"])
def test_a_program_has_the_hash_of_the_workflow_with_its_code(code: Any, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(STEPS)
    nodes = {"a": {"tool": "python:steps.py:begin"}, "b": {"tool": "python:steps.py:look"}}
    loaded = make_workflow({**nodes, "c": {"tool": "python:steps.py:close", "output": "end"}}, tmp_path)
    assert Program(loaded.with_code(code), SimpleNamespace()).workflow.hash == loaded.hash  # type: ignore[arg-type]


class Silent:
    """A line on which nothing comes."""

    closed = False

    async def send(self, batch: Any) -> None:
        pass

    async def receive(self) -> Any:
        await asyncio.Event().wait()

    async def aclose(self) -> None:
        self.closed = True


@pytest.mark.fault("workers-silent")
def test_a_worker_without_a_sign_of_life_is_given_up_with_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        runtime: Any = SimpleNamespace(pool=Script(answer), lm=lm_spec("openai/scripted"), roles={})
        workflow = make_workflow({"n": {"predict": "text -> label"}}, tmp_path)
        line = Silent()
        worker = member.Member(line, runtime)
        row = asyncio.create_task(worker.run(1, workflow, Example("0", {"text": "row"}), Draw()))
        await asyncio.sleep(0)
        with pytest.raises(WorkerLost, match=r"nothing was heard of it for 0\.05 s"):
            await worker.serve()
        with pytest.raises(WorkerLost):
            await row
        await worker.aclose()
        assert line.closed

    monkeypatch.setattr(member, "LEASE", 0.05)
    asyncio.run(main())


def test_what_a_machine_lacks_is_said_by_name(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("x = 1")
    spec = lm_spec("openai/scripted")
    setup = WorkerSetup(tmp_path, spec, {}, PolicySpec(), 60.0, SandboxChoice())
    assert find_missing(setup) == ""
    assert "and the driver 9.9" in find_missing(replace(setup, version="9.9"))
    assert find_missing(replace(setup, plugins={"acme": "1.2"})) == "the plugin 'acme' 1.2 is not installed there"
    assert "tools.py is another one there" in find_missing(replace(setup, files={"tools.py": "0"}))
    assert "gone.py is not there" in find_missing(replace(setup, files={"gone.py": "0"}))


def test_keys_are_shown_nowhere() -> None:
    assert "hunter2" not in repr(Secrets({"KEY": "hunter2"})) + str(Secrets({"KEY": "hunter2"}))
    assert pickle.loads(pickle.dumps(Secrets({"KEY": "hunter2"})))["KEY"] == "hunter2"


@pytest.mark.parametrize(
    "error",
    [
        BudgetSpent("calls", 10, 11, 2),
        LMError("rate_limit", "slow", retry_after=3.0, status=429),
        NodeError("branch", "no case", node="n"),
        SpecError("wrong", hint="Write it.", path=("nodes", "n")),
        SearchStopped(),
        FileNotFoundError(2, "no such file", "x"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_the_same_on_the_other_side(error: Exception) -> None:
    back = pickle.loads(pickle.dumps(messages.portable(error)))
    assert type(back) is type(error) and str(back) == str(error) and vars(back) == vars(error)


def test_an_error_that_cannot_be_sent_is_told() -> None:
    class Local(Exception):
        pass

    told = messages.portable(Local("no way"))
    assert isinstance(told, NodeError) and str(told) == "Local: no way"
