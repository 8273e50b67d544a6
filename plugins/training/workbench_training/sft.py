"""The optimizer `sft`: learning from examples, without a policy gradient.

It raises the likelihood of rollouts that scored well (rejection sampling), of labels, or of a teacher's runs; see
`rollouts/sft_data.py`. Recipes in `papers/` change what is learned from. With `tree`, runs share their first calls, and
single answers are chosen by the rewards of the runs through them; see `rollouts/rollout_trees.py`.

Departure from common practice: TRL's trainers tokenize texts again; here exactly the tokens that were sampled are
learned, and those of tools are masked.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, PrivateAttr, field_validator, model_validator

from workbench import Patch, Study, Workflow
from workbench.errors import SpecError, suggest
from workbench.spec import Pattern, check_pattern
from workbench.task import Example
from workbench_kit.files import FilePath
from workbench_training.batch import describe_step
from workbench_training.extension import with_recipes
from workbench_training.imitation import ImitationOptimizer, drop_repeats
from workbench_training.judge_calls import JudgeCalls
from workbench_training.objective import Objective
from workbench_training.rewards import Rollout, limit_terms, score
from workbench_training.rollouts.node_outputs import score_output
from workbench_training.rollouts.node_settings import find_call_limit, find_settings
from workbench_training.rollouts.sft_data import (
    ChatTokenizer,
    extract_drawn_rows,
    extract_examples,
    find_trained_nodes,
    label_examples,
    make_chat_tokenizer,
    read_general_chats,
    sample_general,
    splice_examples,
    tokenize_example,
)
from workbench_training.rollouts.study_rollouts import StudyRolloutSource
from workbench_training.settings import TrainingSchedule

if TYPE_CHECKING:
    from workbench_training.model.policy import Policy
    from workbench_training.rollouts.token_rows import RolloutRows, Row


#: The words where the right way begins, with `splice`.
REVISION = "That did not work. I try another way.\n"
#: With `mixture`, the share of the task's own rows: AgentTuning's (arXiv 2310.12823), from memory.
OWN_SHARE = 0.2


@with_recipes("sft")
class SFT(ImitationOptimizer):
    """Trains the language model on tokens of runs that scored well, on labels, or on a teacher's runs."""

    threshold: float = Field(
        1.0,
        description="least score of a rollout that is learned from: the metric's, without the other terms of `rewards`",
    )
    source: Literal["own", "labels", "teacher"] = Field(
        "own",
        description="whose answers: the model's own rollouts, labels of the data, runs by the model of the role "
        "`teacher`",
    )
    first_thought: bool = Field(
        False,
        description="source teacher: agents go on from the first step of an answer that the teacher gives without "
        "tools (Agent Distillation)",
    )
    labels: dict[str, str] = Field(
        default_factory=dict, description="source labels: the row's field with the label of an output, by the output"
    )
    mixture: FilePath = Field(
        "",
        description="file with general chats, four for each row of the task (AgentTuning): rows {messages: [{role, "
        "content}, ...]}, relative to the workflow file",
    )
    errors: Literal["learn", "mask"] = Field(
        "learn",
        description="turns of good rollouts that were followed by an error: learned, or only shown (AgentRefine)",
    )
    splice: bool = Field(
        False, description="also learn from wrong rollouts, continued by a right one after their first error (Agent-R)"
    )
    error: str = Field(
        r"(?i)^\s*error\b|Give the answer in the form asked for",
        description="regular expression: a message that tells of an error",
    )

    _error = field_validator("error")(check_pattern)
    _ordered: bool = PrivateAttr(False)  # a recipe has put the rows in order

    @model_validator(mode="after")
    def _goes_together(self) -> SFT:
        if self.labels and self.source != "labels":
            raise ValueError("`labels` name fields of the data to learn from: give `source: labels` as well")
        if self.first_thought and self.source != "teacher":
            raise ValueError("`first_thought` is of the teacher's runs: give `source: teacher` as well")
        others = {
            "source": self.source != "own",
            "errors": self.errors != "learn",
            "splice": self.splice,
            **dict.fromkeys(self.recipes, True),
        }
        if self.tree is not None and any(others.values()):
            raise ValueError(
                f"`tree` chooses single answers of the model's own, so not with `{max(others, key=others.__getitem__)}`"
            )
        return self

    async def ready(self, study: Study) -> None:
        await super().ready(study)
        if self.source == "labels":
            self._check_labels(study)
        if self.source == "teacher" and study.role_spec("teacher") is None:
            raise SpecError(
                "`source: teacher` needs a teacher",
                hint="Write e.g. roles: {teacher: openai/gpt-4.1}.",
                path=("source",),
            )
        if self.first_thought and not self._thoughtful(study.workflow):
            raise SpecError(
                "`first_thought` is for agents, and no node that is trained is one",
                hint="Remove it, or write the node as an agent.",
                path=("first_thought",),
            )
        if self.mixture:
            self.read_file(study, "mixture", read_general_chats)

    def identify(self) -> dict[str, Any]:
        return {**super().identify(), "revision": REVISION}

    def changes(self, workflow: Workflow) -> dict[str, Any]:
        nodes = find_trained_nodes(workflow, self.address)
        return {k: v for recipe in self.recipes.values() for k, v in recipe.changes(workflow, nodes).items()}

    def drawing_changes(self, workflow: Workflow) -> dict[str, Any]:
        nodes = find_trained_nodes(workflow, self.address)
        return {k: v for recipe in self.recipes.values() for k, v in recipe.drawn(workflow, nodes).items()}

    def drawn(self, workflow: Workflow) -> Workflow:
        drawn = super().drawn(workflow)
        changes = self._thoughtful(workflow) if self.first_thought else {}
        return drawn.patched(Patch(changes, note="first thoughts")) if changes else drawn

    def _thoughtful(self, workflow: Workflow) -> dict[str, Any]:
        """Changes by which the agents that are trained, those inside other nodes too, begin with a first thought."""
        nodes = find_trained_nodes(workflow, self.address)
        places = [place for place, _ in find_settings(workflow, ("first_thought",))]
        return {place: True for place in places if place.split(".")[1] in nodes}

    @property
    def draws(self) -> bool:
        return self.source != "labels"

    def objective(self) -> Objective:
        return Objective.model_validate({"surrogate": "likelihood", "aggregate": "token"})

    def choose(self, rollouts: Sequence[RolloutRows]) -> list[RolloutRows]:
        return [rollout for rollout in rollouts if rollout.score is not None and rollout.score >= self.threshold]

    def flatten(self, chosen: Sequence[RolloutRows]) -> list[Row]:
        return drop_repeats(super().flatten(chosen))

    def affords(self, study: Study, source: StudyRolloutSource, schedule: TrainingSchedule, round_: int) -> bool:
        if self.source == "own":
            return source.affords(schedule, round_)
        calls = study.planned_calls(study.workflow, study.val)
        if self.source == "teacher":
            rows = list(study.train)[: self.tasks]
            calls += self.rollouts * study.planned_calls(self.drawn(study.workflow), rows)
        return study.remaining("calls") >= calls

    async def chosen(
        self,
        study: Study,
        policy: Policy,
        source: StudyRolloutSource,
        tasks: Sequence[Example],
        schedule: TrainingSchedule,
        round_: int,
    ) -> list[list[Row]]:
        tokens, nodes = make_chat_tokenizer(policy), find_trained_nodes(study.workflow, self.address)
        if self.source == "labels":
            lessons = [label_examples(study.workflow, task, {**study.targets, **self.labels}, nodes) for task in tasks]
            for recipe in self.recipes.values():
                every = [lesson for some in lessons for lesson in some]
                if (found := await asyncio.to_thread(recipe.select, policy, tokens, every, self)) is not None:
                    lessons, self._ordered = [[every[i]] for i in found[0]], True
                    study.log(found[1])
            rows = [[row for lesson in some for row in tokenize_example(lesson, tokens)] for some in lessons]
            chosen = [drop_repeats(some) for some in rows]
            count = sum(map(len, chosen))
            study.log(f"round {round_ + 1}: {count} worked examples in {len(tasks)} rows", rows=count)
            return [rows for rows in chosen if rows]
        if self.source == "teacher":
            groups = await self._taught(study, tasks)
        elif self.errors == "learn" and not self.splice and not self.recipes:
            return await super().chosen(study, policy, source, tasks, schedule, round_)
        else:
            groups = await source.rollouts(tasks, schedule, round_)
        workflow = study.workflow
        chosen = [drop_repeats(self._of_group(workflow, group, tokens, nodes, round_)) for group in groups]
        drawn, count = sum(map(len, groups)), sum(map(len, chosen))
        figures = describe_step(groups, [row for rows in chosen for row in rows], round_)
        study.log(f"round {round_ + 1}: {count} rows of tokens to learn from, of {drawn} rollouts", **figures)
        return [rows for rows in chosen if rows]

    def _check_labels(self, study: Study) -> None:
        outputs = sorted({output for node in study.workflow.enabled_nodes.values() for output in node.outputs})
        for output, field in self.labels.items():
            if output not in outputs:
                raise SpecError(f"no node writes '{output}'", hint=suggest(output, outputs), path=("labels", output))
            if study.train and not any(field in row for row in study.train):
                raise SpecError(
                    f"no row of train has a field '{field}'",
                    hint=suggest(field, study.train[0].fields),
                    path=("labels", output),
                )

    def _of_group(
        self,
        workflow: Workflow,
        group: Sequence[Rollout],
        tokens: ChatTokenizer,
        nodes: Collection[str],
        round_: int,
    ) -> Iterator[Row]:
        """Rows of the runs on one training row: of the good ones, and of wrong ones that a good one mends."""
        masked = Pattern(self.error if self.errors == "mask" else r"(?!)")
        for recipe in self.recipes.values():
            if (lessons := recipe.lessons(workflow, group, nodes, self.threshold, masked)) is not None:
                for lesson in lessons:
                    yield from tokenize_example(lesson, tokens)
                return
        good = [r for r in group if r.score is not None and r.score >= self.threshold]
        for rollout in good:
            assert rollout.result.trace is not None
            if self.source == "own":
                yield from extract_drawn_rows(
                    rollout.result.trace,
                    nodes,
                    masked,
                    task=rollout.example.id,
                    reward=rollout.reward,
                    rollout=rollout.replica,
                    version=round_,
                )
            else:
                for lesson in extract_examples(rollout.result.trace, nodes, masked):
                    yield from tokenize_example(lesson, tokens)
        if not self.splice or not good or good[0].result.trace is None:
            return
        right = extract_examples(good[0].result.trace, nodes)
        for rollout in group:
            if rollout.score is None or rollout.score >= self.threshold or rollout.result.trace is None:
                continue
            for a, b in zip(extract_examples(rollout.result.trace, nodes), right, strict=False):
                if a.agent == b.agent and (made := splice_examples(a, b, Pattern(self.error), REVISION)):
                    yield from tokenize_example(made, tokens)

    async def _taught(self, study: Study, tasks: Sequence[Example]) -> list[list[Rollout]]:
        """Runs of the workflow with the teacher in place of the trained model, scored."""
        spec = study.role_spec("teacher")
        assert spec is not None, "ready asks for a teacher"
        workflow = self.drawn(study.workflow).patched(
            Patch({self.address: spec.model_dump(exclude_defaults=True)}, note="the teacher's runs")
        )
        found = [await study.evaluate(workflow, tasks, traces=True, replica=k) for k in range(self.rollouts)]
        groups = [[Rollout(task, e.results[i], e.replica) for e in found] for i, task in enumerate(tasks)]
        drawn = [r for group in groups for r in group]
        judge = JudgeCalls(study.lm("judge"), study.workflow.input_fields)
        terms = limit_terms(self.rewards, find_call_limit(workflow, self.address, spec))
        await score(drawn, terms, self.guards, judge, partial(score_output, study))
        judge.report(study.log)
        return groups

    def added(self, study: Study, policy: Policy) -> list[list[Row]]:
        if not self.mixture:
            return []
        lessons, tokens = self.read_file(study, "mixture", read_general_chats), make_chat_tokenizer(policy)
        return [rows for lesson in lessons if (rows := tokenize_example(lesson, tokens))]

    def arrange(self, chosen: Sequence[list[Row]], more: Sequence[list[Row]], rng: random.Random) -> list[list[Row]]:
        if not self._ordered:
            return super().arrange(chosen, more, rng)
        order = list(chosen)
        for rows in more:
            order.insert(rng.randrange(len(order) + 1), rows)
        return order

    def mix(self, count: int, added: Sequence[list[Row]], rng: random.Random) -> list[list[Row]]:
        return sample_general(count, OWN_SHARE, added, rng) if self.mixture else []
