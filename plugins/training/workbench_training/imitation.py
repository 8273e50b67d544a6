"""Base of `sft` and `dpo`: rounds of sampling or reading, selection of rows, and epochs over them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from pydantic import Field, model_validator

from workbench import Patch, Study, Workflow
from workbench.errors import SpecError, errors_at
from workbench.task import Example, read_rows
from workbench_training.base import TrainingOptimizer
from workbench_training.batch import describe_step
from workbench_training.objective import Objective
from workbench_training.rewards import RewardTerm
from workbench_training.rollouts.node_settings import draw_one_action
from workbench_training.rollouts.rollout_source import gather_rows
from workbench_training.rollouts.rollout_trees import RolloutTree, average_answers
from workbench_training.rollouts.study_rollouts import StudyRolloutSource, describe_skipped
from workbench_training.settings import TrainingSchedule
from workbench_training.state.disk_space import Written, count_written

if TYPE_CHECKING:
    from workbench_training.learner import Learner
    from workbench_training.model.policy import Policy
    from workbench_training.rollouts.token_rows import RolloutRows, Row
    from workbench_training.serving.policy_lm import Engine
    from workbench_training.state.resume_record import TrainingRecord

T = TypeVar("T")


class ImitationOptimizer(TrainingOptimizer):
    """Base of `sft` and `dpo`: sample, select, train, submit a candidate, and repeat."""

    rounds: int = Field(
        1, ge=1, le=100, description="rounds of sampling with the current weights, selecting and training"
    )
    rollouts: int = Field(8, ge=1, le=256, description="runs of the workflow on each training row in a round")
    tasks: int = Field(100, ge=1, description="training rows in a round at most")
    tree: RolloutTree | None = Field(None, description="runs that share their first calls, instead of `rollouts`")
    epochs: int = Field(2, ge=1, le=100, description="passes over the selected rows")
    evaluate_every: int = Field(1, ge=1, description="epochs between two candidates; the last is always one")
    keep: int = Field(
        3,
        ge=0,
        description="candidates whose weights stay on disk: the best on val; 0: all. Where `objectives` has more than "
        "the score, all stay",
    )
    batch: int = Field(4, ge=1, description="training rows in one update")
    lr_schedule: Literal["constant", "linear"] = Field(
        "constant", description="learning rate over the updates of a round; linear decays it to 0"
    )

    @model_validator(mode="after")
    def _drawn_in_one_way(self) -> Self:
        if self.tree is not None and "rollouts" in self.model_fields_set:
            raise ValueError(f"give either `rollouts` or `tree`, which takes {self.tree.leaves} runs of each row")
        return self

    @model_validator(mode="after")
    def _in_one_process(self) -> Self:
        if self.learning.fsdp:
            raise ValueError("sft and dpo keep whole weights in each process: remove fsdp")
        return self

    def max_calls(self, workflow: Workflow, train: Sequence[Example], val: Sequence[Example]) -> int:
        tasks = self.rounds * min(self.tasks, len(train))
        candidates = self.count_candidates()
        if not self.draws:
            return self._calls(workflow, val, 0, 0, candidates)
        if self.tree is None:
            runs = tasks * self.rollouts
            calls = runs * (self.drawn(workflow).max_calls + self.calls_beside)
            return self._calls(workflow, val, runs, calls, candidates)
        return self._calls(workflow, val, tasks * self.tree.leaves, tasks * self.tree.calls_of(workflow), candidates)

    def count_candidates(self) -> int:
        """Count the candidates of the training."""
        return self.rounds * -(-self.epochs // self.evaluate_every)

    def count_written(self, *, keeps_all: bool) -> Written:
        copies, keep = 3 + self.keeps_reference, 0 if keeps_all else self.keep
        return count_written(self.count_candidates(), every=1, save_every=1, keep=keep, copies=copies)

    def identify(self) -> dict[str, Any]:
        settings = super().identify()
        for name in {taken.name for taken in self.recipe_fields} & settings.keys():
            if getattr(self, name) == type(self).model_fields[name].default:
                del settings[name]  # so that a plugin that adds a recipe begins no training anew
        del settings["keep"]  # what is learned does not depend on it
        return settings

    @property
    def draws(self) -> bool:
        """True if rollouts of the workflow are sampled."""
        return True

    @property
    def calls_beside(self) -> int:
        """Calls for each run besides the workflow's and those of rewards."""
        return sum(recipe.extra_calls for recipe in self.recipes.values())

    def read_file(self, study: Study, setting: str, parse: Callable[[Sequence[Mapping[str, Any]]], T]) -> T:
        """Read the rows of the file that a setting names. parse: raises ValueError for a row that does not fit.

        Raises SpecError.
        """
        place = (study.workflow.base / getattr(self, setting)).resolve()
        with errors_at(setting):
            rows = read_rows(str(place), place.parent, {})
        try:
            return parse(rows)
        except ValueError as error:
            raise SpecError(f"{place}: {error}", path=(setting,)) from None

    def changes(self, workflow: Workflow) -> dict[str, Any]:
        """Changes of the workflow beside the weights, for use."""
        return {}

    def drawing_changes(self, workflow: Workflow) -> dict[str, Any]:
        """The same for rollouts."""
        return self.changes(workflow)

    def drawn(self, workflow: Workflow) -> Workflow:
        """The workflow as its rollouts are drawn, up to the language models."""
        changes = self.drawing_changes(workflow) | draw_one_action(workflow)
        return workflow.patched(Patch(changes, note="rollouts")) if changes else workflow

    def list_rewards(self) -> Iterator[tuple[tuple[str | int, ...], Sequence[RewardTerm]]]:
        return super().list_rewards() if self.draws else iter(())

    @property
    def keeps_reference(self) -> bool:
        return self.objective().beta > 0

    def objective(self) -> Objective:
        raise NotImplementedError

    def choose(self, rollouts: Sequence[RolloutRows]) -> list[RolloutRows]:
        """Select what to learn from among the rollouts of one training row."""
        raise NotImplementedError

    def explain_unused(self, rollouts: Sequence[RolloutRows]) -> str:
        """Why nothing was chosen of the rollouts of one training row, where a user would not expect it."""
        return ""

    def flatten(self, chosen: Sequence[RolloutRows]) -> list[Row]:
        """The rows that are learned of the chosen rollouts."""
        return [row for rollout in chosen for row in rollout.rows]

    async def chosen(
        self,
        study: Study,
        policy: Policy,
        source: StudyRolloutSource,
        tasks: Sequence[Example],
        schedule: TrainingSchedule,
        round_: int,
    ) -> list[list[Row]]:
        """The token rows of a round, grouped by training row."""
        groups = await source.rollouts(tasks, schedule, round_)
        chosen: list[list[Row]] = []
        learned, unused = 0, Counter[str]()
        for group in groups:
            rollouts = [gather_rows(source, rollout, round_) for rollout in group if rollout.reward is not None]
            picked = self.choose(average_answers(rollouts) if self.tree else rollouts)
            learned += len({rollout.origin for rollout in picked})
            if rows := self.flatten(picked):
                chosen.append(rows)
            elif why := self.explain_unused(rollouts):
                unused[why] += 1
        drawn, count = sum(map(len, groups)), sum(map(len, chosen))
        lost = drawn - sum(rollout.reward is not None for group in groups for rollout in group)
        what = f"{learned} answers in {drawn} rollouts" if self.tree else f"{learned} of {drawn} rollouts"
        text = f"round {round_ + 1}: {what} to learn from, in {count} rows of tokens"
        text += f"; {lost} rollouts have no reward" if lost else ""
        text += "".join(f"; {rows} training rows {why}" for why, rows in unused.items())
        figures = describe_step(groups, [row for rows in chosen for row in rows], round_)
        study.log(text, **{**figures, "learned": learned, "unused": sum(unused.values())})
        return chosen

    def added(self, study: Study, policy: Policy) -> list[list[Row]]:
        """Rows to mix in, at least as many as one epoch needs."""
        return []

    def arrange(self, chosen: Sequence[list[Row]], more: Sequence[list[Row]], rng: random.Random) -> list[list[Row]]:
        """The rows of one pass in their order: those chosen, and those mixed in."""
        return rng.sample([*chosen, *more], len(chosen) + len(more))

    def mix(self, count: int, added: Sequence[list[Row]], rng: random.Random) -> list[list[Row]]:
        return []

    async def train_policy(
        self,
        study: Study,
        policy: Policy,
        engine: Engine,
        source: StudyRolloutSource,
        folder: Path,
        weights: Path,
        number: int,
    ) -> None:
        """Train the only policy. A resumed run samples from the journal, and skips the epochs in the record."""
        from workbench_training.scale.distributed import learner_for
        from workbench_training.state.resume_record import TrainingRecord

        record = TrainingRecord(folder / "epochs", weights)
        learner = learner_for(policy, self.objective(), self.learning)
        try:
            await self._train_rounds(study, learner, engine, source, record, number)
        finally:
            learner.close()

    async def _train_rounds(
        self,
        study: Study,
        learner: Learner,
        engine: Engine,
        source: StudyRolloutSource,
        record: TrainingRecord,
        number: int,
    ) -> None:
        from workbench_training.serving.policy_lm import wait_if_any

        policy = learner.policy
        added, updates = self.added(study, policy), 0
        if record.dropped:
            study.log(f"it is trained from the start: {record.dropped}")
        if record.epochs:
            study.log(f"{record.epochs} epochs were trained before and are not trained again", epochs=record.epochs)
        held = True  # whether the weights are those after the epochs so far
        schedule = TrainingSchedule.model_validate(
            {"tasks": self.tasks, "rollouts": self.tree.leaves if self.tree else self.rollouts}
        )
        self._configure(source, study.workflow)
        for round_ in range(self.rounds):
            if not self.affords(study, source, schedule, round_):
                return
            # With other weights, nothing may be sampled: all answers come from the journal, or the policy refuses.
            if held:
                await wait_if_any(engine.at(round_))
            tasks = random.Random(f"{number}: tasks {round_}").sample(
                list(study.train), min(self.tasks, len(study.train))
            )
            chosen = await self.chosen(study, policy, source, tasks, schedule, round_)
            if not chosen:
                return
            if held:
                await wait_if_any(engine.rest())
            record.begin(round_, [*chosen, *added], held=held)
            for epoch in range(self.epochs):
                done = round_ * self.epochs + epoch + 1
                computed = done > record.epochs
                if computed:
                    skipped = learner.skipped
                    updates = await self._epoch(learner, chosen, added, round_, epoch, updates, number)
                    if learner.skipped > skipped:
                        study.log(describe_skipped(learner.skipped - skipped, f"epoch {done}"))
                elif held := done == record.epochs:
                    updates = record.load(learner)
                if (epoch + 1) % self.evaluate_every == 0 or epoch + 1 == self.epochs:
                    if computed:
                        await asyncio.to_thread(record.write, learner, done, updates)
                    await self._submit(source, record, done, known=not computed, current=computed or held)

    async def _submit(
        self, source: StudyRolloutSource, record: TrainingRecord, epoch: int, *, known: bool, current: bool
    ) -> None:
        """Let the study evaluate the weights after an epoch, and delete those that lost. known: an earlier process
        submitted them, and may have deleted them since."""
        folder = record.candidate(epoch)
        score = await source.recall(folder, epoch) if known else None
        if score is None:
            score = await source.submit(folder, epoch, current=current)
        if score is not None:
            record.scores[str(epoch)] = score
        if self.keep and source.remembers:
            await asyncio.to_thread(record.delete_losers, self.keep)

    def _configure(self, source: StudyRolloutSource, workflow: Workflow) -> None:
        source.changes, source.candidate_changes = self.drawing_changes(workflow), self.changes(workflow)
        if self.tree is not None:
            source.tree, source.merge = self.tree, False

    async def _epoch(
        self,
        learner: Learner,
        chosen: Sequence[list[Row]],
        added: Sequence[list[Row]],
        round_: int,
        epoch: int,
        updates: int,
        number: int,
    ) -> int:
        """Run one pass over the chosen rows; returns the number of updates so far."""
        more = self.mix(len(chosen), added, random.Random(f"{number}: mixture {round_} {epoch}"))
        order = self.arrange(chosen, more, random.Random(f"{number}: order {round_} {epoch}"))
        for start in range(0, len(order), self.batch):
            rows = [row for rows in order[start : start + self.batch] for row in rows]
            rate = (
                learner.rate * (1 - (epoch + start / len(order)) / self.epochs)
                if self.lr_schedule == "linear"
                else None
            )
            await asyncio.to_thread(learner.step, rows, [1.0] * len(rows), round_, rate, updates)
            updates += 1
        return updates

    def affords(self, study: Study, source: StudyRolloutSource, schedule: TrainingSchedule, round_: int) -> bool:
        return source.affords(schedule, round_)


def drop_repeats(rows: Iterable[Row]) -> list[Row]:
    found: dict[Any, Row] = {}
    for row in rows:
        found.setdefault((row.prompt_ids, row.token_ids, row.mask, row.reward), row)
    return list(found.values())
