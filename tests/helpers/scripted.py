"""Runs nodes with the real runtime, ledger and store. No model is involved: a function of the request answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from workbench.ledger import Ledger
from workbench.lm import LMPool, Request, Response
from workbench.runtime import Program, Runtime
from workbench.spec import BudgetSpec, LMSpec, PolicySpec, lm_spec
from workbench.store import Store
from workbench.task import Example
from workbench.workflow import ExampleRun, Workflow, node_tree

Say = Callable[[Request], str | Response]


class Script(LMPool):
    """A pool of one function in all roles; it records requests and the models they were sent to."""

    identity, concurrency = "scripted, no model", 8

    def __init__(self, say: Say):
        super().__init__()
        self.say, self.requests, self.models = say, list[Request](), list[str]()

    def get(self, spec: LMSpec) -> Any:
        self.models.append(spec.model)
        return self

    async def complete(self, request: Request) -> Response:
        self.requests.append(request)
        said = self.say(request)
        return said if isinstance(said, Response) else Response(said, "stop", 5, 1, 0.0)

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return 0.0

    async def aclose(self) -> None:
        pass


class SeeingScript(Script):
    """One that is sent images, too."""

    reads_images = True


def make_workflow(nodes: dict[str, Any], folder: Path) -> Workflow:
    """A checked workflow of nodes as written in a file."""
    workflow = Workflow({"nodes": {name: node_tree(raw) for name, raw in nodes.items()}}, folder, code="loaded")
    workflow.check()
    return workflow


def run_rows(
    workflow: Workflow,
    rows: Sequence[dict[str, Any]],
    script: Script,
    database: Path,
    calls: int = 1000,
    policy: PolicySpec | None = None,
    roles: Sequence[str] = (),
) -> list[ExampleRun]:
    """The outcome of each row, run in turn with the journal of a database. roles: that the script plays, too."""

    async def main() -> list[ExampleRun]:
        store = Store(database)
        store.execute(
            "insert or ignore into runs (id, run, status, started, spec, options) values (1, 'r', '', '', '', '')"
        )
        ledger = Ledger(store, 1, BudgetSpec.model_validate({"calls": calls}))
        spec = lm_spec({"model": "openai/scripted", "attempts": 1})
        try:
            runtime = Runtime(ledger, spec, dict.fromkeys(roles, spec), script, policy or PolicySpec())
            program = Program(workflow, runtime)
            found = [await program.run(Example(str(i), row)) for i, row in enumerate(rows)]
            await runtime.aclose()
            return found
        finally:
            store.close()

    return asyncio.run(main())


def run_node(
    node: dict[str, Any], row: dict[str, Any], folder: Path, say: Say = lambda request: "yes"
) -> tuple[ExampleRun, Script]:
    """(outcome, requests) of a single node `n` on a single row, with a new journal."""
    script = Script(say)
    database = folder / f"run{len(list(folder.glob('run*.db')))}.db"
    return run_rows(make_workflow({"n": node}, folder), [row], script, database)[0], script
