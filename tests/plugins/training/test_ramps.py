"""Settings of nodes that change from step to step of training: their values, and what reaches the rollouts."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.grpo_runs import needs_torch, run
from tests.helpers.scripted import make_workflow

from workbench.errors import SpecError
from workbench_training.ramps import check_ramps, final_values, ramp_value, ramped_values


def test_the_curve_is_that_of_zerosearch() -> None:
    """p_s + (4^(i/m) - 1) / 3 * (p_e - p_s), by numbers worked out beforehand."""
    assert [ramp_value(0.25, 0.75, step, 5) for step in range(5)] == pytest.approx(
        [0.25, 0.3190355937, 0.4166666667, 0.5547378541, 0.75]
    )
    assert ramp_value(0.25, 0.75, 2, 5) == pytest.approx(0.25 + 0.5 * (2 - 1) / 3)
    assert ramp_value(0.0, 0.5, 0, 1) == 0.0


def test_any_numeric_setting_of_a_node_may_change_and_whole_ones_stay_whole(tmp_path: Path) -> None:
    agent = {"agent": "text -> label", "max_steps": 2}
    workflow = make_workflow({"solve": agent}, tmp_path)
    steps = {"nodes.solve.max_steps": (1.0, 4.0)}
    found = [ramped_values(steps, workflow, i, 7)["nodes.solve.max_steps"] for i in range(7)]
    assert found[0] == 1 and found[-1] == 4 and found == sorted(found) and all(isinstance(v, int) for v in found)
    assert [end["nodes.solve.max_steps"] for end in final_values(steps, workflow)] == [1, 4]


@pytest.mark.parametrize(
    ("address", "first", "said"),
    [
        ("nodes.solve.noise", 0.0, "not a numeric setting"),
        ("nodes.slove.max_steps", 1.0, "not a numeric setting"),
        ("nodes.solve.instructions", 0.0, "not a numeric setting"),
        ("lm.timeout", 0.0, "not a numeric setting"),
        ("nodes.solve.temperature", 0.0, "training temperature"),
        ("nodes.solve.max_steps", 0.0, "greater than or equal to 1"),
    ],
)
def test_addresses_and_values_of_no_use_are_refused(address: str, first: float, said: str, tmp_path: Path) -> None:
    workflow = make_workflow({"solve": {"agent": "text -> label", "temperature": 1.0}}, tmp_path)
    with pytest.raises(SpecError, match=said) as found:
        check_ramps({address: (first, 2.0)}, workflow)
    assert found.value.path == ("ramps", address)


# In whole runs


def write_engine(folder: Path) -> dict[str, Any]:
    """A node whose policy writes a query, and an engine that another model plays."""
    from tests.helpers.tiny_lm import save_taught

    return {
        "write": {"predict": "text -> query", "decoding": {"max_tokens": 8}},
        "find": {
            "simulated_search": 1,
            "lm": {"model": f"hf:{save_taught(folder / 'engine', ['doc 1: x'], 1)}", "max_tokens": 12},
            "knows": ["text"],
            "output": "label",
        },
    }


def settings(final: float = 1.0) -> dict[str, Any]:
    return {
        "schedule": {"steps": 4, "tasks": 8, "rollouts": 8, "evaluate_every": 4, "save_every": 1},
        "learning": {"rate": 1e-4},
        "rewards": [{"kind": "length", "tokens": 8}],
        "guards": ["empty", "repeated"],
        "device": "cpu",
        "ramps": {"nodes.find.noise": [0.0, final]},
    }


def noise_by_step(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[tuple[str, int, bool]]]:
    """(row, sample, whether its search was noisy), by step, filled from now on."""
    from workbench_training.rollouts.study_rollouts import StudyRolloutSource

    found: dict[int, list[tuple[str, int, bool]]] = defaultdict(list)
    real = StudyRolloutSource.rollouts

    async def watched(self: StudyRolloutSource, tasks: Any, schedule: Any, step: int) -> Any:
        groups = await real(self, tasks, schedule, step)
        for group in groups:
            for r in group:
                spans = r.result.trace.spans if r.result.trace else []
                found[step] += [(r.example.id, r.replica, s.notes["noisy"]) for s in spans if "noisy" in s.notes]
        return groups

    monkeypatch.setattr(StudyRolloutSource, "rollouts", watched)
    return found


def start(folder: Path, base: Path, nodes: dict[str, Any], *, again: bool = False) -> Any:
    return run(
        folder,
        again=again,
        lm=f"hf:{base}",
        nodes=nodes,
        rows=(8, 2, 2),
        metric="contains(label)",
        optimizers=[{"grpo": settings()}],
        budget={"calls": 2000},
    )


def test_the_noise_is_what_the_schedule_says_and_the_same_in_a_resumed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_torch()
    from tests.helpers.tiny_lm import save_taught

    from workbench_training.rollouts.study_rollouts import StudyRolloutSource

    base, nodes = save_taught(tmp_path / "base", ["ab", "cde"]), write_engine(tmp_path)
    seen = noise_by_step(monkeypatch)
    whole = start(tmp_path / "whole", base, nodes)
    assert whole.status == "finished" and whole.spent["by_role"]["engine"]["calls"] > 0
    first = {step: sorted(found) for step, found in seen.items()}
    for step in range(4):
        drawn = [noisy for *_, noisy in first[step]]
        share, expected = sum(drawn) / len(drawn), ramp_value(0.0, 1.0, step, 4)
        assert len(drawn) >= 60 and share == pytest.approx(expected, abs=0.25 if 0 < expected < 1 else 0), step

    real = StudyRolloutSource.rows

    def killed(self: StudyRolloutSource, rollout: Any, version: int) -> Any:
        if version == 2:
            raise KeyboardInterrupt
        return real(self, rollout, version)

    seen.clear()
    with monkeypatch.context() as patch:
        patch.setattr(StudyRolloutSource, "rows", killed)
        try:
            start(tmp_path / "cut", base, nodes)
        except KeyboardInterrupt:
            pass
    seen.clear()
    resumed = start(tmp_path / "cut", base, nodes, again=True)
    assert resumed.status == "finished" and 2 in seen and 3 in seen
    assert {step: sorted(found) for step, found in seen.items()} == {step: first[step] for step in seen}


def test_what_the_engine_writes_is_not_learned_and_does_not_count_as_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.lm import Response
    from workbench.study import Result
    from workbench.task import Example
    from workbench.workflow import CallRecord, Span, Trace
    from workbench_training.rewards import Rollout

    own = CallRecord((), Response("short", "stop", 1, 3), "task", "policy:p@0", False, 0.0)
    engine = CallRecord((), Response("long", "length", 1, 50), "engine", "e", False, 0.0)
    task = Example("t", {})
    made = Rollout(task, Result(task, 1.0, trace=Trace("t", [Span("n", "N", {}, calls=[own, engine])])), 0)
    assert (made.texts, made.text, made.drawn, made.truncated) == (["short"], "short", 3, False)


def test_rewards_may_name_further_metrics_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_torch()
    from workbench_training.rollouts.study_rollouts import StudyRolloutSource

    parts: list[dict[str, float]] = []
    real = StudyRolloutSource.rollouts

    async def watched(self: StudyRolloutSource, *args: Any) -> Any:
        groups = await real(self, *args)
        parts.extend(r.parts for group in groups for r in group)
        return groups

    monkeypatch.setattr(StudyRolloutSource, "rollouts", watched)
    third = "python:third.py:third"
    grpo = {
        "schedule": {"steps": 1, "tasks": 2, "rollouts": 2},
        "rewards": [{"kind": "metric"}, {"kind": "metric", "metric": third, "weight": 0.5}],
    }
    metrics = ["exact_match(label)", third]
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "third.py").write_text("def third(example, prediction):\n    return 0.25\n")
    assert run(tmp_path / "a", optimizers=[{"grpo": grpo}], metric=metrics).status in ("finished", "budget")
    assert len(parts) == 4 and all(set(p) == {"metric", f"metric.{third}"} for p in parts)
    assert {p[f"metric.{third}"] for p in parts} == {0.25}
    with pytest.raises(SpecError, match=r"lists no further metric 'list_format'"):
        grpo["rewards"] = [{"kind": "metric", "metric": "list_format"}]
        run(tmp_path / "b", optimizers=[{"grpo": grpo}], metric=metrics)
