"""The optimizers `sft` and `dpo`: learning from the workflow's own rollouts, without a reward's gradient.

`sft`: tokens of rollouts that scored well are made likelier (rejection sampling). `dpo`: of two rollouts of one row the
better is made likelier than the worse, relative to the weights at the start (Rafailov et al., arXiv 2305.18290; pairs
from generate, rank, select, train as in Optima, arXiv 2410.08115). Departure from common practice: TRL's trainers take
texts and tokenize them again; here the very tokens that were drawn are learned, and those of tools are masked.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from workbench import Study
from workbench_grpo.objective import Objective
from workbench_grpo.optimizer import StudySource, Trains
from workbench_grpo.rewards import Rollout
from workbench_grpo.settings import Course

if TYPE_CHECKING:
    from workbench_grpo.policy import Policy
    from workbench_grpo.rollouts import Row
    from workbench_grpo.serve import Engine


class Imitates(Trains):
    """Base of `sft` and `dpo`: draw, choose, train, offer, and again."""

    rounds: int = Field(1, ge=1, le=100, description="times to draw with the weights so far, choose and train")
    rollouts: int = Field(8, ge=1, le=256, description="runs of the workflow on each training row in a round")
    tasks: int = Field(100, ge=1, description="training rows in a round at most")
    epochs: int = Field(2, ge=1, le=100, description="passes over what was chosen, each followed by a candidate")
    batch: int = Field(4, ge=1, description="training rows whose chosen rollouts make one update")

    def objective(self) -> Objective:
        raise NotImplementedError

    def choose(self, rows: Sequence[Row]) -> list[Row]:
        """What of the rollouts of one training row is learned from."""
        raise NotImplementedError

    async def course_of(self, study: Study, policy: Policy, engine: Engine, source: StudySource, folder: Path,
                        weights: Path, number: int) -> None:  # fmt: skip
        """No checkpoints: a resumed run draws from the journal and trains again, which takes the least of the time."""
        from workbench_grpo.learner import Learner

        learner = Learner(policy, self.objective(), self.learning)
        course = Course.model_validate({"tasks": self.tasks, "rollouts": self.rollouts})
        for round_ in range(self.rounds):
            if not source.affords(course, round_):
                return
            if (synced := engine.at(round_)) is not None:
                await synced
            tasks = random.Random(f"{number}: tasks {round_}").sample(
                list(study.train), min(self.tasks, len(study.train))
            )
            groups = await source.rollouts(tasks, course, round_)
            chosen = [rows for group in groups if (rows := self.choose(_rows(source, group, round_)))]
            count = sum(map(len, chosen))
            study.tell(f"round {round_ + 1}: {count} of {sum(map(len, groups))} rollouts to learn from", rows=count)
            if not chosen:
                return
            for epoch in range(self.epochs):
                order = random.Random(f"{number}: order {round_} {epoch}").sample(chosen, len(chosen))
                for start in range(0, len(order), self.batch):
                    rows = [row for rows in order[start : start + self.batch] for row in rows]
                    await asyncio.to_thread(learner.step, rows, [1.0] * len(rows), round_)
                done = round_ * self.epochs + epoch + 1
                await source.offer(await asyncio.to_thread(policy.save, weights), done)


def _rows(source: StudySource, group: Sequence[Rollout], round_: int) -> list[Row]:
    """Rows of all scored rollouts of a training row, equal ones once."""
    found: dict[Any, Row] = {}
    for rollout in group:
        if rollout.reward is not None:
            for row in source.rows(rollout, round_):
                found.setdefault((row.prompt_ids, row.token_ids, row.reward), row)
    return list(found.values())


class SFT(Imitates):
    """Trains the language model on the tokens of its own rollouts that scored well (rejection sampling)."""

    threshold: float = Field(1.0, description="a rollout that earns at least this is learned from")

    def objective(self) -> Objective:
        return Objective.model_validate({"surrogate": "likelihood", "aggregate": "token"})

    def choose(self, rows: Sequence[Row]) -> list[Row]:
        return [row for row in rows if (row.reward or 0.0) >= self.threshold]


class DPO(Imitates):
    """Trains the language model to prefer, of its own rollouts on a row, the better to the worse."""

    beta: float = Field(0.1, gt=0, description="temperature of the preference: smaller values move further")

    def objective(self) -> Objective:
        return Objective.model_validate({
            "surrogate": "pairs", "pair_mean": False, "pair_best": 1.0, "pair_trust": 0.0, "pair_beta": self.beta,
            "beta": self.beta,  # so that the weights at the start are kept
        })  # fmt: skip

    def choose(self, rows: Sequence[Row]) -> list[Row]:
        """The best and the worst of each agent, if they differ."""
        chosen = []
        for agent in dict.fromkeys(row.agent for row in rows):
            ranked = sorted((row for row in rows if row.agent == agent), key=lambda row: row.reward or 0.0)
            if ranked[0].reward != ranked[-1].reward:
                chosen += [ranked[-1], ranked[0]]
        return chosen
