"""Workflows of the gallery give in workers what they give here: outcomes, traces, and the journal."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from tests.executors.test_rows import comparable
from tests.helpers.gallery_scripts import CASES
from tests.helpers.gallery_speech import Speaker
from tests.helpers.process_executor import Forked
from tests.helpers.scripted import SeeingScript
from tests.helpers.sqlite import connect

from workbench.ledger import Ledger
from workbench.run import prepare
from workbench.runtime import Program, Runtime, SandboxChoice
from workbench.spec import BudgetSpec, PolicySpec, lm_spec
from workbench.store import Store
from workbench.task import Example
from workbench.workflow import ExampleRun, Workflow
from workbench_workers import Crew, WorkerSetup

GALLERY = Path(__file__).parents[2] / "workflows" / "gallery"
NAMES = sorted(path.name for path in GALLERY.glob("*.yaml"))
#: The gate runs each third one.
FILES = [pytest.param(name, marks=[pytest.mark.long] if i % 3 else []) for i, name in enumerate(NAMES)]


def run(workflow: Workflow, rows: list[dict[str, Any]], script: SeeingScript, database: Path, there: bool) -> list[Any]:
    async def main() -> list[Any]:
        store = Store(database)
        store.execute("insert into runs (id, run, status, started, spec, options) values (1, 'r', '', '', '', '')")
        ledger = Ledger(store, 1, BudgetSpec.model_validate({"calls": 1000}))
        spec = lm_spec({"model": "openai/scripted", "attempts": 1})
        roles = {"user": spec}
        runtime = Runtime(ledger, spec, roles, script)
        if there:
            setup = WorkerSetup(workflow.base, spec, roles, PolicySpec(), 300.0, SandboxChoice())
            runtime.elsewhere = Crew(Forked(workers=1), runtime, setup)
        program = Program(workflow, runtime)
        found = [unordered(await program.run(Example(str(i), row))) for i, row in enumerate(rows)]
        await runtime.aclose()
        store.close()
        return found

    return asyncio.run(main())


def unordered(run: ExampleRun) -> Any:
    """What does not depend on which of several nodes at once is the first."""
    prediction, failure, message, calls, spans = comparable(run)
    nodes = sorted((str(node), repr(outputs)) for node, _, outputs in spans)
    return prediction, failure, message, sorted(calls, key=lambda call: call[2]), nodes


def journal(database: Path) -> set[tuple[Any, ...]]:
    with connect(database) as connection:
        asked = "select kind, key, role, request, response, prompt_tokens, completion_tokens, attempts from calls"
        rows = connection.execute(asked).fetchall()
    return {tuple(re.sub(r'"seconds":[0-9.e-]+', "", str(value)) for value in row) for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_file_of_the_gallery_in_workers(name: str, tmp_path: Path) -> None:
    case, workflow = CASES[name], prepare(GALLERY / name)[2].workflow
    rows = [dict(row) for row in list(prepare(GALLERY / name)[2].dataset.test.open())[:2]]
    here = run(workflow, rows, SeeingScript(Speaker(case.table)), tmp_path / "here.db", False)
    there = run(workflow, rows, SeeingScript(Speaker(case.table)), tmp_path / "there.db", True)
    assert here == there
    assert journal(tmp_path / "here.db") == journal(tmp_path / "there.db")
