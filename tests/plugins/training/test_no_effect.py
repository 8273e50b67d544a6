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
    settings = {"algorithm": "constrained", "objective": {"constraints": {"token": {"budget": 20.0}}}}
    error = refused(tmp_path, settings)
    assert error.path == ("optimize", 0, "grpo", "objective", "constraints") and error.line == 1
    assert "there is no cost 'token' to constrain. Did you mean 'tokens'?" in error.message
    settings["objective"] = {"constraints": {"calls": {"budget": 2.0}}}
    prepare(write(tmp_path, optimizers=[{"grpo": settings}]))


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"schedule": {"horizon": [2, 4]}}, ("schedule", "horizon")),
        ({"stages": [{"start": 0}, {"start": 4, "max_steps": 3}]}, ("stages", 1, "max_steps")),
    ],
)
def test_a_horizon_that_no_node_takes_is_refused(settings: Any, place: tuple[Any, ...], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    error = refused(tmp_path, settings)
    assert error.path == ("optimize", 0, "grpo", *place) and "no node of the workflow takes steps" in error.message


def test_a_horizon_that_a_node_cannot_take_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    agent = {"sort": {"agent": "text -> label: str"}}
    error = refused(tmp_path, {"schedule": {"horizon": [2, 500]}}, nodes=agent)
    assert error.path == ("optimize", 0, "grpo", "schedule", "horizon") and "the horizon 500" in error.message


@pytest.mark.parametrize(
    ("node", "address"),
    [
        ({"agent": "text -> label"}, "nodes.n.max_steps"),
        (STATES, "nodes.n.max_steps"),
        ({"tree_search": "web", "show": ["text"]}, "nodes.n.max_steps"),
        ({"ensemble": {"agent": "text -> label"}, "samples": 2}, "nodes.n.of.max_steps"),
    ],
)
def test_a_horizon_reaches_every_node_that_takes_steps(node: Any, address: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tests.helpers.scripted import make_workflow

    from workbench_training.rollouts.study_rollouts import set_max_steps

    workflow = make_workflow({"n": node}, tmp_path)
    assert set_max_steps(workflow, 3) == {address: 3} and set_max_steps(workflow, None) == {}
    assert workflow.patched(set_max_steps(workflow, 3)).get(address) == 3


@pytest.mark.parametrize(
    ("settings", "place", "reason"),
    [
        ({"objective": {"clip_high": 0.4}}, ("objective", "clip_high"), "one update, in which every ratio is 1"),
        ({"objective": {"delta": 3.0}}, ("objective", "delta"), "one update"),
        ({"algorithm": "cispo", "objective": {"clip_low": 0.1}}, ("objective", "clip_low"), "has no lower clip"),
        ({"algorithm": "gspo", "objective": {"pair_beta": 0.2}}, ("objective", "pair_beta"), "compares no pairs"),
        ({"objective": {"kl": "k2"}}, ("objective", "kl"), "beta is 0"),
        ({"algorithm": "rloo", "objective": {"kl": "k3"}}, ("objective", "kl"), "in the reward"),
        ({"objective": {"gamma": 0.9}}, ("objective", "gamma"), "step_weight is 0"),
        ({"algorithm": "trpa", "objective": {"clip_high": 0.3}}, ("objective", "clip_high"), "has no clip"),
        ({"algorithm": "trpa", "objective": {"scale": "none"}}, ("objective", "scale"), "by their rewards"),
        (
            {"algorithm": "trpa", "objective": {"constraints": {"calls": {"budget": 2.0}}}},
            ("objective", "constraints"),
            "by their rewards",
        ),
        ({"algorithm": "trpa", "objective": {"correction": {"cap": 3.0}}}, ("objective", "correction"), "no policy"),
        (
            {"objective": {"correction": {"cap": 3.0}}, "learning": {"temperature": 0.7}},
            ("objective", "correction"),
            "those at temperature 1",
        ),
        ({"algorithm": "ppo", "objective": {"scale": "std"}}, ("objective", "scale"), "a critic gives the advantages"),
        ({"schedule": {"horizon_steps": 5}}, ("schedule", "horizon_steps"), "there is no horizon"),
        ({"learning": {"max_tokens": 64}}, ("learning", "max_tokens"), "as in dr_grpo, divides by it"),
        (
            {"policies": {"a": {"address": "lm", "learning": {"max_tokens": 64}}}},
            ("policies", "a", "learning", "max_tokens"),
            "as in dr_grpo, divides by it",
        ),
    ],
)
def test_a_setting_that_nothing_reads_is_refused(
    settings: Any, place: tuple[Any, ...], reason: str, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    error = refused(tmp_path, settings)
    assert error.path == ("optimize", 0, "grpo", *place)
    assert f"{place[-1]} has no effect: " in error.message and reason in error.message and error.hint


@pytest.mark.parametrize(
    "settings",
    [
        {"objective": {"clip_high": 0.4}, "learning": {"minibatches": 2}},
        {"objective": {"clip_high": 0.4}, "schedule": {"replay": 2}},
        {"algorithm": "prorl", "objective": {"clip_high": 0.3}},
        {"algorithm": "cispo", "objective": {"clip_high": 3.0, "correction": {"cap": 3.0}}},
        {"algorithm": "trpa", "objective": {"correction": None}, "learning": {"temperature": 0.7}},
        {"algorithm": "dr_grpo", "learning": {"max_tokens": 64}},
        {"algorithm": "gigpo", "objective": {"gamma": 0.9}},
    ],
)
def test_a_setting_that_something_reads_is_taken(settings: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    _, _, task, optimizers = prepare(write(tmp_path, optimizers=[{"grpo": settings}]))
    assert find_obstacles(task, optimizers) == []


def test_every_algorithm_is_ready_as_it_stands(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from workbench_training.presets import PRESETS

    for name in PRESETS:
        settings = {"algorithm": name}
        nodes = {"sort": {"predict": "text -> label"}}
        _, _, task, optimizers = prepare(write(tmp_path, optimizers=[{"grpo": settings}], nodes=nodes))
        assert find_obstacles(task, optimizers) == [], name


def test_a_divisor_that_is_not_what_nodes_may_write_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    node = {"sort": {"predict": "text -> label: str", "decoding": {"max_tokens": 40}}}
    error = refused(tmp_path, {"algorithm": "dr_grpo"}, nodes=node)
    assert error.path == ("optimize", 0, "grpo", "learning", "max_tokens")
    assert "256 by default, but nodes.sort.decoding.max_tokens is 40" in error.message
    assert error.hint == "Write `learning: {max_tokens: 40}`."
    for settings in ({"algorithm": "dr_grpo", "learning": {"max_tokens": 40}}, {"algorithm": "dapo"}):
        _, _, task, optimizers = prepare(write(tmp_path, nodes=node, optimizers=[{"grpo": settings}]))
        assert find_obstacles(task, optimizers) == []


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
