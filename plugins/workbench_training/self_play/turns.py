"""The turns of self-play: the proposer is trained, writes tasks, and the solver is trained on them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench import BudgetSpent, Study, Workflow
from workbench.base.concurrency import gather_all
from workbench.study import Result, read_position, restore_position
from workbench.task import Example, content_id
from workbench.workflow import ExampleRun
from workbench_training.objective import Objective
from workbench_training.rewards import RewardTerm, Rollout, name_terms
from workbench_training.rollouts.study_rollouts import LONGEST_CALL, StudyRolloutSource, TrainedPolicy
from workbench_training.scale.distributed import learner_for
from workbench_training.self_play.outcome_model import JudgedRun, OutcomeModel, describe_run
from workbench_training.self_play.proposal_source import ProposalSource
from workbench_training.self_play.proposals import Proposal, choose_rows, name_task
from workbench_training.self_play.settings import Proposer, Verdicts
from workbench_training.serving.policy_lm import wait_if_any
from workbench_training.settings import Course
from workbench_training.trainer import Trainer


@dataclass(frozen=True)
class Plan:
    """What is played. fields, output, target: the inputs of a task, the output that answers it, the row's field for it.

    course: of the solver, in each turn. own_rows: whether the solver learns the rows of train, too.
    """

    turns: int
    proposer: Proposer
    verdicts: Verdicts | None
    own_rows: bool
    course: Course
    objective: Objective
    fields: Sequence[str]
    output: str
    target: str


class Turns:
    """One self-play of a study. Each training has its own record, from which a killed run resumes."""

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
        self.course, self.objective = plan.course, plan.objective
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
                shown, source = await self._try_train(turn), self._proposals(turn)
                if self.plan.proposer.steps:
                    await self._train_proposer(proposing, source, turn, rng, shown)
                rows = await self._write_rows(source, turn, rng, shown)
                self.source.written = {row.id for row in rows}
                if tasks := [*rows, *(self.study.train if self.plan.own_rows else ())]:
                    await self._train_solver(solving, tasks, turn)
                else:
                    self.study.log(f"turn {turn + 1}: nothing to learn")
        finally:
            proposing.close()
            solving.close()

    async def _try_train(self, turn: int) -> Sequence[Example]:
        """Run the solver on train, where a model of outcomes learns from it, or failures are shown to the proposer.
        Returns the rows to show."""
        plan, study, judge = self.plan, self.study, self.source.judge
        if plan.verdicts is None and plan.proposer.shown == "any":
            return study.train
        workflow, count = self.source.workflow_at(0, self.course), plan.verdicts.rollouts if plan.verdicts else 1
        tried = [await study.evaluate(workflow, study.train, traces=True, replica=k) for k in range(count)]
        results = [r for evaluation in tried for r in evaluation.results if r.score is not None]
        if judge is not None and plan.verdicts is not None:
            runs = [
                JudgedRun(r.example.id, self._describe(r), (r.score or 0.0) >= plan.verdicts.right) for r in results
            ]
            fit = await asyncio.to_thread(judge.fit, runs)
            self.source.judging = fit.accuracy >= plan.verdicts.least
            study.log(
                f"turn {turn + 1}: the model of outcomes has a balanced accuracy of {fit.accuracy:.2f} on {fit.runs} "
                f"runs of rows that it did not learn{'' if self.source.judging else '; votes decide'}",
                accuracy=fit.accuracy,
            )
        best = {r.example.id: 0.0 for r in results}
        for result in results:
            best[result.example.id] = max(best[result.example.id], result.score or 0.0)
        failed = [row for row in study.train if best.get(row.id, 1.0) < 1.0]
        return failed if failed and plan.proposer.shown == "failed" else study.train

    def _describe(self, result: Result) -> str:
        return describe_run({name: result.example[name] for name in self.fields}, result.trace)

    def _proposals(self, turn: int) -> StudyProposalSource:
        """The source of the proposer's rollouts. The solver stays as it is at the turn's beginning."""
        study, solving = self.study, self.source.workflow_at(0, self.course)
        earlier = turn * (self.plan.proposer.steps + 1)

        async def write(prompt: Example, replica: int, step: int) -> ExampleRun:
            return await study.run(self._writer(earlier + step), prompt, replica)

        async def answer(task: Example, replica: int) -> ExampleRun:
            return await study.run(solving, task, replica)

        def room(proposals: int) -> bool:
            calls = 1 + self.plan.proposer.samples * solving.max_calls
            return study.remaining("calls") >= proposals * calls + study.worst_calls(study.workflow, study.val)

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

    async def _train_proposer(
        self, learner: Any, source: StudyProposalSource, turn: int, rng: random.Random, shown: Sequence[Example]
    ) -> None:
        p = self.plan.proposer
        course = {"steps": p.steps, "tasks": p.tasks, "rollouts": p.rollouts, "save_every": self.course.save_every}
        trainer = Trainer(
            learner,
            source,
            [self._prompt(rng, shown) for _ in range(p.tasks * p.steps)],
            Course.model_validate(course),
            self.folder.with_name(f"{self.folder.name}-proposer-{turn + 1}"),
            weights=self.weights,
            seed=self.number + turn,
            at=lambda step: _set_version(self.proposer, source.earlier + step),
            log=lambda message, **figures: self.study.log(f"proposer, turn {turn + 1}, {message}", **figures),
        )
        await trainer.train()

    async def _write_rows(
        self, source: StudyProposalSource, turn: int, rng: random.Random, shown: Sequence[Example]
    ) -> list[Example]:
        """The rows of the solver's turn, written by the proposer and labelled by the solver's majority."""
        p = self.plan.proposer
        if not source.room(p.pool):
            self.study.log(f"turn {turn + 1}: the budget does not suffice for {p.pool} proposals and their answers")
            return []
        await _set_version(self.proposer, source.earlier + p.steps)
        jobs = [source.write(self._prompt(rng, shown), k, p.steps) for k in range(p.pool)]
        runs = await gather_all(jobs, last=BudgetSpent)
        proposals = await source.judge(runs)
        chosen = choose_rows(proposals, self.known, p)
        self.study.log(
            f"turn {turn + 1}: of {p.pool} proposals {sum(bool(x.fields) for x in proposals)} can be read, and "
            f"{len(chosen)} are new and have an agreement of {p.band[0]:g} to {p.band[1]:g}",
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
            self.course,
            self.folder.with_name(f"{self.folder.name}-solver-{turn + 1}"),
            weights=self.weights,
            seed=self.number + turn,
            at=lambda step: _set_version(self.solver, earlier + step),
            log=lambda message, **figures: self.study.log(f"solver, turn {turn + 1}, {message}", **figures),
        )
        self.source.tasks, trainer.state.best = tasks, self.best
        await trainer.train()
        self.best = max(self.best, trainer.state.best)
        self.source.earlier += self.course.steps

    def _prompt(self, rng: random.Random, rows: Sequence[Example]) -> Example:
        """A prompt that shows some of the rows, without their labels."""
        shown = rng.sample([*rows], min(self.plan.proposer.examples, len(rows)))
        text = "\n\n".join("\n".join(f"{name}: {row[name]}" for name in self.fields) for row in shown)
        return Example(f"prompt-{rng.getrandbits(48):012x}", {"examples": text})

    def _writer(self, version: int) -> Workflow:
        """The workflow of one node that writes a task."""
        role = self.proposer
        lm: dict[str, Any] = {
            "model": f"policy:{role.key}@{version}",
            "temperature": role.learning.temperature,
            "max_tokens": self.plan.proposer.max_tokens,
            "attempts": 1,
            "timeout": max(LONGEST_CALL, role.spec.timeout),
        }
        if role.spec.concurrency:
            lm["concurrency"] = role.spec.concurrency
        node = {
            "kind": "predict",
            "signature": f"examples -> {', '.join(self.fields)}",
            "instructions": self.plan.proposer.instructions,
            "lm": lm,
        }
        return Workflow({"name": "proposer", "nodes": {"propose": node}}, self.study.workflow.base)


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

    earlier: the steps of the trainings before. written: ids of rows that the proposer wrote. judge: the model of
    outcomes; judging: whether it can be relied on, so that it takes the place of the metric for written rows.
    """

    earlier, judging = 0, False
    written: Collection[str] = ()
    judge: OutcomeModel | None = None

    async def _score(self, drawn: Sequence[Rollout], rewards: Sequence[RewardTerm]) -> None:
        await super()._score(drawn, rewards)
        if self.judge is None or not self.judging:
            return
        names = name_terms(rewards)
        terms = [(name, t) for name, t in zip(names, rewards, strict=True) if t.kind == "metric" and not t.field]
        for rollout in drawn:
            if rollout.example.id in self.written and rollout.reward is not None and not rollout.guarded:
                fields = {name: rollout.example[name] for name in self.study.workflow.input_fields}
                text = describe_run(fields, rollout.result.trace)
                right = float(await asyncio.to_thread(self.judge.judge, text) > 0.5)
                rollout.reward += sum(term.weight * (right - rollout.parts[name]) for name, term in terms)
                rollout.parts |= dict.fromkeys((name for name, _ in terms), right)

    def workflow_at(self, step: int, course: Course) -> Workflow:
        return super().workflow_at(step + self.earlier, course)

    async def recall(self, folders: Any, step: int) -> float | None:
        return await super().recall(folders, step + self.earlier)

    async def offer(self, folders: Any, step: int, *, current: bool = False) -> float | None:
        return await super().offer(folders, step + self.earlier, current=current)


async def _set_version(role: TrainedPolicy, version: int) -> None:
    await wait_if_any(role.engine.at(version))


def _labelled(proposal: Proposal, target: str) -> Example:
    fields = {**proposal.fields, target: proposal.label}
    return Example(content_id(fields), fields)
