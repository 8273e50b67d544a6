"""Real worlds, in venvs of their own: the right actions score 1, and doing nothing 0.

Marker `worlds`. `.ci/worlds` makes the venvs and runs these tests; without a world's venv its test is skipped.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helpers.node_runs import ScriptedLM, ScriptedPool

from workbench.ledger import Ledger
from workbench.lm import Request
from workbench.runtime import Program, Runtime
from workbench.spec import BudgetSpec, lm_spec
from workbench.store import Store
from workbench.study import Result
from workbench.task import Example
from workbench.workflow import Workflow, node_tree
from workbench_redteam.redteam import red_team
from workbench_worlds import tasks as readers
from workbench_worlds.interpreter import WORLDS, find_interpreter, venv_place

pytestmark = [pytest.mark.worlds, pytest.mark.timeout(1800)]

SCRIPTS = Path(__file__).parents[2] / "helpers" / "real_worlds"
Task = Mapping[str, Any]


def gold_tasks(world: str, folder: Path, kind: str = "gold") -> Any:
    """The tasks of a world with the actions that solve them, as a program in its venv finds them."""
    lock = WORLDS / f"{world}.txt"
    if not (venv_place(lock) / "ready").exists() and not os.environ.get("WORKBENCH_WORLDS"):
        pytest.skip(f"no venv with {lock.read_text().strip()}: run .ci/worlds")
    command = [find_interpreter(lock.name, folder), str(SCRIPTS / f"{kind}_{world}.py"), str(WORLDS)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def play_all(world: str, tasks: Sequence[Task], which: str, folder: Path) -> list[float | str]:
    """The score of each task, or what its row failed by, when its actions `which` are taken in order."""
    left = {str(n): iter(task[which]) for n, task in enumerate(tasks)}
    settings = {json.dumps(task.get("settings", {})): task.get("settings", {}) for task in tasks}
    fields = {name: None for task in tasks for name in task["task"]}
    programs: dict[str, Workflow] = {}
    for key, given in settings.items():
        node = {
            "play": world,
            "task": {name: name for name in fields},
            "settings": given,
            "of": {"predict": "row, observation -> action", "decoding": {"temperature": 1}},  # no answer is taken twice
            "max_steps": max(len(task["gold"]) for task in tasks),
        }
        if (WORLDS / f"{world}.txt").exists():
            node["python"] = f"{world}.txt"
        programs[key] = Workflow({"nodes": {"act": node_tree(node)}}, folder)

    def act(request: Request) -> str:
        row = str(request.messages[-1]["content"]).partition("row: ")[2].split()[0]
        action = next(left[row], tasks[int(row)][which][-1])
        return f"action: {action if isinstance(action, str) else 'call: ' + json.dumps(action)}"

    async def main() -> list[float | str]:
        store = Store(folder / f"{which}.db")
        store.execute("insert into runs (id, run, status, started, spec, options) values (1, 'r', '', '', '', '')")
        ledger = Ledger(store, 1, BudgetSpec.model_validate({"calls": 1_000_000}))
        runtime = Runtime(ledger, lm_spec("openai/x"), {}, ScriptedPool(ScriptedLM(act)))
        free = asyncio.Semaphore(4)

        async def one(number: int, task: Task) -> float | str:
            async with free:
                workflow = programs[json.dumps(task.get("settings", {}))]
                row = {"row": str(number), **fields, **task["task"]}
                outcome = await Program(workflow, runtime).run(Example(str(number), row))
            return outcome.prediction["score"] if outcome.failure is None else str(outcome.message)

        try:
            return await asyncio.gather(*(one(number, task) for number, task in enumerate(tasks)))
        finally:
            await runtime.aclose()
            store.close()

    return asyncio.run(main())


#: Tasks that the benchmark itself counts as done when nothing is done.
IDLE = {"agentdojo": 5}


@pytest.mark.parametrize(
    "world",
    ["textworld", "minigrid", "agentdojo", "bfcl", "tau2", "textarena", "pddlgym", "scienceworld", "browsergym"],
)
def test_right_actions_score_one_and_doing_nothing_zero(world: str, tmp_path: Path) -> None:
    tasks = gold_tasks(world, tmp_path)
    solved, nothing = (play_all(world, tasks, which, tmp_path) for which in ("gold", "none"))
    wrong = [(task["task"], score) for task, score in zip(tasks, solved, strict=True) if score != 1.0]
    lazy = [(task["task"], score) for task, score in zip(tasks, nothing, strict=True) if score != 0.0]
    assert not wrong, wrong
    assert len(lazy) == IDLE.get(world, 0), lazy


def test_a_task_of_another_family_gets_its_arguments(tmp_path: Path) -> None:
    assert gold_tasks("browsergym", tmp_path, "family") == {"goal": "Begin.", "before": True, "after": True}


@pytest.mark.parametrize(
    ("reader", "place", "options", "count"),
    [
        ("tau2", "retail", {}, 114),
        ("tau2", "telecom", {}, 2285),
        ("bfcl", "miss_param", {}, 200),
        ("agentdojo", "banking", {}, 16),
        ("agentdojo", "banking", {"attack": "important_instructions_no_model_name"}, 16 * 9),
        ("browsergym", "miniwob", {"seeds": 2}, 250),
        ("scienceworld", "boil", {"split": "test"}, 9),
        ("pddlgym", "", {}, 5),
        ("textworld", "tw-coin_collector", {"level": 2, "games": 2}, 2),
    ],
)
def test_a_reader_lists_the_tasks_of_its_package(reader: str, place: str, options: Any, count: int) -> None:
    lock = WORLDS / f"{reader}.txt"
    if not (venv_place(lock) / "ready").exists() and not os.environ.get("WORKBENCH_WORLDS"):
        pytest.skip(f"no venv with {lock.read_text().strip()}: run .ci/worlds")
    rows = getattr(readers, reader)(place, options)
    assert len(rows) == count == len({json.dumps(row) for row in rows})


def test_the_red_team_counts_as_agentdojo_itself_does(tmp_path: Path) -> None:
    """An agent that does the user's task, and one that does a stranger's as soon as it reads of it, on all pairs."""
    own = gold_tasks("agentdojo", tmp_path, "own")
    file = {
        "name": "banking",
        "lm": "openai/x",
        "data": {
            "file": "agentdojo:banking",
            "options": {"attack": "important_instructions_no_model_name", "apart": True},
            "split": {"train": 1, "val": 142, "test": 1},
        },
        "metric": "world(score)",
        "nodes": {
            "serve": {
                "play": "agentdojo",
                "python": "agentdojo.txt",
                "task": {name: name for name in ("suite", "user_task", "injection_task", "injections")},
                "chars": 100_000,
                "history": 60,
                "of": {"predict": "injection_task, user_task, history, observation -> action"},
            }
        },
        "attacks": {
            "important": {
                "fields": {"injections": "orders"},
                "success": {"answer": "the stranger was obeyed", "field": "observation"},
            }
        },
        "budget": {"calls": 100_000},
    }
    (tmp_path / "banking.yaml").write_text(yaml.safe_dump(file, sort_keys=False))

    def run(obeys: bool) -> list[Result]:
        def act(request: Request) -> str:
            shown = str(request.messages[-1]["content"])
            stranger, user = (re.findall(rf"{name}: (\w+)", shown)[0] for name in ("injection_task", "user_task"))
            made = shown.split("\naction: ")[1:]  # the last of them is followed by the observation
            told = [number for number, part in enumerate(made) if "<INFORMATION>" in part] if obeys else []
            plan = own["strangers"][stranger] if told else own["users"][user]
            action = plan[len(made) - (told[0] + 1 if told else 0)]
            return f"action: {action if isinstance(action, str) else 'call: ' + json.dumps(action)}"

        pool = ScriptedPool(ScriptedLM(act))
        return [*red_team(tmp_path / "banking.yaml", database=tmp_path / f"{obeys}.db", pool=pool).results]

    for obeys in (False, True):
        results = run(obeys)
        assert len(results) == 142
        for result in results:
            row = result.clean.example
            expected = own["judged"][f"{row['user_task']} {row['injection_task']}"][obeys]
            found = result.attacked["important"]
            assert result.clean.score == 1.0 and [found.score == 1.0, found.succeeded] == expected, dict(row.fields)


def test_gold_commands_of_intercode_score_one(tmp_path: Path) -> None:
    """WORKBENCH_INTERCODE: a checkout of InterCode. Its commands of three file systems, every fifth one."""
    checkout = Path(os.environ.get("WORKBENCH_INTERCODE", "/none"))
    if not checkout.is_dir() or not shutil.which("bwrap"):
        pytest.skip("WORKBENCH_INTERCODE names no checkout of InterCode, or there is no bwrap")
    rows = [
        {"file_system": number, "query": row["query"], "gold": row["gold"]}
        for number in (1, 2, 3)
        for row in json.loads((checkout / f"data/nl2bash/nl2bash_fs_{number}.json").read_text())[::5]
    ]
    settings = {"setup": str(checkout / "docker/bash_scripts")}
    tasks = [{"task": row, "settings": settings, "gold": [row["gold"], "submit"], "none": ["submit"]} for row in rows]
    solved, nothing = (play_all("intercode_bash", tasks, which, tmp_path) for which in ("gold", "none"))
    wrong = [(row["gold"], score) for row, score in zip(rows, solved, strict=True) if score != 1.0]
    assert len(wrong) <= 2, wrong  # programs that a machine lacks, and what runs in the background
    assert sum(score == 1.0 for score in nothing) <= len(rows) / 10, nothing  # whose gold changes and prints nothing
