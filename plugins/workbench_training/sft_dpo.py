"""The optimizers `sft` and `dpo`: learning from examples or pairs, without a reward's gradient.

`sft`: tokens of rollouts that scored well are made likelier (rejection sampling), or those of labels, or of a teacher's
runs; see `lessons.py`. `dpo`: of two rollouts of one row the better is made likelier than the worse, relative to the
weights at the start (Rafailov et al., arXiv 2305.18290; pairs from generate, rank, select, train as in Optima, arXiv
2410.08115). Departure from common practice: TRL's trainers take texts and tokenize them again; here the very tokens
that were drawn are learned, and those of tools are masked. With `tree`, runs share their first calls, and single
answers are chosen by what the runs through them earned; see `trees.py`.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from workbench import Patch, Study, Workflow
from workbench.errors import SpecError, suggest
from workbench.plugins import plugins
from workbench.task import Example
from workbench.workflow import calls_of, enabled
from workbench_training.base import Trains
from workbench_training.objective import Objective
from workbench_training.rewards import Part, Rollout, score
from workbench_training.rollout_trees import Tree, by_state, valued
from workbench_training.settings import Course
from workbench_training.sft_data import (
    Lesson,
    Tokens,
    drawn_in,
    general,
    labelled,
    mixed,
    rows_of_lesson,
    said_in,
    spliced,
)
from workbench_training.study_rollouts import StudySource, left_out

if TYPE_CHECKING:
    from workbench_training.learner import Learner
    from workbench_training.policy import Policy
    from workbench_training.policy_lm import Engine
    from workbench_training.token_rows import Row


class Imitates(Trains):
    """Base of `sft` and `dpo`: draw, choose, train, offer, and again."""

    rounds: int = Field(1, ge=1, le=100, description="times to draw with the weights so far, choose and train")
    rollouts: int = Field(8, ge=1, le=256, description="runs of the workflow on each training row in a round")
    tasks: int = Field(100, ge=1, description="training rows in a round at most")
    tree: Tree | None = Field(None, description="runs that share their first calls, in place of `rollouts`")
    epochs: int = Field(2, ge=1, le=100, description="passes over what was chosen")
    evaluate_every: int = Field(1, ge=1, description="epochs between two candidates; the last is always one")
    batch: int = Field(4, ge=1, description="training rows whose chosen rollouts make one update")
    falling: bool = Field(False, description="let the learning rate fall on a line to 0 over the updates of a round")

    @model_validator(mode="after")
    def _drawn_in_one_way(self) -> Self:
        if self.tree is not None and "rollouts" in self.model_fields_set:
            raise ValueError(f"give either `rollouts` or `tree`, which takes {self.tree.leaves} runs of each row")
        return self

    @model_validator(mode="after")
    def _in_one_process(self) -> Self:
        if self.learning.fsdp:
            raise ValueError(
                "sft and dpo learn in the first process alone, so there is nothing to spread: leave out fsdp"
            )
        return self

    def most_calls(self, workflow: Workflow, train: Sequence[Example], val: Sequence[Example]) -> int:
        tasks = self.rounds * min(self.tasks, len(train))
        candidates = self.rounds * -(-self.epochs // self.evaluate_every)
        if not self.draws:
            return self._calls(workflow, val, 0, 0, candidates)
        if self.tree is None:
            runs = tasks * self.rollouts
            return self._calls(workflow, val, runs, runs * calls_of(workflow), candidates)
        return self._calls(workflow, val, tasks * self.tree.leaves, tasks * self.tree.calls_of(workflow), candidates)

    @property
    def draws(self) -> bool:
        """Whether the workflow is run to learn from it."""
        return True

    def rewarded(self) -> Iterator[tuple[tuple[str | int, ...], Sequence[Part]]]:
        return super().rewarded() if self.draws else iter(())

    def objective(self) -> Objective:
        raise NotImplementedError

    def choose(self, rows: Sequence[Row]) -> list[Row]:
        """What of the rollouts of one training row is learned from."""
        raise NotImplementedError

    async def chosen(
        self, study: Study, policy: Policy, source: StudySource, tasks: Sequence[Example], course: Course, round_: int
    ) -> list[list[Row]]:
        """What is learned in a round: rows of tokens, by training row."""
        groups = await source.rollouts(tasks, course, round_)
        found = [_rows(source, group, round_) for group in groups]
        chosen = [some for rows in found if (some := self.choose(valued(rows) if self.tree else _once(rows)))]
        count = sum(map(len, chosen))
        study.tell(f"round {round_ + 1}: {count} of {sum(map(len, groups))} rollouts to learn from", rows=count)
        return chosen

    def added(self, study: Study, policy: Policy) -> list[list[Row]]:
        """Rows that are mixed in, as many as one epoch may need."""
        return []

    def mix(self, count: int, added: Sequence[list[Row]], rng: random.Random) -> list[list[Row]]:
        return []

    async def course_of(
        self,
        study: Study,
        policy: Policy,
        engine: Engine,
        source: StudySource,
        folder: Path,
        weights: Path,
        number: int,
    ) -> None:
        """A resumed run draws from the journal, and takes the epochs that the record holds in place of training
        them."""
        from workbench_training.learner import Learner
        from workbench_training.resume_record import Record

        learner, record = Learner(policy, self.objective(), self.learning), Record(folder / "epochs", weights)
        added, updates = self.added(study, policy), 0
        if record.epochs:
            study.tell(f"{record.epochs} epochs were trained before and are not trained again", epochs=record.epochs)
        held = True  # the weights are those that come after what was gone through so far
        course = Course.model_validate(
            {"tasks": self.tasks, "rollouts": self.tree.leaves if self.tree else self.rollouts}
        )
        if self.tree is not None:
            source.tree, source.merge = self.tree, False
        for round_ in range(self.rounds):
            if not self.affords(study, source, course, round_):
                return
            # With other weights nothing may be drawn: then all answers are in the journal, or the policy refuses.
            if held and (synced := engine.at(round_)) is not None:
                await synced
            tasks = random.Random(f"{number}: tasks {round_}").sample(
                list(study.train), min(self.tasks, len(study.train))
            )
            chosen = await self.chosen(study, policy, source, tasks, course, round_)
            if not chosen:
                return
            record.begin(round_, [*chosen, *added], held=held)
            for epoch in range(self.epochs):
                done = round_ * self.epochs + epoch + 1
                computed = done > record.epochs
                if computed:
                    skipped = learner.skipped
                    updates = await self._epoch(learner, chosen, added, round_, epoch, updates, number)
                    if learner.skipped > skipped:
                        study.tell(left_out(learner.skipped - skipped, f"epoch {done}"))
                elif held := done == record.epochs:
                    updates = record.load(learner)
                if (epoch + 1) % self.evaluate_every == 0 or epoch + 1 == self.epochs:
                    if computed:
                        await asyncio.to_thread(record.write, learner, done, updates)
                    await source.offer(record.candidate(done), done)

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
        """One pass over what was chosen; returns the number of updates so far."""
        more = self.mix(len(chosen), added, random.Random(f"{number}: mixture {round_} {epoch}"))
        order = random.Random(f"{number}: order {round_} {epoch}").sample([*chosen, *more], len(chosen) + len(more))
        for start in range(0, len(order), self.batch):
            rows = [row for rows in order[start : start + self.batch] for row in rows]
            rate = learner.rate * (1 - (epoch + start / len(order)) / self.epochs) if self.falling else None
            await asyncio.to_thread(learner.step, rows, [1.0] * len(rows), round_, rate, updates)
            updates += 1
        return updates

    def affords(self, study: Study, source: StudySource, course: Course, round_: int) -> bool:
        return source.affords(course, round_)


def _rows(source: StudySource, group: Sequence[Rollout], round_: int) -> list[Row]:
    """Rows of all scored rollouts of a training row."""
    return [row for rollout in group if rollout.reward is not None for row in source.rows(rollout, round_)]


def _once(rows: Iterable[Row]) -> list[Row]:
    found: dict[Any, Row] = {}
    for row in rows:
        found.setdefault((row.prompt_ids, row.token_ids, row.mask, row.reward), row)
    return list(found.values())


class Mixture(BaseModel):
    """General chats beside those of the task, so that the model keeps what else it can (AgentTuning)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str = Field(description="rows {messages: [{role, content}, ...]}, relative to the workflow file")
    share: float = Field(0.2, gt=0, le=1, description="share of training rows that are the task's own")


class SFT(Imitates):
    """Trains the language model on tokens of runs that scored well, on labels, or on a teacher's runs."""

    threshold: float = Field(1.0, description="a rollout that earns at least this is learned from")
    source: Literal["own", "labels", "teacher"] = Field(
        "own",
        description="whose answers: the model's own rollouts, labels of the data, runs by the model of the role "
        "`teacher`",
    )
    labels: dict[str, str] = Field(
        default_factory=dict, description="source labels: the row's field with the label of an output, by the output"
    )
    mixture: Mixture | None = Field(None, description="general chats beside the task's own rows")
    errors: Literal["learn", "mask"] = Field(
        "learn",
        description="turns of good rollouts after which an error was told: learned, or only shown (AgentRefine)",
    )
    splice: bool = Field(
        False, description="also learn from wrong rollouts that a right one mends after their first error (Agent-R)"
    )
    revision: str = Field(
        "That did not work. I try another way.\n", description="splice: words where the right way begins"
    )
    error: str = Field(
        r"(?i)^\s*error\b|Give the answer in the form asked for",
        description="regular expression: a message that tells of an error",
    )

    @field_validator("error")
    @classmethod
    def _readable(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"'{value}' is no regular expression: {error}") from None
        return value

    @model_validator(mode="after")
    def _goes_together(self) -> SFT:
        if self.labels and self.source != "labels":
            raise ValueError("`labels` name fields of the data to learn from: give `source: labels` as well")
        others = {"source": self.source != "own", "errors": self.errors != "learn", "splice": self.splice}
        if self.tree is not None and any(others.values()):
            raise ValueError(
                f"`tree` chooses single answers of the model's own, so not with `{max(others, key=others.__getitem__)}`"
            )
        return self

    async def ready(self, study: Study) -> None:
        await super().ready(study)
        if self.source == "labels":
            self._check_labels(study)
        if self.source == "teacher" and "teacher" not in study.evaluator.runtime.roles:
            raise SpecError(
                "`source: teacher` needs a teacher",
                hint="Write e.g. roles: {teacher: openai/gpt-4.1}.",
                path=("source",),
            )
        if self.mixture is not None:
            self._general_chats(study, self.mixture)

    @property
    def draws(self) -> bool:
        return self.source != "labels"

    def objective(self) -> Objective:
        return Objective.model_validate({"surrogate": "likelihood", "aggregate": "token"})

    def choose(self, rows: Sequence[Row]) -> list[Row]:
        return [row for row in rows if (row.reward or 0.0) >= self.threshold]

    def affords(self, study: Study, source: StudySource, course: Course, round_: int) -> bool:
        if self.source == "own":
            return source.affords(course, round_)
        calls = study.worst_calls(study.workflow, study.val)
        if self.source == "teacher":
            rows = list(study.train)[: self.tasks]
            calls += self.rollouts * study.worst_calls(study.workflow, rows)
        return study.remaining("calls") >= calls

    async def chosen(
        self, study: Study, policy: Policy, source: StudySource, tasks: Sequence[Example], course: Course, round_: int
    ) -> list[list[Row]]:
        tokens, nodes = tokens_of(policy), trained_nodes(study, self.address)
        if self.source == "labels":
            lessons = [labelled(study.workflow, task, {**study.targets, **self.labels}, nodes) for task in tasks]
            chosen = [_once(row for lesson in some for row in rows_of_lesson(lesson, tokens)) for some in lessons]
            count = sum(map(len, chosen))
            study.tell(f"round {round_ + 1}: {count} worked examples in {len(tasks)} rows", rows=count)
            return [rows for rows in chosen if rows]
        if self.source == "teacher":
            groups = await self._taught(study, tasks)
        elif self.errors == "learn" and not self.splice:
            return await super().chosen(study, policy, source, tasks, course, round_)
        else:
            groups = await source.rollouts(tasks, course, round_)
        chosen = [_once(self._of_group(group, tokens, nodes, round_)) for group in groups]
        count = sum(map(len, chosen))
        study.tell(f"round {round_ + 1}: {count} rows of {sum(map(len, groups))} rollouts to learn from", rows=count)
        return [rows for rows in chosen if rows]

    def _check_labels(self, study: Study) -> None:
        outputs = sorted({output for node in enabled(study.workflow).values() for output in node.outputs})
        for output, field in self.labels.items():
            if output not in outputs:
                raise SpecError(f"no node writes '{output}'", hint=suggest(output, outputs), path=("labels", output))
            if study.train and not any(field in row for row in study.train):
                raise SpecError(
                    f"no row of train has a field '{field}'",
                    hint=suggest(field, study.train[0].fields),
                    path=("labels", output),
                )

    def _of_group(self, group: Sequence[Rollout], tokens: Tokens, nodes: Collection[str], round_: int) -> Iterator[Row]:
        """Rows of the runs on one training row: of the good ones, and of wrong ones that a good one mends."""
        masked = re.compile(self.error if self.errors == "mask" else r"(?!)")
        good = [r for r in group if r.reward is not None and r.reward >= self.threshold]
        for rollout in good:
            assert rollout.result.trace is not None
            if self.source == "own":
                yield from drawn_in(
                    rollout.result.trace,
                    nodes,
                    masked,
                    task=rollout.example.id,
                    reward=rollout.reward,
                    rollout=rollout.replica,
                    version=round_,
                )
            else:
                for lesson in said_in(rollout.result.trace, nodes, masked):
                    yield from rows_of_lesson(lesson, tokens)
        if not self.splice or not good or good[0].result.trace is None:
            return
        right = said_in(good[0].result.trace, nodes)
        for rollout in group:
            if rollout.reward is None or rollout.reward >= self.threshold or rollout.result.trace is None:
                continue
            for a, b in zip(said_in(rollout.result.trace, nodes), right, strict=False):
                if a.agent == b.agent and (made := spliced(a, b, re.compile(self.error), self.revision)):
                    yield from rows_of_lesson(made, tokens)

    async def _taught(self, study: Study, tasks: Sequence[Example]) -> list[list[Rollout]]:
        """Runs of the workflow with the teacher in place of the trained model, scored."""
        spec = study.evaluator.runtime.roles["teacher"]
        workflow = study.workflow.patched(
            Patch({self.address: spec.model_dump(exclude_defaults=True)}, note="the teacher's runs")
        )
        found = [await study.evaluate(workflow, tasks, traces=True, replica=k) for k in range(self.rollouts)]
        groups = [[Rollout(task, e.results[i], e.replica) for e in found] for i, task in enumerate(tasks)]
        await score([r for group in groups for r in group], self.rewards, self.guards, study.lm("judge"))
        return groups

    def added(self, study: Study, policy: Policy) -> list[list[Row]]:
        if self.mixture is None:
            return []
        lessons, tokens = self._general_chats(study, self.mixture), tokens_of(policy)
        return [rows for lesson in lessons if (rows := rows_of_lesson(lesson, tokens))]

    def _general_chats(self, study: Study, mixture: Mixture) -> list[Lesson]:
        place, known = (study.workflow.base / mixture.file).resolve(), plugins().names("readers")
        suffix = place.suffix.lstrip(".")
        if suffix not in known or not place.is_file():
            hint = suggest(suffix, known) if suffix not in known else "There is no such file."
            raise SpecError(f"the mixture's file {place} cannot be read", hint=hint, path=("mixture", "file"))
        try:
            return general(plugins().get("readers", suffix)(str(place), {}))
        except ValueError as error:
            raise SpecError(f"{place}: {error}", path=("mixture", "file")) from None

    def mix(self, count: int, added: Sequence[list[Row]], rng: random.Random) -> list[list[Row]]:
        return mixed(count, self.mixture.share, added, rng) if self.mixture else []


def tokens_of(policy: Policy) -> Tokens:
    generator = policy.generator
    return Tokens(generator.tokenizer, generator.ends, generator.encode)


def trained_nodes(study: Study, address: str) -> list[str]:
    """The nodes whose model is trained: that of the address, or all without a model of their own."""
    if address != "lm":
        return [address.split(".")[1]]
    return [name for name, node in enabled(study.workflow).items() if getattr(node.config, "lm", None) is None]


class DPO(Imitates):
    """Trains the language model to prefer, of its own rollouts on a row, the better to the worse."""

    beta: float = Field(0.1, gt=0, description="temperature of the preference: smaller values move further")

    @model_validator(mode="after")
    def _has_pairs(self) -> DPO:
        if self.tree is None and self.rollouts < 2:
            raise ValueError("dpo learns from two rollouts of a row that differ: give `rollouts` of 2 or more")
        return self

    def objective(self) -> Objective:
        return Objective.model_validate(
            {
                "surrogate": "pairs",
                "pair_mean": False,
                "pair_best": 1.0,
                "pair_trust": 0.0,
                "pair_beta": self.beta,
                "beta": self.beta,  # so that the weights at the start are kept
            }
        )

    def choose(self, rows: Sequence[Row]) -> list[Row]:
        """The best and the worst of each agent, if they differ; in a tree, those of each state, if far enough apart."""
        chosen = []
        if self.tree is not None:
            for ranked in by_state(rows).values():
                if (ranked[-1].reward or 0.0) - (ranked[0].reward or 0.0) >= max(self.tree.gap, 1e-9):
                    chosen += [ranked[-1], ranked[0]]
            return chosen
        for agent in dict.fromkeys(row.agent for row in rows):
            ranked = sorted((row for row in rows if row.agent == agent), key=lambda row: row.reward or 0.0)
            if ranked[0].reward != ranked[-1].reward:
                chosen += [ranked[-1], ranked[0]]
        return chosen
