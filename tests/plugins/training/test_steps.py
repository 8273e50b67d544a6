"""Trainings of whole runs in which an agent acts in an environment, or talks with a simulated user: who earned what."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.helpers.door import write_door
from tests.helpers.grpo_runs import SMALL, learned_rows, needs_torch, run, unused_study

from workbench_training.advantages import compute_step_returns
from workbench_training.rollouts.token_rows import Row

DOOR = write_door("f\"{self.state['at']}{'k' if self.state['key'] else 'n'}\"", named=True)


def test_steps_in_an_environment_earn_what_they_changed_and_are_compared_in_its_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_torch()
    from tests.helpers.tiny_lm import save_taught

    (tmp_path / "door.py").write_text(DOOR)
    seen = learned_rows(monkeypatch)
    walk = {
        "tree_search": "python:door.py:Door",
        "order": "greedy",
        "samples": 1,
        "max_steps": 6,
        "max_tokens": 4,
        "history": 2,
    }
    schedule = {**SMALL["schedule"], "steps": 2, "tasks": 1, "rollouts": 12}
    grpo = {"algorithm": "gigpo", "schedule": schedule, "device": "cpu", "learning": {"rate": 1e-3}}
    report = run(
        tmp_path,
        lm=f"hf:{save_taught(tmp_path / 'base', list('abcd'))}",
        nodes={"walk": walk},
        rows=(2, 2, 2),
        metric="python:door.py:reached",
        optimizers=[{"grpo": grpo}],
    )
    assert report.status == "finished" and seen
    walks: dict[Any, list[Row]] = defaultdict(list)
    for row in seen:
        walks[row.version, row.task, row.rollout].append(row)
    whole: list[Row] = []
    for rows in walks.values():
        earned = [row.step_reward for row in sorted(rows, key=lambda r: r.turn)]
        # What is drawn depends on the machine's rounding: an answer may name no action. That ends the walk with
        # nothing.
        if None in earned:
            assert set(earned) == {None} and rows[0].reward == 0.0
            continue
        whole += rows
        assert sum(earned) == rows[0].reward, "the walk's score, by the steps that changed it"
        assert set(earned) <= {0.0, 0.5}
    assert whole, "no walk came to its end"
    keys = [r for r in whole if r.step_reward == 0.5]
    assert keys, "no walk came to the key"
    assert len({r.anchor for r in whole}) <= 7, "states of the corridor, whatever was seen before"
    assert len({r.prompt_ids for r in whole}) > 7, "with what was seen before, prompts are many more"


def test_returns_begin_at_the_step_that_earned() -> None:
    def row(turn: int, earned: float | None) -> Row:
        return Row((1,), (2,), (1,), (-1.0,), 1.0, "t", turn=turn, step_reward=earned)

    assert compute_step_returns([row(0, 0.0), row(1, 0.5), row(2, 0.0), row(3, 0.5)], 0.5).tolist() == [
        0.3125,
        0.625,
        0.25,
        0.5,
    ]
    assert compute_step_returns([row(0, None), row(1, None)], 0.5).tolist() == [0.5, 1.0], (
        "without: the rollout's, at its end"
    )


def test_a_walk_that_was_not_scored_counts_for_none_and_a_guarded_one_earns_nothing_by_steps() -> None:
    from workbench.lm import Response
    from workbench.study import Result
    from workbench.task import Example
    from workbench.workflow import CallRecord, Span, Trace
    from workbench_training.advantages import compute_advantages
    from workbench_training.presets import make_objective
    from workbench_training.rewards import GUARDS, Rollout
    from workbench_training.rollouts.study_rollouts import StudyRolloutSource

    def row(rollout: int, reward: float | None, earned: float) -> Row:
        return Row((1,), (2,), (1,), (-1.0,), reward, "t", rollout, anchor="s", step_reward=earned)

    objective = make_objective("gigpo")
    alone = compute_advantages([row(0, 0.0, 0.0), row(1, 1.0, 1.0)], objective)
    beside = compute_advantages([row(0, 0.0, 0.0), row(1, 1.0, 1.0), row(2, None, 5.0)], objective)
    assert beside.tolist() == [*alone.tolist(), 0.0]

    source = StudyRolloutSource(
        unused_study(),
        {"": SimpleNamespace(key="k", rewards=None)},
        [],  # type: ignore[arg-type,dict-item]
        GUARDS,
        merge=False,
    )
    call = CallRecord(
        ({"role": "user", "content": "go"},),
        Response("x", prompt_ids=(1,), token_ids=(2,), logprobs=(-1.0,)),
        "task",
        "policy:k@0",
        False,
        0.0,
        earned=1.0,
    )
    task = Example("t", {})
    result = Result(task, 1.0, trace=Trace("t", [Span("n", "N", {}, calls=[call])]))
    assert source.rows(Rollout(task, result, 0, 1.0), 0)[0].step_reward == 1.0
    assert source.rows(Rollout(task, result, 0, 0.0, guarded="repeated"), 0)[0].step_reward is None


def test_a_training_with_a_simulated_user_learns_from_the_agent_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy speaks first, the user answers by its own model, and what the user said stands masked between."""
    needs_torch()
    from tests.helpers.tiny_lm import save_taught

    seen = learned_rows(monkeypatch)
    base = save_taught(tmp_path / "base", ["say: a", "say: bc", "label: d"])
    other = save_taught(tmp_path / "user", ["yes", "no"], 1)
    agent = {
        "agent": "text -> label",
        "user": {"knows": ["label"]},
        "max_steps": 3,
        "max_tokens": 40,
        "temperature": 1.0,
    }
    grpo = {
        "schedule": {**SMALL["schedule"], "steps": 2, "tasks": 2},
        "device": "cpu",
        "guards": ["empty", "repeated"],
        "rewards": [{"kind": "length", "tokens": 40}],
        "learning": {"rate": 1e-3},
    }
    report = run(
        tmp_path,
        lm=f"hf:{base}",
        roles={"user": f"hf:{other}"},
        nodes={"help": agent},
        rows=(4, 2, 2),
        data={"label_as_input": True},  # the user knows it
        optimizers=[{"grpo": grpo}],
    )
    assert report.status == "finished" and seen and {r.agent for r in seen} == {"help"}
    assert any(0 in r.mask for r in seen), "no conversation went on from its own tokens"
    assert report.spent["by_role"]["user"]["calls"] > 0


def test_rollouts_draw_one_action_where_an_agent_votes_training_6(tmp_path: Path) -> None:
    """What lost a vote was not done, and is nothing to learn from."""
    from tests.helpers.scripted import make_workflow

    from workbench.spec import lm_spec
    from workbench_training.rewards import GUARDS
    from workbench_training.rollouts.study_rollouts import StudyRolloutSource, TrainedPolicy
    from workbench_training.settings import Learning, TrainingSchedule

    (tmp_path / "tools.py").write_text("def half(n: int) -> int:\n    return n // 2\n")
    agent = {"agent": "q -> answer", "tools": ["python:tools.half"], "actions": 3}
    workflow = make_workflow({"solve": agent, "say": {"predict": "answer -> words"}}, tmp_path)
    study = SimpleNamespace(lm=lambda role: None, workflow=workflow)
    role = TrainedPolicy("", "lm", lm_spec("bundled/nano"), None, None, Learning(), key="k")  # type: ignore[arg-type]
    source = StudyRolloutSource(study, {"": role}, [], GUARDS)  # type: ignore[arg-type]
    drawn = source.workflow_at(0, TrainingSchedule())
    assert (workflow.get("nodes.solve.actions"), drawn.get("nodes.solve.actions")) == (3, 1)
    assert drawn.get("lm")["model"] == "policy:k@0" and "actions" not in drawn.get("nodes.say")


def test_the_line_of_a_step_says_what_people_steer_by(tmp_path: Path) -> None:
    """Seconds, tokens a second, the length of answers and the share cut; and the curve is in the report."""
    needs_torch()
    heard: list[Any] = []
    nodes = {"sort": {"predict": "text -> label", "decoding": {"max_tokens": 1}}}
    schedule = {"steps": 2, "tasks": 2, "rollouts": 2}
    report = run(tmp_path, heard=heard, nodes=nodes, optimizers=[{"grpo": {"schedule": schedule}}], rows=(4, 4, 4))
    steps = [(message, figures) for message, figures in heard if message.startswith("step ")]
    assert len(steps) == 2
    for message, figures in steps:
        assert re.search(r"; \d+\.\d s, [\d,]+ tokens/s, 1 tokens an answer, 100% cut at max_tokens$", message)
        assert figures["answer_tokens"] == 1.0 and figures["truncated"] == 1.0 and figures["seconds"] > 0
        assert figures["tokens_per_second"] == pytest.approx(figures["tokens"] / figures["seconds"])
    assert any(line.startswith("Training (grpo): reward 0.000 in step 1") for line in report.lines())
    assert [len(curve.points) for curve in report.curves] == [2]
