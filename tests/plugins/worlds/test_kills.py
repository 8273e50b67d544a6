"""Runs whose processes are killed in the middle of episodes, and rows whose worlds fail beside others."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.executors import test_gallery as in_workers
from tests.helpers.killed_runs import start
from tests.helpers.node_runs import ScriptedLM, ScriptedPool
from tests.helpers.planted_world import __file__ as WORLDS
from tests.helpers.scripted import Script

from workbench.ledger import Ledger
from workbench.lm import Request, Response
from workbench.runtime import Program, Runtime
from workbench.spec import BudgetSpec, lm_spec
from workbench.store import Store
from workbench.task import Example
from workbench.workflow import Workflow, node_tree

sys.path.insert(0, str(Path(__file__).parents[3] / "contrib" / "bench" / "promises"))

import kill_resume
from simulated_server import SimulatedServer

COLOURS = ["red", "green", "blue"]


class Looker:
    """Names the lamp that it is shown if it is told to look, else red."""

    async def complete(self, request: Request) -> Response:
        system, shown = (str(message["content"]) for message in request.messages)
        lamp = shown.partition("observation: lamp: ")[2].split()[0] if "Look" in system else "red"
        return Response(f"action: {lamp}", "stop", 20, 2, 0.0)


def prepare(folder: Path, base: str, rows: int = 12, lamps: int = 8) -> None:
    folder.mkdir(exist_ok=True)
    draw = random.Random(3)
    tasks = [{"id": str(n), "lamps": [draw.choice(COLOURS) for _ in range(lamps)]} for n in range(rows)]
    (folder / "rows.jsonl").write_text(
        "\n".join(json.dumps({**task, "log": f"{folder}/log{task['id']}"}) for task in tasks)
    )
    node = {
        "play": f"python:{WORLDS}:Lamps",
        "task": {"lamps": "lamps", "log": "log"},
        "of": {"predict": "observation -> action", "instructions": "Name a colour."},
    }
    spec = {
        "name": "kills",
        "lm": {"model": "openai/simulated", "api_base": base, "timeout": 5, "concurrency": kill_resume.CONCURRENCY},
        "data": {"file": "rows.jsonl", "split": {"train": 2, "val": 4, "test": 6}},
        "metric": "world(score)",
        "nodes": {"act": node},
        "search": {"nodes.act.of.instructions": ["Name a colour.", "Look at the lamp."]},
        "optimize": [{"random": {"trials": 2}}],
        "budget": {"calls": 2000},
    }
    (folder / "workflow.yaml").write_text(json.dumps(spec))


@pytest.mark.slow
@pytest.mark.fault("killed")
def test_kills_in_the_middle_of_episodes_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kill_resume, "start", start)
    with SimulatedServer(latency=0.02) as server:
        server.lm = Looker()  # pyright: ignore[reportAttributeAccessIssue]
        prepare(tmp_path / "whole", server.base)
        whole = kill_resume.finish(tmp_path / "whole")
        assert whole["best"]["val"] == 1.0, whole["best"]
        rng, done, runs = random.Random(5), 0, 0
        while done < 20:
            folder, before, runs = tmp_path / str(runs), server.requests, runs + 1
            prepare(folder, server.base)
            kills = kill_resume.random_kills(folder, rng, 20 - done, seconds=1.2)
            kill_resume.check(folder, server, before, kills, whole)
            done += kills


@pytest.mark.slow
def test_worlds_of_rows_in_workers_give_what_they_give_here(tmp_path: Path) -> None:
    node = {"play": f"python:{WORLDS}:Lamps", "task": {"lamps": "lamps"}, "of": {"predict": "observation -> action"}}
    workflow = Workflow({"nodes": {"act": node_tree(node)}}, tmp_path)
    rows = [{"lamps": COLOURS[: 1 + n]} for n in range(3)]

    def look(request: Any) -> str:
        return f"action: {str(request.messages[-1]['content']).partition('lamp: ')[2].split()[0]}"

    here = in_workers.run(workflow, rows, Script(look), tmp_path / "here.db", False)
    assert here == in_workers.run(workflow, rows, Script(look), tmp_path / "there.db", True)
    assert in_workers.journal(tmp_path / "here.db") == in_workers.journal(tmp_path / "there.db")


@pytest.mark.parametrize("faulty", [pytest.param("hang", marks=pytest.mark.slow), "die", "fill", "fail"])
def test_a_fault_of_a_world_costs_no_other_row(faulty: str, tmp_path: Path) -> None:
    node = {
        "play": f"python:{WORLDS}:Lamps",
        "task": {"lamps": "lamps", "fault": "fault"},
        "of": {"predict": "observation -> action", "instructions": "Look."},
    }
    workflow = Workflow({"nodes": {"act": node_tree(node)}}, tmp_path)
    rows = [{"lamps": COLOURS[: 2 + n % 2], "fault": faulty if n == 3 else ""} for n in range(8)]
    looker = Looker()

    async def main() -> list[Any]:
        store = Store(tmp_path / "run.db")
        store.execute("insert into runs (id, run, status, started, spec, options) values (1, 'r', '', '', '', '')")
        ledger = Ledger(store, 1, BudgetSpec.model_validate({"calls": 100}))
        pool = ScriptedPool(ScriptedLM(lambda request: "action: x"))
        pool.lm.complete = looker.complete  # type: ignore[method-assign]
        runtime = Runtime(ledger, lm_spec("openai/x"), {}, pool, timeout=3)
        try:
            program = Program(workflow, runtime)
            return await asyncio.gather(*(program.run(Example(str(n), row)) for n, row in enumerate(rows)))
        finally:
            await runtime.aclose()
            store.close()

    outcomes = asyncio.run(main())
    assert Counter(str(one.failure) for one in outcomes) == {"None": 7, "environment": 1}
    assert [one.prediction.get("score") for one in outcomes] == [None if n == 3 else 1.0 for n in range(8)]
