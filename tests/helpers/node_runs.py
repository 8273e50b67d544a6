"""Runs one workflow on one example with the real runtime and a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from workbench.ledger import Ledger
from workbench.lm import LMPool, Request, Response
from workbench.runtime import Program, Runtime
from workbench.spec import BudgetSpec, PolicySpec, lm_spec
from workbench.store import Store
from workbench.task import Example
from workbench.workflow import Workflow, node_tree


class ScriptedLM:
    """A simulated model: a function of the request answers, and requests are recorded."""

    identity, concurrency = "scripted", 8

    def __init__(self, say: Callable[[Request], str | Response]):
        self.say, self.requests = say, list[Request]()

    async def complete(self, request: Request) -> Response:
        self.requests.append(request)
        said = self.say(request)
        return said if isinstance(said, Response) else Response(said, "stop", 5, 1, 0.0)

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return 0.0

    async def aclose(self) -> None:
        pass


class ScriptedPool(LMPool):
    def __init__(self, lm: ScriptedLM):
        super().__init__()
        self.lm = lm

    def get(self, spec: Any) -> Any:
        return self.lm


def run(
    nodes: dict[str, Any],
    row: dict[str, Any],
    folder: Path,
    say: Callable[[Request], Any] = lambda r: "yes",
    times: int = 1,
    policy: Mapping[str, Any] | None = None,
    timeout: float = 300.0,
):
    """(outcome, scripted model) of the last of `times` runs with a common journal."""

    workflow = Workflow({"nodes": {name: node_tree(raw) for name, raw in nodes.items()}}, folder, code="loaded")
    workflow.check()
    lm = ScriptedLM(say)

    async def main():
        store = Store(folder / "run.db")
        store.execute(
            "insert or ignore into runs (id, run, status, started, spec, options) values (1, 'r', '', '', '', '')"
        )
        outcome = None
        for _ in range(times):
            ledger = Ledger(store, 1, BudgetSpec.model_validate({"calls": 100}))
            rules = PolicySpec.model_validate(policy or {})
            runtime = Runtime(ledger, lm_spec("openai/x"), {}, ScriptedPool(lm), policy=rules, timeout=timeout)
            try:
                outcome = await Program(workflow, runtime).run(Example("1", row))
            finally:
                await runtime.aclose()
        store.close()
        return outcome

    return asyncio.run(main()), lm, workflow


TOOLS = """
count = 0

def add(a: int, b: int = 1) -> int:
    "Adds two numbers."
    global count
    count += 1
    with open("calls.txt", "a") as file:
        file.write("x")
    return a + b

async def slow(text: str) -> dict:
    return {"said": text.upper()}

def broken(text: str):
    raise ZeroDivisionError("no")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the tools of `mytools.py` in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mytools.py").write_text(TOOLS)
    return tmp_path
