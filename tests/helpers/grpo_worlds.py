"""Worlds without a workflow for tests of training: rewards for texts sampled from a tiny model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.tiny_lm import save
from workbench.lm import Request
from workbench.study import Result
from workbench.task import Example
from workbench.workflow import CallRecord, Span, Trace
from workbench_engine.generation import Generator
from workbench_training.model.policy import Policy
from workbench_training.objective import Objective
from workbench_training.presets import make_objective
from workbench_training.rewards import Rollout
from workbench_training.rollouts.rollout_source import RolloutSource
from workbench_training.rollouts.token_rows import Row, build_rows
from workbench_training.scale.distributed import learner_for
from workbench_training.serving.policy_lm import LocalEngine
from workbench_training.settings import Learning, TrainingSchedule
from workbench_training.trainer import Trainer

torch.set_num_threads(1)  # tiny models are slower with more, and tests share the cores

Reward = Callable[[str], float]


class CopyingEngine(LocalEngine):
    """Draws with a copy of the weights, which it takes at each version, as a server does."""

    def __init__(self, policy: Policy):
        copied = Policy(policy.made_with["base"], device="cpu")
        super().__init__(copied.generator)
        self.policy, self.copied = policy, copied

    def at(self, version: int) -> None:
        super().at(version)
        self.copied.restore(self.policy.snapshot())


class TextSource(RolloutSource):
    """Rollouts of one call each: the prompt is the task's `text`, the reward a function of the answer."""

    def __init__(self, engine: LocalEngine, reward: Reward, max_tokens: int = 8, seed: int = 0):
        self.engine, self.reward, self.max_tokens, self.seed = engine, reward, max_tokens, seed
        self.steps_left, self.drawn, self.submissions = 10**9, list[tuple[int, str]](), list[tuple[int, Path]]()

    async def rollouts(self, tasks: Sequence[Example], schedule: TrainingSchedule, step: int) -> list[list[Rollout]]:
        async def one(task: Example, k: int) -> Rollout:
            request = Request(
                ({"role": "user", "content": task["text"]},), 1.0, self.max_tokens, replica=k + 1000 * self.seed
            )
            response = await self.engine.complete(request)
            self.drawn.append((step, response.text))
            call = CallRecord(request.messages, response, "task", "m", False, 0.0)
            trace = Trace(task.id, [Span("n", "N", {}, calls=[call])])
            earned = self.reward(response.text)
            return Rollout(task, Result(task, earned, trace=trace), k, earned)

        return [list(await asyncio.gather(*(one(task, k) for k in range(schedule.rollouts)))) for task in tasks]

    def rows(self, rollout: Rollout, version: int) -> list[Row]:
        assert rollout.result.trace is not None
        return build_rows(
            rollout.result.trace.rollout,
            reward=rollout.reward,
            task=rollout.example.id,
            rollout=rollout.replica,
            version=version,
        )

    def limit(self, tokens: Mapping[str, int]) -> None:
        self.engine.conversations.limit = tokens.get("")

    def affords(self, schedule: TrainingSchedule, step: int) -> bool:
        self.steps_left -= 1
        return self.steps_left >= 0

    async def submit(self, folders: Mapping[str, Path], step: int, *, current: bool) -> float | None:
        self.submissions.append((step, folders[""]))
        return 0.0


def bandit(
    folder: Path,
    reward: Reward,
    *,
    seed: int = 0,
    steps: int = 40,
    rate: float = 3e-3,
    tasks: int = 4,
    objective: Objective | None = None,
    schedule: dict[str, Any] | None = None,
    crash: int | None = None,
    checkpoints: str = "schedule",
    affords: int = 10**9,
    texts: str = "abcd",
    learning: dict[str, Any] | None = None,
    world: type[TextSource] = TextSource,
    sampler: Callable[[Policy], Generator] = lambda policy: policy.generator,
    engine_of: Callable[[Policy], LocalEngine] | None = None,
    constants: Mapping[str, Any] | None = None,
    **more: Any,
) -> Trainer:
    """Train a tiny model. crash: stop at this step, as a kill would. affords: steps within the budget. sampler:
    what draws, by default the policy itself. engine_of: makes the engine, in place of one with the sampler. constants:
    of training, by module and name. more: further arguments of the trainer."""
    base = folder / f"base{seed}"
    if not base.exists():
        save(base, seed)
    policy = Policy(str(base), device="cpu", seed=seed)
    engine = LocalEngine(sampler(policy)) if engine_of is None else engine_of(policy)
    source = world(engine, reward, seed=seed)
    source.steps_left = affords
    learner = learner_for(
        policy, objective or make_objective("grpo"), Learning.model_validate({"rate": rate, **(learning or {})})
    )
    settings = TrainingSchedule.model_validate(
        {"steps": steps, "tasks": tasks, "rollouts": 8, "evaluate_every": 1000, "save_every": 1000, **(schedule or {})}
    )
    told: list[str] = []

    def log(message: str, **figures: Any) -> None:
        told.append(message)
        if crash is not None and message.startswith(f"step {crash}:"):
            raise KeyboardInterrupt

    trainer = Trainer(
        learner,
        source,
        [Example(str(i), {"text": c}) for i, c in enumerate(texts)],
        settings,
        folder / checkpoints,
        weights=folder / "weights",
        seed=seed,
        at=engine.at,
        log=log,
        **more,
    )
    trainer.told = told  # type: ignore[attr-defined]

    async def run() -> None:
        try:
            await trainer.train()
        finally:
            await engine.aclose()

    with pytest.MonkeyPatch.context() as patch:
        for name, value in (constants or {}).items():
            patch.setattr(f"workbench_training.{name}", value)
        asyncio.run(run())
    return trainer


def without_clock(history: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """The figures of steps that a resumed training repeats to the bit: all but those of the clock."""
    return [{k: v for k, v in figures.items() if k not in ("seconds", "tokens_per_second")} for figures in history]


def sevens(text: str) -> float:
    """The share of 7 among eight characters."""
    return text[:8].count("7") / 8
