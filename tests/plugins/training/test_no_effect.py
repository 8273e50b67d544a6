"""Settings of training that would do nothing are refused with their place, or do what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.grpo_runs import write

from workbench.errors import SpecError
from workbench.run import find_obstacles, prepare

STATES = {"states": {"ask": {"instructions": "Ask.", "next": "end"}}, "signature": "text -> label", "start": "ask"}


def refused(folder: Path, settings: Any, **spec: Any) -> SpecError:
    try:
        _, _, task, optimizers = prepare(write(folder, optimizers=[{"grpo": settings}], **spec))
        return next(e for e in find_obstacles(task, optimizers) if isinstance(e, SpecError))
    except SpecError as error:
        return error


def test_a_cost_that_nobody_counts_is_refused(tmp_path: Path) -> None:
    settings = {"algorithm": "constrained", "constraints": {"token": 20.0}}
    error = refused(tmp_path, settings)
    assert error.path == ("optimize", 0, "grpo", "constraints") and error.line == 1
    assert "there is no cost 'token' to constrain. Did you mean 'tokens'?" in error.message
    settings["constraints"] = {"calls": 2.0}
    prepare(write(tmp_path, optimizers=[{"grpo": settings}]))


def test_steps_that_no_node_takes_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    error = refused(tmp_path, {"stages": [{"start": 0}, {"start": 4, "max_steps": 3}]})
    assert error.path == ("optimize", 0, "grpo", "stages", 1, "max_steps")
    assert "no node of the workflow takes steps" in error.message


def test_steps_that_a_node_cannot_take_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    agent = {"sort": {"agent": "text -> label: str"}}
    error = refused(tmp_path, {"stages": [{"start": 0, "max_steps": 2}, {"start": 4, "max_steps": 500}]}, nodes=agent)
    assert error.path == ("optimize", 0, "grpo", "stages", 1, "max_steps") and "500 steps" in error.message


@pytest.mark.parametrize(
    ("node", "address"),
    [
        ({"agent": "text -> label"}, "nodes.n.max_steps"),
        (STATES, "nodes.n.max_steps"),
        ({"tree_search": "web", "show": ["text"]}, "nodes.n.max_steps"),
        ({"ensemble": {"agent": "text -> label"}, "samples": 2}, "nodes.n.of.max_steps"),
    ],
)
def test_most_steps_reach_every_node_that_takes_steps(node: Any, address: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tests.helpers.scripted import make_workflow

    from workbench_training.rollouts.node_settings import set_max_steps

    workflow = make_workflow({"n": node}, tmp_path)
    assert set_max_steps(workflow, 3) == {address: 3} and set_max_steps(workflow, None) == {}
    assert workflow.patched(set_max_steps(workflow, 3)).get(address) == 3


def test_every_algorithm_is_ready_as_it_stands(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from workbench_training.presets import PRESETS

    for name in PRESETS:
        settings = {"algorithm": name}
        nodes = {"sort": {"predict": "text -> label"}}
        _, _, task, optimizers = prepare(write(tmp_path, optimizers=[{"grpo": settings}], nodes=nodes))
        assert find_obstacles(task, optimizers) == [], name


def test_refilling_from_no_other_rows_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    error = refused(tmp_path, {"schedule": {"tasks": 16, "dynamic_sampling": 2}})
    assert error.path == ("optimize", 0, "grpo", "schedule", "dynamic_sampling")
    assert "train has only 16 rows" in error.message
    for settings in (
        {"schedule": {"tasks": 15, "dynamic_sampling": 2}},
        {"algorithm": "dapo", "schedule": {"tasks": 16}},
    ):
        _, _, task, optimizers = prepare(write(tmp_path, optimizers=[{"grpo": settings}]))
        assert find_obstacles(task, optimizers) == []


def test_refilling_draws_from_the_rows_that_are_left(tmp_path: Path) -> None:
    """With fewer than twice as many rows as tasks, too: three tasks of four rows leave one."""
    pytest.importorskip("torch")
    from tests.helpers.grpo_worlds import bandit

    made = bandit(tmp_path, lambda text: 0.0, steps=3, tasks=3, schedule={"dynamic_sampling": 2})
    drawn = made.source.drawn  # type: ignore[attr-defined]
    for step in range(3):
        assert sum(s == step for s, _ in drawn) >= 8 * 4, "three rows, and the fourth in place of one"
    everything = bandit(
        tmp_path, lambda text: 0.0, steps=1, tasks=4, schedule={"dynamic_sampling": 2}, checkpoints="all"
    )
    assert len(everything.source.drawn) == 8 * 4  # type: ignore[attr-defined]
