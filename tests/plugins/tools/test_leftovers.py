"""Files that a tool changes beside its code outlive the row: the run notices them, also when rows are replayed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.helpers.node_runs import ScriptedLM, ScriptedPool

from workbench.ledger import Ledger
from workbench.runtime import Program, Runtime
from workbench.spec import BudgetSpec, lm_spec
from workbench.store import Store
from workbench.task import Example
from workbench.workflow import Workflow, node_tree
from workbench_kit.acting import MIN_CHANGES

COUNTER = """
import sqlite3

def count(text: str) -> int:
    database = sqlite3.connect("PLACE")
    with database:
        database.execute("create table if not exists seen (text)")
        database.execute("insert into seen values (?)", (text,))
        found = database.execute("select count(*) from seen").fetchone()[0]
    database.close()
    return found
"""


def kept_state(folder: Path, database: Path, runs: int = 1) -> list[list[str]]:
    """What each of some runs with a common journal saw outlive rows; the first one calls the tool."""
    (folder / "counter.py").write_text(COUNTER.replace("PLACE", str(database)))
    workflow = Workflow({"nodes": {"c": node_tree({"tool": "python:counter.py:count"})}}, folder)
    store = Store(folder / "run.db")
    store.execute("insert into runs (id, run, status, started, spec, options) values (1, 'r', '', '', '', '')")

    async def main() -> list[list[str]]:
        found = list[list[str]]()
        for _ in range(runs):
            ledger = Ledger(store, 1, BudgetSpec.model_validate({"calls": 100}))
            runtime = Runtime(ledger, lm_spec("openai/x"), {}, ScriptedPool(ScriptedLM(lambda r: "")))
            for row in range(MIN_CHANGES):
                outcome = await Program(workflow, runtime).run(Example(str(row), {"text": "a"}))
                assert outcome.prediction == {"result": row + 1}
            found.append(runtime.kept_state())
            await runtime.aclose()
        store.close()
        return found

    return asyncio.run(main())


def test_a_database_that_a_tool_changes_beside_its_code_is_noticed_also_when_it_is_replayed(tmp_path: Path) -> None:
    told = ["'c' leaves files beside its program or tools from row to row"]
    assert kept_state(tmp_path, tmp_path / "shop.db", runs=2) == [told, told]


def test_a_tool_that_writes_elsewhere_is_not_said_to_leave_anything(tmp_path: Path) -> None:
    (folder := tmp_path / "tools").mkdir()
    assert kept_state(folder, tmp_path / "shop.db") == [[]]
