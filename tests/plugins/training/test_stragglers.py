"""Rollouts that are ended because they draw far more tokens than others: which, what is learned, and what is paid."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from pydantic import ValidationError  # noqa: E402
from tests.helpers.grpo_runs import learned_rows, run  # noqa: E402
from tests.helpers.grpo_worlds import TextSource, bandit  # noqa: E402

from workbench.study import Result  # noqa: E402
from workbench.task import Example  # noqa: E402
from workbench_training.grpo import GRPO  # noqa: E402
from workbench_training.rewards import Rollout  # noqa: E402
from workbench_training.rollouts.rollout_source import RolloutSource  # noqa: E402
from workbench_training.rollouts.stragglers import StragglerCut  # noqa: E402
from workbench_training.rollouts.token_rows import Row  # noqa: E402
from workbench_training.settings import TrainingSchedule  # noqa: E402
from workbench_training.state.training_state import State  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Lengths(RolloutSource):
    """Rollouts whose rows have given lengths, by policy; `!` marks those that were cut at their end."""

    limits: Mapping[str, int] | None = None

    def limit(self, tokens: Mapping[str, int]) -> None:
        self.limits = dict(tokens)

    def rows(self, rollout: Rollout, version: int) -> list[Row]:
        found = []
        for entry in str(rollout.example["rows"]).split():
            policy, _, length = entry.rstrip("!").partition(":")
            n = int(length)
            row = Row((1,), (2,) * n, (1,) * n, (0.0,) * n, 1.0, "t", policy=policy, truncated=entry.endswith("!"))
            found.append(row)
        return found


def rollout(rows: str, failure: str | None = None, message: str | None = None) -> Rollout:
    example = Example("t", {"rows": rows})
    return Rollout(example, Result(example, 0.0, failure, message), 0, 1.0)


def cut(state: State, multiple: float | None = 2.0) -> tuple[StragglerCut, Lengths]:
    source = Lengths()  # type: ignore[abstract]
    return StragglerCut(source, TrainingSchedule(straggler_cut=multiple), state), source


def test_the_limit_is_a_multiple_of_the_median_of_the_longest_conversations() -> None:
    first, source = cut(State())
    assert source.limits == {}, "in the first step nothing is known"
    groups = [[rollout("a:9 a:3 b:1"), rollout("a:4 b:5")], [rollout("a:30! b:2")]]
    assert first.keep(groups, 0) == groups and first.count == 0
    assert first.medians() == {"a": 9.0, "b": 2.0}
    _, source = cut(State(usual_length=first.medians()), 1.5)
    assert source.limits == {"a": 14, "b": 3}


def test_groups_are_kept_without_what_was_cut() -> None:
    stragglers, _ = cut(State(usual_length={"a": 5.0}))
    whole, at_limit, below = rollout("a:10"), rollout("a:2 a:10!"), rollout("a:9! b:99!")
    refused = rollout("a:4", "too_long", "straggler_cut: the conversation has 11 tokens, of 10 at most")
    other = rollout("a:4", "too_long", "the prompt has 900 tokens, the model's context 512")
    kept = stragglers.keep([[whole, at_limit, below], [refused], [other, refused]], 0)
    assert kept == [[whole, below], [other]] and stragglers.count == 3
    assert stragglers.medians()["a"] == 6.5, "those that were cut count with what they drew"


def test_without_the_setting_nothing_is_limited_or_counted() -> None:
    stragglers, source = cut(State(usual_length={"a": 5.0}), None)
    groups = [[rollout("a:99!")]]
    assert stragglers.keep(groups, 0) == groups and source.limits is None and stragglers.medians() == {}


def short(text: str) -> float:
    return 1.0 / (1 + len(text))


def trained(folder: Path, *, multiple: float | None = 1.5, **more: Any) -> Any:
    """Answers of up to 110 tokens, of which most end earlier."""
    schedule = {"straggler_cut": multiple, "save_every": 2, **more.pop("schedule", {})}
    return bandit(folder, short, steps=4, schedule=schedule, world=Long, rate=1e-2, **more)


class Long(TextSource):
    def __init__(self, *args: Any, **more: Any):
        super().__init__(*args, max_tokens=110, **more)
        self.made: list[list[int]] = []  # tokens by step

    async def rollouts(self, tasks: Sequence[Example], schedule: TrainingSchedule, step: int) -> list[list[Rollout]]:
        groups = await super().rollouts(tasks, schedule, step)
        self.made.append([len(row.token_ids) for group in groups for r in group for row in self.rows(r, step)])
        return groups

    def rows(self, rollout: Rollout, version: int) -> list[Row]:
        assert rollout.result.trace is not None
        finish = rollout.result.trace.calls[0].response.finish
        return [replace(row, truncated=finish == "length") for row in super().rows(rollout, version)]


def test_what_was_cut_is_paid_and_told_and_not_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = learned_rows(monkeypatch)
    made = trained(tmp_path)
    drawn, counts = made.source.made, [int(f["cut"]) for f in made.history]
    limits = [110, *(math.ceil(1.5 * statistics.median(lengths)) for lengths in drawn[:-1])]
    for lengths, limit, count in zip(drawn, limits, counts, strict=True):
        assert max(lengths) <= limit and sum(n == limit for n in lengths) >= count
    assert counts[0] == 0 < counts[1]
    assert len(made.source.drawn) == 4 * 32 and [f["rows"] for f in made.history] == [32 - n for n in counts]
    assert len(rows) == sum(32 - n for n in counts)


@pytest.mark.parametrize("crash", [2, pytest.param(3, marks=pytest.mark.long)])
def test_a_resumed_training_cuts_what_the_first_one_did(tmp_path: Path, crash: int) -> None:
    whole = trained(tmp_path, checkpoints="whole")
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path, checkpoints="died", crash=crash)
    again = trained(tmp_path, checkpoints="died")
    assert again.learners[""].policy.digest() == whole.learners[""].policy.digest() and again.state == whole.state
    uncut = trained(tmp_path, checkpoints="uncut", multiple=None)
    assert uncut.learners[""].policy.digest() != whole.learners[""].policy.digest()


def test_a_call_beyond_the_limit_ends_the_rollout_and_not_the_training(tmp_path: Path) -> None:
    """An agent whose answers cannot be read goes on to its last turn: the second step has four more of them."""
    from tests.helpers.tiny_lm import save_taught

    agent = {"agent": "text -> label: Literal['billing', 'technical']", "max_steps": 5, "max_tokens": 8}
    schedule = {"steps": 2, "tasks": 2, "rollouts": 2, "evaluate_every": 2}
    stages = [{"start": 0, "max_steps": 1}, {"start": 1, "max_steps": 5}]
    heard: list[Any] = []
    settings = {
        "schedule": {**schedule, "straggler_cut": 1.5},
        "stages": stages,
        "device": "cpu",
        "guards": ["empty", "repeated"],
    }
    lm = f"hf:{save_taught(tmp_path / 'base', ['abc'])}"
    report = run(tmp_path, lm=lm, nodes={"solve": agent}, optimizers=[{"grpo": settings}], rows=(4, 2, 2), heard=heard)
    assert report.status == "finished"
    steps = [figures for _, figures in heard if "cut" in figures]
    assert [figures["cut"] for figures in steps] == [0, 4] and steps[1]["rows"] == 0


def test_it_is_refused_where_each_step_is_learned_by_itself() -> None:
    for algorithm in ("gigpo", "ppo"):
        with pytest.raises(ValidationError, match="counts the tokens of a conversation"):
            GRPO.model_validate({"algorithm": algorithm, "schedule": {"straggler_cut": 3}})
    with pytest.raises(ValidationError, match="greater than 1"):
        GRPO.model_validate({"schedule": {"straggler_cut": 1}})
