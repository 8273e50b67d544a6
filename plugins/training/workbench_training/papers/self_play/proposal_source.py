"""Rollouts of a proposer: tasks that it writes, with the reward that the solver's answers give them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import BudgetSpent
from workbench.base.concurrency import gather_all
from workbench.study import Result
from workbench.task import Example
from workbench.workflow import ExampleRun
from workbench_training.papers.self_play.proposals import Proposal, reward_proposals
from workbench_training.papers.self_play.settings import Proposer
from workbench_training.rewards import Rollout
from workbench_training.rollouts.rollout_source import RolloutSource
from workbench_training.settings import TrainingSchedule

if TYPE_CHECKING:
    from workbench_training.rollouts.token_rows import Row

#: (prompt, replica, step) -> the run that writes a task.
Write = Callable[[Example, int, int], Awaitable[ExampleRun]]
#: (task, replica) -> the run that answers it.
Answer = Callable[[Example, int], Awaitable[ExampleRun]]


class ProposalSource(RolloutSource):
    """A proposer's rollouts. Its weights are no candidates: what it is for shows in the solver."""

    has_candidates = False

    def __init__(
        self,
        write: Write,
        answer: Answer,
        settings: Proposer,
        *,
        fields: Sequence[str],
        output: str,
        known: frozenset[str] = frozenset(),
        room: Callable[[int], bool] = lambda runs: True,
    ):
        """Prepare the source.

        Args:
            write: runs the proposer on a prompt.
            answer: runs the solver on a task.
            settings: of the proposer.
            fields: of a task.
            output: the field of the solver's prediction that is its answer.
            known: names (`name_task`) of rows that a proposal may not repeat.
            room: whether the budget allows so many proposals with their answers.
        """
        self.write, self.answer, self.settings = write, answer, settings
        self.fields, self.output, self.known, self.room = fields, output, known, room
        self.agreements: list[float] = []

    async def rollouts(self, tasks: Sequence[Example], schedule: TrainingSchedule, step: int) -> list[list[Rollout]]:
        drawn = [(task, k) for task in tasks for k in range(schedule.rollouts)]
        # Prompts may be equal, and equal draws of one version are one call: each has a replica of its own.
        runs = await gather_all((self.write(task, i, step) for i, (task, _) in enumerate(drawn)), last=BudgetSpent)
        proposals = await self.judge(runs)
        rewards = reward_proposals(proposals, self.known, self.settings)
        made = [
            Rollout(task, Result(task, reward, prediction=run.prediction, trace=run.trace), k, reward)
            for (task, k), run, reward in zip(drawn, runs, rewards, strict=True)
        ]
        self.agreements += [p.agreement for p in proposals if p.fields]
        return [made[i : i + schedule.rollouts] for i in range(0, len(made), schedule.rollouts)]

    async def judge(self, runs: Sequence[ExampleRun]) -> list[Proposal]:
        """The proposals of these runs with the solver's answers. Equal tasks are answered once."""
        proposals = [Proposal(self._read(run)) for run in runs]
        tasks = {p.id: Example(p.id, p.fields) for p in proposals if p.fields}
        asked = [(task, k) for task in tasks.values() for k in range(self.settings.samples)]
        answered = dict(
            zip(
                [(task.id, k) for task, k in asked],
                await gather_all((self.answer(task, k) for task, k in asked), last=BudgetSpent),
                strict=True,
            )
        )
        for proposal in proposals:
            if proposal.fields:
                found = [answered[proposal.id, k] for k in range(self.settings.samples)]
                proposal.answers = [None if run.failure else run.prediction.get(self.output) for run in found]
                proposal.tools = [sum(len(s.notes.get("tools", [])) for s in run.trace.spans) for run in found]
        return proposals

    def _read(self, run: ExampleRun) -> dict[str, Any]:
        found = {name: run.prediction.get(name) for name in self.fields}
        return {} if run.failure or not all(str(value or "").strip() for value in found.values()) else found

    def rows(self, rollout: Rollout, step: int) -> list[Row]:
        from workbench_training.rollouts.token_rows import build_rows

        assert rollout.result.trace is not None
        return build_rows(
            rollout.result.trace.rollout,
            reward=rollout.reward,
            task=rollout.example.id,
            rollout=rollout.replica,
            version=step,
        )

    def affords(self, schedule: TrainingSchedule, step: int) -> bool:
        return self.room(schedule.tasks * schedule.rollouts)

    async def submit(self, folders: Mapping[str, Path], step: int, *, current: bool) -> float | None:
        return None
