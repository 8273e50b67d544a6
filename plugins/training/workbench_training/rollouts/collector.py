"""Which training rows a step draws, and its groups of rollouts: when the step begins, or during the step before.

With `schedule.staleness` 1 the rollouts of a step are drawn while the learner updates the weights that draw them
(one-step off-policy training; Noukhovitch et al., "Asynchronous RLHF", arXiv 2410.18252). Which weights draw a step is
fixed by its number, not by the clock: those before the last update, or the current ones where the step before ended in
a candidate or a checkpoint. There nothing is in flight, so that a candidate has the server for itself and a resumed
training draws the next step as the first one did.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from workbench.task import Example
from workbench_training.curriculum import draw_rows, update_record
from workbench_training.rewards import Rollout
from workbench_training.rollouts.rollout_source import RolloutSource
from workbench_training.rollouts.stragglers import StragglerCut
from workbench_training.rollouts.study_rollouts import scores_differ
from workbench_training.serving.policy_lm import wait_if_any
from workbench_training.settings import TrainingSchedule
from workbench_training.state.training_state import State


class Collected(NamedTuple):
    """The groups of rollouts of a step, the version of the weights that drew them, and how many were cut."""

    groups: list[list[Rollout]]
    version: int
    cut: int


class Collector:
    """Draws the rollouts of a training.

    Args:
        source: of rollouts.
        tasks: training rows.
        schedule: rows and rollouts of a step.
        state: of the training; the order of rows and what is known of them are kept there.
        rng: of the order of rows.
        at: lets the engines draw a step with the current weights.
    """

    def __init__(
        self,
        source: RolloutSource,
        tasks: Sequence[Example],
        schedule: TrainingSchedule,
        state: State,
        rng: random.Random,
        at: Callable[[int], Awaitable[None] | None],
    ):
        self.source, self.tasks, self.schedule, self.state, self.rng, self.at = source, tasks, schedule, state, rng, at
        self._ahead: asyncio.Task[Collected] | None = None

    @property
    def is_ahead(self) -> bool:
        """True if the next step is being drawn, or is drawn and not yet taken."""
        return self._ahead is not None

    def overlaps(self, step: int) -> bool:
        """True if a step is to be drawn during the step before."""
        c = self.schedule
        return bool(c.staleness and 0 < step < c.steps and step % c.evaluate_every and step % c.save_every)

    async def start(self, step: int) -> None:
        """Begin to draw a step with the current weights, which the engines must hold until `collect`."""
        await self._sync(step)
        self._ahead = asyncio.create_task(self._collect(step, version=step - 1))

    async def collect(self, step: int) -> Collected:
        """The rollouts of a step: those drawn ahead, or else drawn now with the current weights."""
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            return await ahead
        await self._sync(step)
        return await self._collect(step, version=step)

    async def drain(self) -> int:
        """Wait for what is drawn ahead, and drop it. Returns how many rollouts that were."""
        ahead, self._ahead = self._ahead, None
        return sum(map(len, (await ahead).groups)) if ahead is not None else 0

    async def cancel(self) -> None:
        """End what is drawn ahead, after an error."""
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.gather(self._ahead, return_exceptions=True)
            self._ahead = None

    async def _sync(self, step: int) -> None:
        await wait_if_any(self.at(step))

    async def _collect(self, step: int, version: int) -> Collected:
        """Sample groups of rollouts; groups without a learning signal are replaced (dynamic sampling)."""
        stragglers = StragglerCut(self.source, self.schedule, self.state)

        async def draw(tasks: list[Example]) -> list[list[Rollout]]:
            groups = await self.source.rollouts(tasks, self.schedule, step)
            groups = stragglers.keep(groups, version)
            self._visited(groups)
            return groups

        groups = await draw(self._next_tasks(self.schedule.tasks))
        for _ in range(self.schedule.dynamic_sampling):
            useful = [group for group in groups if scores_differ(group)]
            missing = self.schedule.tasks - len(useful)
            if missing <= 0 or not self.source.affords(self.schedule, step):
                break
            others = self._others(missing, {group[0].example.id for group in groups})
            found = await draw(others) if others else []
            spare = [group for group in groups if not scores_differ(group)]
            groups = [*useful, *found, *spare][: max(self.schedule.tasks, len(useful) + len(found))]
        self.state.usual_length |= stragglers.medians()
        return Collected(groups, version, stragglers.count)

    def _others(self, count: int, seen: set[str]) -> list[Example]:
        """Rows to replace those without a learning signal. Of few rows, the next in order are mostly those of this
        step; then the draw is from the other rows."""
        if len(self.tasks) >= 2 * self.schedule.tasks:
            return [task for task in self._next_tasks(count) if task.id not in seen]
        unseen = [task for task in self.tasks if task.id not in seen]
        return self.rng.sample(unseen, min(count, len(unseen)))

    def _visited(self, groups: list[list[Rollout]]) -> None:
        """Record in the curriculum how often these rows were solved."""
        if not self.schedule.curriculum:
            return
        for group in groups:
            scores = [min(max(score, 0.0), 1.0) for r in group if (score := r.score) is not None]
            task = group[0].example.id
            self.state.known[task] = update_record(self.state.known.get(task), scores)

    def _next_tasks(self, count: int) -> list[Example]:
        """The next rows of a shuffled pass over all rows, or of the curriculum."""
        if self.schedule.curriculum:
            ids = [task.id for task in self.tasks]
            return [self.tasks[i] for i in draw_rows(self.rng, ids, self.state.known, count)]
        chosen: list[int] = []
        while len(chosen) < min(count, len(self.tasks)):
            if not self.state.order:
                self.state.order = self.rng.sample(range(len(self.tasks)), len(self.tasks))
            index = self.state.order.pop(0)
            if index not in chosen:
                chosen.append(index)
        return [self.tasks[i] for i in chosen]
