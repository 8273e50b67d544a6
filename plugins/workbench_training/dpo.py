"""The optimizer `dpo`: learning from pairs, without a policy gradient.

It raises the likelihood of the better of two rollouts of a row over the worse, relative to the initial weights
(Rafailov et al., arXiv 2305.18290; pairs by generate, rank, select and train as in Optima, arXiv 2410.08115). With
`tree`, the pairs are answers to one prompt, ranked by the rewards of the runs through them
(`rollouts/rollout_trees.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from workbench import Study
from workbench.errors import SpecError, suggest
from workbench.task import Example
from workbench_training.imitation import ImitationOptimizer
from workbench_training.objective import Objective
from workbench_training.recipes.listener import Listener, listen, pair_heard, pair_rows
from workbench_training.recipes.thinking import Thinking, mask_pairs
from workbench_training.rollouts.rollout_trees import group_by_state
from workbench_training.rollouts.study_rollouts import StudyRolloutSource
from workbench_training.settings import Course, server_powers

if TYPE_CHECKING:
    from workbench_training.model.policy import Policy
    from workbench_training.rollouts.token_rows import Row


class DPO(ImitationOptimizer):
    """Trains the language model to prefer, of its own rollouts on a row, the better to the worse."""

    powers = {"server": server_powers}

    beta: float = Field(
        0.1,
        gt=0,
        description="temperature of the preference: smaller values move further; weight of the odds ratio",
    )
    loss: Literal["dpo", "odds_ratio"] = Field(
        "dpo",
        description="what is compared: gains on the weights at the start, or odds, beside the likelihood of the better "
        "answer (ORPO)",
    )
    thinking: Thinking | None = Field(
        None,
        description="compare answers without the thoughts in them (PRefLexOR); {} takes the defaults",
    )

    listener: Listener | None = Field(
        None,
        description="compare answers by whether they are right and whether a listener, the model of the role "
        "`judge`, would accept them (LACIE)",
    )

    @model_validator(mode="after")
    def _has_pairs(self) -> DPO:
        if self.tree is not None and self.listener is not None:
            raise ValueError("a listener hears whole answers, and `tree` compares single calls: remove one")
        if self.tree is None and self.rollouts < 2:
            raise ValueError("dpo learns from two rollouts of a row that differ: give `rollouts` of 2 or more")
        return self

    async def ready(self, study: Study) -> None:
        await super().ready(study)
        if self.listener is None:
            return
        if study.role_spec("judge") is None:
            raise SpecError(
                "`listener` needs a model that listens",
                hint="Write e.g. roles: {judge: openai/gpt-4.1-mini}.",
                path=("listener",),
            )
        outputs = sorted({output for node in study.workflow.enabled_nodes.values() for output in node.outputs})
        if self.listener.field not in outputs:
            raise SpecError(
                f"no node writes '{self.listener.field}'",
                hint=suggest(self.listener.field, outputs),
                path=("listener", "field"),
            )

    @property
    def calls_beside(self) -> int:
        return self.listener.samples if self.listener is not None else 0

    def affords(self, study: Study, source: StudyRolloutSource, course: Course, round_: int) -> bool:
        if self.listener is None or not source.affords(course, round_):
            return source.affords(course, round_)
        rows = list(study.train)[: self.tasks]
        calls = study.worst_calls(study.workflow, study.val) + self.rollouts * study.worst_calls(study.workflow, rows)
        return study.remaining("calls") >= calls + self.rollouts * len(rows) * self.calls_beside

    async def chosen(
        self,
        study: Study,
        policy: Policy,
        source: StudyRolloutSource,
        tasks: Sequence[Example],
        course: Course,
        round_: int,
    ) -> list[list[Row]]:
        if self.listener is None:
            chosen = await super().chosen(study, policy, source, tasks, course, round_)
        else:
            chosen = await self._heard(study, source, tasks, course, round_, self.listener)
        if self.thinking is None:
            return chosen
        masked = mask_pairs(chosen, self.thinking, policy.generator.tokenizer)
        if lost := len(chosen) - len(masked):
            study.log(f"{lost} of {len(chosen)} comparisons have no answer beside their thoughts", rows=lost)
        return masked

    async def _heard(
        self,
        study: Study,
        source: StudyRolloutSource,
        tasks: Sequence[Example],
        course: Course,
        round_: int,
        listener: Listener,
    ) -> list[list[Row]]:
        """Pairs of rollouts by what the listener makes of them."""
        groups = await source.rollouts(tasks, course, round_)
        heard = [await listen(group, listener, source.judge_calls) for group in groups]
        source.judge_calls.report(study.log)
        chosen = []
        for pairs in pair_heard(heard, listener):
            for n, (a, b) in enumerate(pairs):
                rows = source.rows(a.rollout, round_), source.rows(b.rollout, round_)
                if made := pair_rows(*rows, f"{a.rollout.example.id} pair {n}"):
                    chosen.append(made)
        study.log(f"round {round_ + 1}: {len(chosen)} pairs of {sum(map(len, groups))} rollouts", rows=len(chosen))
        return chosen

    def objective(self) -> Objective:
        if self.loss == "odds_ratio":
            return Objective.model_validate({"surrogate": "pairs", "pair_form": "odds_ratio", "pair_beta": self.beta})
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
            for ranked in group_by_state(rows).values():
                if (ranked[-1].reward or 0.0) - (ranked[0].reward or 0.0) >= max(self.tree.margin, 1e-9):
                    chosen += [ranked[-1], ranked[0]]
            return chosen
        for agent in dict.fromkeys(row.agent for row in rows):
            ranked = sorted((row for row in rows if row.agent == agent), key=lambda row: row.reward or 0.0)
            if ranked[0].reward != ranked[-1].reward:
                chosen += [ranked[-1], ranked[0]]
        return chosen
