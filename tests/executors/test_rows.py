"""Rows in workers: same outcomes, journal and bill as in this process, whatever happens to the workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.helpers.process_executor import Processes
from tests.helpers.scripted import Script, make_workflow

from workbench.ledger import Ledger
from workbench.runtime import Crew, Draw, Program, Runtime, SandboxChoice, WorkerSetup
from workbench.spec import BudgetSpec, PolicySpec, lm_spec
from workbench.store import Store
from workbench.task import Example
from workbench.workflow import ExampleRun, Workflow


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
        ledger.close()
        store.close()


def comparable(run: ExampleRun | BaseException) -> Any:
    """What does not depend on time."""
    assert isinstance(run, ExampleRun)
    calls = [(c.messages, c.response, c.key, c.number, c.max_tokens, c.most_usd) for c in run.trace.calls]
    return run.prediction, run.failure, run.message, calls, [(s.node, s.order, s.outputs) for s in run.trace.spans]


def test_rows_in_workers_give_what_rows_here_give(tmp_path: Path) -> None:
    workflow = make_workflow({"n": {"predict": "text -> label: Literal['yes', 'no']"}}, tmp_path)
    here, paid_here = asyncio.run(run_all(workflow, tmp_path, None))
    there, paid_there = asyncio.run(run_all(workflow, tmp_path, Processes(workers=2)))
    assert list(map(comparable, here)) == list(map(comparable, there))
    assert paid_here.spent.calls == paid_there.spent.calls == 12
