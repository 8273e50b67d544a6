"""What `workbench estimate` says of runs that train, against the calls that such runs take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.helpers.grpo_runs import SMALL, WORKFLOWS, needs_torch, run, write

from workbench.cli import cli
from workbench.run import estimate, prepare

TOPICS = "Literal['billing', 'technical', 'shipping', 'returns', 'account']"


def estimated(folder: Path, *optimizers: Any, **settings: Any) -> dict[str, Any]:
    _, _, task, made = prepare(write(folder, optimizers=[*optimizers], **settings))
    return estimate(task, made)


@pytest.mark.parametrize(
    ("sets", "spent"),
    [([], 2016), (["--set", "optimize=[{dpo: {tasks: 60, learning: {rate: 5.0e-4}}}]"], 960)],
)
def test_it_is_what_the_runs_of_the_readme_took(sets: list[str], spent: int) -> None:
    done = CliRunner().invoke(cli, ["estimate", str(WORKFLOWS / "grpo.yaml"), "--json", *sets])
    found = json.loads(done.output)
    assert spent <= found["max_calls"] <= 1.1 * spent, found
    assert f"Total: at most {found['max_calls']} calls, without retries." in found["lines"]


@pytest.mark.parametrize("name", ["grpo", "sft"])
def test_a_run_takes_what_was_estimated(tmp_path: Path, name: str) -> None:
    needs_torch()
    settings = {"grpo": SMALL, "sft": {"tasks": 8, "rollouts": 4, "rounds": 2, "learning": {"rate": 5e-4}}}[name]
    optimizer = {name: {**settings, "race": False}}
    found = estimated(tmp_path, optimizer)
    report = run(tmp_path, optimizers=[optimizer])
    untested = 0 if report.changes else 40  # where nothing was better, the sealed rows stay unused
    assert report.spent["calls"] == found["max_calls"] - untested


def calls(folder: Path, optimizer: Any, **settings: Any) -> int:
    """Of the optimizer alone; val has 12 rows, train 16."""
    (found,) = estimated(folder, optimizer, **settings)["optimizer_calls"]
    return found["calls"]


def test_settings_count(tmp_path: Path) -> None:
    nodes = {"guess": {"predict": f"text -> first: {TOPICS}"}, "sort": {"predict": f"text, first -> label: {TOPICS}"}}
    schedule = {"steps": 5, "tasks": 4, "rollouts": 3, "evaluate_every": 2}  # three candidates, the last at the end
    assert calls(tmp_path, {"grpo": {"schedule": schedule}}) == 5 * 4 * 3 + 3 * 12
    assert calls(tmp_path, {"grpo": {"schedule": {**schedule, "tasks": 40}}}) == 5 * 16 * 3 + 3 * 12
    assert calls(tmp_path, {"grpo": {"schedule": schedule}}, nodes=nodes) == 2 * (5 * 4 * 3 + 3 * 12)
    assert calls(tmp_path, {"grpo": {"schedule": {**schedule, "dynamic_sampling": 2}}}) == 5 * 4 * 3 * 3 + 3 * 12
    judged = [{"kind": "metric"}, {"kind": "judge"}]
    assert calls(tmp_path, {"grpo": {"schedule": schedule, "rewards": judged}}) == 5 * 4 * 3 * 2 + 3 * 12
    tree = {"branches": 2, "depth": 2}
    assert calls(tmp_path, {"dpo": {"tasks": 8, "epochs": 1, "tree": tree}}, nodes=nodes) == 8 * (2 + 4) + 12 * 2
    assert calls(tmp_path, {"sft": {"source": "labels", "epochs": 3, "evaluate_every": 2}}) == 2 * 12
    agent = {"solve": {"agent": f"text -> label: {TOPICS}", "max_steps": 2}}
    short = calls(tmp_path, {"grpo": {"schedule": schedule}}, nodes=agent)
    grown = calls(
        tmp_path,
        {"grpo": {"schedule": schedule, "stages": [{"start": 0, "max_steps": 2}, {"start": 3, "max_steps": 6}]}},
        nodes=agent,
    )
    assert short < grown


def test_rounds_and_metrics_that_ask_count(tmp_path: Path) -> None:
    optimizer = {"grpo": {"schedule": {"steps": 2, "tasks": 4, "rollouts": 3}}}
    once, thrice = (estimated(tmp_path, optimizer, rounds=n) for n in (1, 3))
    assert (once["max_calls"], thrice["max_calls"]) == (12 + 40 + 36, 12 + 40 + 3 * 36)
    asks = estimated(tmp_path, optimizer, metric="judge(label)")
    assert asks["max_calls"] is None and not any("at most 36" in line for line in asks["lines"])
    assert "The metric calls a model, too; its calls are extra." in asks["lines"]


def test_what_does_not_say_leaves_the_rest_of_the_budget(tmp_path: Path) -> None:
    schedule = {"grpo": {"schedule": {"steps": 2, "tasks": 4, "rollouts": 3}}}  # 24 and 12
    found = estimated(tmp_path, {"random": {}}, schedule, budget={"calls": 1000})
    assert found["max_calls"] is None and found["optimizer_calls"][0] == {"optimizer": "random", "calls": None}
    assert "Of 1000 calls, 912 are left for search: about 76 candidates." in found["lines"]  # less 12, 40 and 36
    small = estimated(tmp_path, schedule, budget={"calls": 60})
    assert "Warning: of 60 calls, 8 are left for search, which may take 36." in small["lines"]
