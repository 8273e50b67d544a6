"""The optimizer `self_play`: a proposer writes tasks at the edge of what the workflow solves, which then learns them.

In each turn (Agent0, arXiv 2511.16043) the proposer is trained first, by what the solver's answers say about its tasks
(`proposals.py`). Then it writes a pool of tasks, the most frequent answer to each is its label, and the solver is
trained on those of middling agreement. Both begin as copies of the workflow's model. Only the solver becomes a
candidate, and val and test are rows of the file, whose labels no model wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from workbench import Study, Workflow
from workbench.errors import SpecError
from workbench.task import Example
from workbench_training.grpo import GRPO
from workbench_training.papers.self_play.settings import PROPOSER_CONSTANTS, Proposer
from workbench_training.rollouts.study_rollouts import StudyRolloutSource
from workbench_training.settings import PolicySettings
from workbench_training.state.disk_space import Written

PROPOSER = "proposer"


class SelfPlay(GRPO):
    """Trains a proposer of tasks and the workflow's LM, which solves them, in turn. Labels are majority votes.

    `schedule` is that of the solver in each turn. The weights must be local: `hf:PATH-or-hub-id` or `bundled/nano`.
    """

    turns: int = Field(3, ge=1, description="turns of the proposer and of the solver")
    proposer: Proposer = Field(Proposer.model_validate({}), description="how tasks are written and chosen")
    own_rows: bool = Field(True, description="the solver also learns the rows of train, with their labels")

    @model_validator(mode="after")
    def _plays_alone(self) -> SelfPlay:
        for name in ("policies", "stages", "ramps"):
            if getattr(self, name):
                raise ValueError(f"self_play has two policies of its own, in turns: remove `{name}`")
        if (server := self.server_settings) is not None and server.sleep:
            raise ValueError("one policy draws while the other is trained: remove `sleep`")
        critic, steps = self.resolve_objective().critic, self.proposer.steps * self.turns
        if critic is not None and 0 < steps <= critic.warmup:
            raise ValueError(
                f"the first {critic.warmup} steps train the critic alone (critic.warmup), and the proposer has {steps} "
                "in all its turns: lower it"
            )
        return self

    @property
    def all_steps(self) -> int:
        return self.turns * super().all_steps

    async def ready(self, study: Study) -> None:
        await super().ready(study)
        fields, _, target = self.find_fields(study)
        for place, terms in self.list_rewards():
            for index, term in enumerate(terms):
                if term.kind in ("exact_match", "tool_n1") and term.target not in (*fields, target):
                    raise SpecError(
                        f"rows that the proposer writes have no field '{term.target}', only {', '.join(fields)} and "
                        f"'{target}'",
                        hint="Compare with one of these.",
                        path=(*place, index, "target"),
                    )

    def find_fields(self, study: Study) -> tuple[list[str], str, str]:
        """(inputs of a task, the output that is its answer, the row's field with the label). Raises SpecError."""
        outputs = study.workflow.output_fields
        if len(outputs) != 1:
            raise SpecError(
                f"self_play takes votes on one output, and the workflow has {len(outputs)}: {', '.join(outputs)}",
                hint="Let the last node write one field.",
            )
        target = study.targets.get(outputs[0], outputs[0])
        if "." in target or any(target not in row.fields for row in study.train):
            raise SpecError(
                f"self_play writes labels of the output '{outputs[0]}' into the rows, and rows of train have no field "
                f"'{target}'",
                hint=f"Name the rows' field with the label '{outputs[0]}'.",
            )
        return study.workflow.input_fields, outputs[0], target

    def resolve_policies(self) -> dict[str, PolicySettings]:
        (solver,) = super().resolve_policies().values()
        learning = self.resolve_learning(self.proposer.learning) if self.proposer.learning else solver.learning
        return {"": solver, PROPOSER: solver.model_copy(update={"learning": learning})}

    def count_written(self, *, keeps_all: bool, records: int = 1) -> Written:
        return super().count_written(keeps_all=keeps_all, records=2 * self.turns)

    def identify(self) -> dict[str, Any]:
        found = super().identify()
        return {**found, "proposer": found["proposer"] | PROPOSER_CONSTANTS, "verdicts": None}

    def max_calls(self, workflow: Workflow, train: Sequence[Example], val: Sequence[Example]) -> int:
        schedule, p = self.resolve_schedule(), self.proposer
        calls = workflow.max_calls
        proposals = p.steps * p.tasks * p.rollouts + p.pool
        runs = schedule.steps * schedule.tasks * schedule.rollouts * (1 + schedule.dynamic_sampling)
        candidates = -(-schedule.steps // schedule.evaluate_every)
        return self.turns * (
            proposals * (1 + p.samples * calls) + self._calls(workflow, val, runs, runs * calls, candidates)
        )

    async def train_policies(
        self, study: Study, source: StudyRolloutSource, folder: Path, weights: Path, number: int
    ) -> None:
        from workbench_training.papers.self_play.turns import Plan, SolverSource, Turns  # with torch

        objective, (fields, output, target) = self.resolve_objective(), self.find_fields(study)
        plan = Plan(
            self.turns,
            self.proposer,
            self.own_rows,
            self.resolve_schedule(),
            objective,
            fields,
            output,
            target,
        )
        merge = not objective.step_weight and objective.critic is None
        solving = SolverSource(study, {"": source.roles[""]}, self.rewards, self.guards, merge=merge, race=self.race)
        plan = replace(plan, objective=objective.model_copy(update={"max_tokens": solving.find_limit("")}))
        solving.observed = bool(objective.step_weight)
        await Turns(plan, study, solving, source.roles[PROPOSER], folder, weights, number).play()


OPTIMIZER = SelfPlay
