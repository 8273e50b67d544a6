"""Credit for steps and for agents: GiGPO, Dr. MAS and critics beside plain GRPO, on two small worlds, reported as they
come.

    python contrib/bench/training/train_worlds.py --seeds 5

Policies are random Llamas of 0.1 million weights with a tokenizer of single characters; nothing is downloaded.

relay: one policy plays two roles, or (`policies`) a policy each. The first sees a digit and passes on one character;
the second sees that character and answers with one. Rewards of the roles differ in scale by a hundred: 10 for passing
the digit on, 0.1 for repeating what came. Compared are one group for a task (grpo), one for each task and role
(dr_mas), and two policies that are trained together, each by its own rows and rewards (policies), by how often the
digit arrives. `swapped` is the control: each role is given what the other earned.

door: a corridor of four places, the key at one end and the door at the other. Six moves, even tokens to the left, odd
ones to the right; 1 for coming to the door with the key, else 0. States recur, so moves can be compared in the same
state (gigpo), not only whole walks (grpo).

Values of states replace comparisons: of tokens (ppo, poad; turns have one token), of turns (archer).
Their critics have narrow heads and a rate for tiny models; archer trains its critic alone for 5 steps, in place of 20.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.helpers.tiny_lm import save

from workbench.lm import Request, Response
from workbench.study import Result
from workbench.task import Example
from workbench.workflow import CallRecord, Span, Trace
from workbench_training.model.policy import Policy
from workbench_training.presets import PRESETS, make_objective
from workbench_training.rewards import Rollout
from workbench_training.rollouts.rollout_source import RolloutSource
from workbench_training.rollouts.token_rows import Row, build_rows
from workbench_training.scale.distributed import learner_for
from workbench_training.serving.policy_lm import LocalEngine
from workbench_training.settings import Learning, Lora, TrainingSchedule
from workbench_training.trainer import Trainer


class World(RolloutSource):
    """A source of rollouts of several calls. `play` gives (span, reward of each agent, success)."""

    tasks = ["0"]
    roles: tuple[str, ...] = ()

    def __init__(self, engines: Mapping[str, LocalEngine], seed: int, swapped: bool = False):
        self.engines, self.seed, self.swapped = engines, seed, swapped
        self.success: list[float] = []
        self.rewards: dict[int, dict[str, float]] = {}

    async def ask(self, role: str, prompt: str, replica: int) -> Response:
        return await self.engines.get(role, self.engines.get("")).complete(  # type: ignore[union-attr]
            Request(({"role": "user", "content": prompt},), 1.0, 1, replica=replica + 10_000 * self.seed)
        )

    async def play(self, task: str, replica: int) -> tuple[list[Span], dict[str, float], bool]:
        raise NotImplementedError

    async def rollouts(self, tasks: Sequence[Example], schedule: TrainingSchedule, step: int) -> list[list[Rollout]]:
        async def one(task: Example, k: int) -> Rollout:
            spans, rewards, won = await self.play(task["text"], k)
            made = Rollout(task, Result(task, float(won), trace=Trace(task.id, spans)), k, sum(rewards.values()))
            self.rewards[id(made)] = rewards
            return made

        groups = [list(await asyncio.gather(*(one(t, k) for k in range(schedule.rollouts)))) for t in tasks]
        self.success.append(statistics.mean(r.result.score or 0.0 for group in groups for r in group))
        return groups

    def rows(self, rollout: Rollout, version: int) -> list[Row]:
        assert rollout.result.trace is not None
        earned = self.rewards[id(rollout)]
        if self.swapped:
            earned = dict(zip(self.roles, (earned[role] for role in reversed(self.roles)), strict=True))
        rows = build_rows(
            rollout.result.trace.rollout,
            reward=earned,
            task=rollout.example.id,
            rollout=rollout.replica,
            version=version,
            merge=False,
        )
        return rows if "" in self.engines else [replace(row, policy=row.agent) for row in rows]

    def affords(self, schedule: TrainingSchedule, step: int) -> bool:
        return True

    async def submit(self, folders: Mapping[str, Path], step: int, *, current: bool) -> float | None:
        return None


def span(agent: str, turn: int, response: Response) -> Span:
    return Span("n", "N", {}, calls=[CallRecord((), response, "task", "m", False, 0.0)], agent=agent, turn=turn)


class Relay(World):
    tasks = ["0", "1", "2", "3"]
    roles = ("first", "second")

    async def play(self, task: str, replica: int) -> tuple[list[Span], dict[str, float], bool]:
        hint = await self.ask("first", f"a{task}", replica)
        answer = await self.ask("second", f"b{hint.text}", replica)
        spans = [span("first", 0, hint), span("second", 0, answer)]
        rewards = {"first": 10.0 * (hint.text == task), "second": 0.1 * (answer.text == hint.text and hint.text != "")}
        return spans, rewards, answer.text == task


class Door(World):
    async def play(self, task: str, replica: int) -> tuple[list[Span], dict[str, float], bool]:
        place, key, spans = 1, False, []
        for turn in range(6):
            # The walk so far is no part of the prompt; the turn is part of the seed, so that states recur with
            # moves of their own.
            response = await self.ask("walker", f"{place}{'k' if key else 'n'}", replica + 100 * turn)
            spans.append(span("walker", turn, response))
            assert response.token_ids is not None
            place, had = min(max(place + (1 if response.token_ids[0] % 2 else -1), 0), 3), key
            key = key or place == 0
            self.passed(spans[-1], key and not had, key and place == 3)
            if key and place == 3:
                return spans, self.earned(key, True), True
        return spans, self.earned(key, False), False

    def passed(self, span: Span, found: bool, opened: bool) -> None:
        """After a move that found the key, or opened the door, or neither."""

    def earned(self, key: bool, opened: bool) -> dict[str, float]:
        return {"walker": float(opened)}


CRITIC = {"rate": 3e-3, "widths": (64,)}
CRITICS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("ppo", "poad"), CRITIC),
    "archer": {**CRITIC, "warmup": 5},
}

WORLDS: dict[str, tuple[type[World], tuple[str, ...], dict[str, Any]]] = {
    "relay": (
        Relay,
        ("grpo", "dr_mas", "policies", "swapped", "ppo", "poad", "archer"),
        {"steps": 60, "tasks": 4, "rollouts": 16},
    ),
    "door": (Door, ("grpo", "gigpo", "ppo", "poad", "archer"), {"steps": 40, "tasks": 1, "rollouts": 32}),
}


def train(
    world: str, algorithm: str, seed: int, rate: float, *, steps: int = 0, lora: Lora | None = None
) -> list[float]:
    """Success in each step. steps: in place of the world's; lora: for `policies`, adapters on one base."""
    made, _, schedule = WORLDS[world]
    schedule = {**schedule, **({"steps": steps} if steps else {})}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        base, several = str(save(folder / "base", seed)), algorithm in ("policies", "swapped")
        policies: dict[str, Policy] = {}
        for i, name in enumerate(made.roles if several else ("",)):
            beside = next(iter(policies.values()), None) if lora else None
            policies[name] = Policy(base, device="cpu", lora=lora, seed=seed + i, name=name or "default", beside=beside)
        engines = {name: LocalEngine(policy.generator) for name, policy in policies.items()}
        source = made(engines, seed, algorithm == "swapped")
        changes = {"critic": CRITICS[algorithm]} if algorithm in CRITICS else {}
        objective = make_objective("grpo" if several else algorithm, changes)
        learned = PRESETS[algorithm].learning if algorithm in CRITICS else {}
        learning = Learning.model_validate({"rate": rate, **learned})
        learners = {name: learner_for(policy, objective, learning) for name, policy in policies.items()}
        settings = TrainingSchedule.model_validate({**schedule, "evaluate_every": 10_000, "save_every": 10_000})
        tasks = [Example(t, {"text": t}) for t in made.tasks]

        def at(version: int) -> None:
            for engine in engines.values():
                engine.at(version)

        trainer = Trainer(
            learners, source, tasks, settings, folder / "schedule", weights=folder / "weights", seed=seed, at=at
        )

        async def run() -> None:
            try:
                await trainer.train()
            finally:
                for engine in engines.values():
                    await engine.aclose()

        asyncio.run(run())
        return source.success


def summary(curves: list[list[float]]) -> dict[str, Any]:
    """Success in the last five steps, and the first step from which a mean of five is at least 0.8."""
    last = [statistics.mean(curve[-5:]) for curve in curves]
    reached = [next((i for i in range(len(c) - 4) if statistics.mean(c[i : i + 5]) >= 0.8), len(c)) for c in curves]
    return {"last": [round(x, 3) for x in last], "mean": round(statistics.mean(last), 3), "steps_to_0.8": reached}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--algorithm", action="append", help="only these")
    parser.add_argument("--world", choices=list(WORLDS), action="append")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for world in options.world or WORLDS:
        for algorithm in options.algorithm or WORLDS[world][1]:
            curves = [train(world, algorithm, seed, options.rate) for seed in range(options.seeds)]
            print(json.dumps({"world": world, "algorithm": algorithm, **summary(curves)}), flush=True)


if __name__ == "__main__":
    main()
