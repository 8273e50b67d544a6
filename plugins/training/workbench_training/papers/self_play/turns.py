"""The turns of self-play: the proposer is trained, writes tasks, and the solver is trained on them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench import BudgetSpent, Study, Workflow
from workbench.base.concurrency import gather_all
from workbench.task import Example, content_id
from workbench.workflow import ExampleRun
from workbench_training.chat_behavior import ChatBehavior
from workbench_training.objective import Objective
from workbench_training.papers.self_play.proposal_source import ProposalSource
from workbench_training.papers.self_play.proposals import Proposal, choose_rows, name_task
from workbench_training.papers.self_play.settings import BAND, EXAMPLES, MAX_TOKENS, Proposer
from workbench_training.rollouts.position import read_position, restore_position
from workbench_training.rollouts.study_rollouts import LONGEST_CALL, StudyRolloutSource, TrainedPolicy
from workbench_training.scale.distributed import learner_for
from workbench_training.serving.policy_lm import wait_if_any
from workbench_training.settings import TrainingSchedule
from workbench_training.trainer import Trainer


@dataclass(frozen=True)
class Plan:
    """The plan of a self-play. fields, output, target: the inputs of a task, the output that answers it, the row's
    field for it.

    schedule: of the solver, in each turn. own_rows: whether the solver learns the rows of train, too.
    """

    turns: int
    proposer: Proposer
    own_rows: bool
    schedule: TrainingSchedule
    objective: Objective
    fields: Sequence[str]
    output: str
    target: str


class Turns:
    """A self-play of a study. Each training has its own record, from which a killed run resumes."""

    def __init__(
        self,
        plan: Plan,
        study: Study,
        source: SolverSource,
        proposer: TrainedPolicy,
        folder: Path,
        weights: Path,
        number: int,
    ):
        """folder: for records, with endings of their own; weights: for candidates; number: the seed."""
        self.plan, self.study, self.source, self.proposer = plan, study, source, proposer
        self.solver = source.roles[""]
        self.folder, self.weights, self.number = folder, weights, number
        self.schedule, self.objective = plan.schedule, plan.objective
        self.fields, self.output, self.target = plan.fields, plan.output, plan.target
        self.known = frozenset(name_task({name: row[name] for name in self.fields}) for row in study.train)
        self.best = study.best_evaluation.score if study.best_evaluation is not None else -1.0

    async def play(self) -> None:
        """Take all turns. Raises BudgetSpent if the budget ends within one."""
        solving = learner_for(self.solver.policy, self.objective, self.solver.learning)
        proposing = learner_for(self.proposer.policy, self.objective, self.proposer.learning, [solving])
        try:
            for turn in range(self.plan.turns):
                rng = random.Random(f"{self.number}: prompts of turn {turn}")
                await _set_version(self.solver, self.source.earlier)
                self.source.limit({})  # of the turn before
                source = self._proposals(turn)
                if self.plan.proposer.steps:
                    await self._train_proposer(proposing, source, turn, rng)
                rows = await self._write_rows(source, turn, rng)
                if tasks := [*rows, *(self.study.train if self.plan.own_rows else ())]:
                    await self._train_solver(solving, tasks, turn)
                else:
                    self.study.log(f"turn {turn + 1}: nothing to learn")
        finally:
            proposing.close()
            solving.close()

    def _proposals(self, turn: int) -> StudyProposalSource:
        """The source of the proposer's rollouts. The solver stays as it is at the turn's beginning."""
        study, solving = self.study, self.source.workflow_at(0, self.schedule)
        earlier = turn * (self.plan.proposer.steps + 1)

        async def write(prompt: Example, replica: int, step: int) -> ExampleRun:
            return await study.run(self._writer(earlier + step), prompt, replica)

        async def answer(task: Example, replica: int) -> ExampleRun:
            return await study.run(solving, task, replica)

        def room(proposals: int) -> bool:
            calls = 1 + self.plan.proposer.samples * solving.max_calls
            return study.remaining("calls") >= proposals * calls + study.planned_calls(study.workflow, study.val)

        return StudyProposalSource(
            study,
            write,
            answer,
            self.plan.proposer,
            fields=self.fields,
            output=self.output,
            known=self.known,
            room=room,
            earlier=earlier,
        )

    async def _train_proposer(self, learner: Any, source: StudyProposalSource, turn: int, rng: random.Random) -> None:
        p = self.plan.proposer
        schedule = {"steps": p.steps, "tasks": p.tasks, "rollouts": p.rollouts, "save_every": self.schedule.save_every}
        trainer = Trainer(
            learner,
            source,
            [self._prompt(rng, self.study.train) for _ in range(p.tasks * p.steps)],
            TrainingSchedule.model_validate(schedule),
            self.folder.with_name(f"{self.folder.name}-proposer-{turn + 1}"),
            weights=self.weights,
            seed=self.number + turn,
            at=lambda step: _set_version(self.proposer, source.earlier + step),
            log=lambda message, **figures: self.study.log(f"proposer, turn {turn + 1}, {message}", **figures),
        )
        await trainer.train()

    async def _write_rows(self, source: StudyProposalSource, turn: int, rng: random.Random) -> list[Example]:
        """The rows of the solver's turn, written by the proposer and labelled by the solver's majority."""
        p = self.plan.proposer
        if not source.room(p.pool):
            self.study.log(f"turn {turn + 1}: the budget does not suffice for {p.pool} proposals and their answers")
            return []
        await _set_version(self.proposer, source.earlier + p.steps)
        jobs = [source.write(self._prompt(rng, self.study.train), k, p.steps) for k in range(p.pool)]
        runs = await gather_all(jobs, last=BudgetSpent)
        proposals = await source.judge(runs)
        chosen = choose_rows(proposals, self.known)
        self.study.log(
            f"turn {turn + 1}: of {p.pool} proposals {sum(bool(x.fields) for x in proposals)} can be read, and "
            f"{len(chosen)} are new and have an agreement of {BAND[0]:g} to {BAND[1]:g}",
            proposals=float(p.pool),
            chosen=float(len(chosen)),
        )
        return [_labelled(proposal, self.target) for proposal in chosen]

    async def _train_solver(self, learner: Any, tasks: Sequence[Example], turn: int) -> None:
        earlier = self.source.earlier
        trainer = Trainer(
            learner,
            self.source,
            tasks,
            self.schedule,
            self.folder.with_name(f"{self.folder.name}-solver-{turn + 1}"),
            weights=self.weights,
            seed=self.number + turn,
            at=lambda step: _set_version(self.solver, earlier + step),
            log=lambda message, **figures: self.study.log(f"solver, turn {turn + 1}, {message}", **figures),
        )
        self.source.tasks, trainer.state.best = tasks, self.best
        await trainer.train()
        self.best = max(self.best, trainer.state.best)
        self.source.earlier += self.schedule.steps

    def _prompt(self, rng: random.Random, rows: Sequence[Example]) -> Example:
        """A prompt that shows some of the rows, without their labels."""
        shown = rng.sample([*rows], min(EXAMPLES, len(rows)))
        text = "\n\n".join("\n".join(f"{name}: {row[name]}" for name in self.fields) for row in shown)
        return Example(f"prompt-{rng.getrandbits(48):012x}", {"examples": text})

    def _writer(self, version: int) -> Workflow:
        """The workflow of one node that writes a task."""
        role = self.proposer
        lm: dict[str, Any] = {
            "model": f"policy:{role.key}@{version}",
            "temperature": role.learning.temperature,
            "attempts": 1,
            "timeout": max(LONGEST_CALL, role.spec.timeout),
        }
        if role.spec.concurrency:
            lm["concurrency"] = role.spec.concurrency
        lm = ChatBehavior.of(role.spec.model_copy(update={"max_tokens": None})).under(lm)
        node = {
            "kind": "predict",
            "signature": f"examples -> {', '.join(self.fields)}",
            "instructions": self.plan.proposer.instructions,
            "decoding": {"max_tokens": MAX_TOKENS},  # of the task; a model that thinks gets more for its thoughts
            "lm": lm,
        }
        return self.study.workflow.with_tree({"name": "proposer", "nodes": {"propose": node}})


class StudyProposalSource(ProposalSource):
    """Proposals under a study, whose bill a checkpoint keeps. earlier: the proposer's versions of the turns before."""

    def __init__(self, study: Study, *args: Any, earlier: int, **more: Any):
        super().__init__(*args, **more)
        self.study, self.earlier = study, earlier

    def position(self) -> dict[str, Any]:
        return read_position(self.study)

    def restore(self, position: Mapping[str, Any]) -> None:
        restore_position(self.study, position)


class SolverSource(StudyRolloutSource):
    """Rollouts of a training that continues an earlier one: its steps count on, since they name versions of weights.

    earlier: the steps of the trainings before.
    """

    earlier = 0

    def workflow_at(self, step: int, schedule: TrainingSchedule) -> Workflow:
        return super().workflow_at(step + self.earlier, schedule)

    async def recall(self, folders: Any, step: int) -> float | None:
        return await super().recall(folders, step + self.earlier)

    async def submit(self, folders: Any, step: int, *, current: bool = False) -> float | None:
        return await super().submit(folders, step + self.earlier, current=current)


async def _set_version(role: TrainedPolicy, version: int) -> None:
    await wait_if_any(role.engine.at(version))


def _labelled(proposal: Proposal, target: str) -> Example:
    fields = {**proposal.fields, target: proposal.label}
    return Example(content_id(fields), fields)
