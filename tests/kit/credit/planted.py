"""Planted failures: workflows of several agents in which one step is wrong, at a place that is known. No model is
involved: a function answers, rightly or, at the planted step, wrongly."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.helpers.scripted import Script, make_workflow

from workbench.ledger import Ledger
from workbench.lm import Request
from workbench.runtime import Draw, Program, Runtime
from workbench.spec import BudgetSpec, lm_spec
from workbench.store import Store
from workbench.task import Example
from workbench.workflow import Workflow
from workbench_kit.credit import Address, Repair, Repaired, TraceStep, steps_of

STRONG = "openai/strong"


def chain(steps: int, folder: Path, agents: int = 3) -> Workflow:
    """Nodes one after the other, by several agents in turn; each adds one to the number that it is given."""
    nodes: dict[str, Any] = {}
    for i in range(steps):
        name = f"agent{i % agents}_{i}"
        nodes[name] = {
            "predict": f"{'row, n0' if i == 0 else f'row, n{i}'} -> n{i + 1}: int",
            "instructions": f"As {name}, add one.",
        }
    return make_workflow(nodes, folder)


@dataclass
class Planted:
    """Answers as `chain` asks: the node of each row's fault adds two. The strong model is always right."""

    faults: Mapping[str, int | tuple[int, ...]]
    wrong: float = 1.0  # the share of draws in which a fault shows

    def __call__(self, request: Request) -> str:
        text = str(request.messages[-1]["content"])
        row = re.findall(r"row: (r\d+)", text)[-1]
        place, value = [(int(k), int(v)) for k, v in re.findall(r"n(\d+): (-?\d+)", text)][-1]
        draw = random.Random(f"{row} {place} {request.replica}").random()
        faults = self.faults.get(row, ())
        error = place in (faults if isinstance(faults, tuple) else (faults,)) and draw < self.wrong
        return f"n{place + 1}: {value + 1 + error}"


class Models(Script):
    """Two models: the strong one has no faults."""

    def __init__(self, weak: Callable[[Request], str], strong: Callable[[Request], str]):
        super().__init__(weak)
        self.strong = Script(strong)
        self.strong.identity = "strong, no model"  # pyright: ignore[reportIncompatibleVariableOverride]

    def get(self, spec: Any) -> Any:
        return self.strong if spec.model == STRONG else self


@dataclass
class Failed:
    """A failed run, what repeats it, and the calls that this has paid."""

    steps: list[TraceStep]
    rerun: Callable[[Mapping[Address, Repair]], Any]
    paid: Callable[[], int]


async def fail(workflow: Workflow, row: str, right: int, models: Models, store: Store, run_id: int) -> Failed:
    """Run a row, which fails, and hand out what repeats it under the same journal."""
    ledger = Ledger(store, run_id, BudgetSpec.model_validate({}))
    spec = lm_spec({"model": "openai/scripted", "attempts": 1})
    program = Program(workflow, Runtime(ledger, spec, {}, models))
    example = Example(row, {"row": row, "n0": 0})

    async def run(repairs: Mapping[Address, Repair]) -> Any:
        return await program.run(example, Draw(variation=Repaired(repairs)))

    first = await run({})
    assert first.prediction[f"n{right}"] != right

    async def rerun(repairs: Mapping[Address, Repair]) -> bool:
        return (await run(repairs)).prediction.get(f"n{right}") == right

    before = ledger.paid.calls
    return Failed(steps_of(first.trace), rerun, lambda: ledger.paid.calls - before)


def new_store(path: Path) -> Store:
    store = Store(path)
    sql = "insert or ignore into runs (id, run, status, started, spec, options) values (1, 'r', '', '', '', '')"
    store.execute(sql)
    return store


def run_async(main: Any) -> Any:
    return asyncio.run(main)
