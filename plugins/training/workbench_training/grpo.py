"""The optimizer `grpo`: trains the weights of the workflow's LMs, and proposes patches with the trained LMs.

Rollouts are runs of the workflow itself, with the nodes, tools and agents that are evaluated and proved later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_core import InitErrorDetails

from workbench import Study, Workflow
from workbench.errors import SpecError, suggest
from workbench.task import Example
from workbench_training.base import TrainingOptimizer
from workbench_training.curriculum import CURRICULUM
from workbench_training.extension import with_recipes
from workbench_training.objective import Critic, Objective
from workbench_training.presets import PRESETS, make_objective
from workbench_training.ramps import check_ramps, final_values
from workbench_training.rewards import RewardTerm
from workbench_training.rollouts.node_settings import check_max_steps, set_max_steps
from workbench_training.rollouts.study_rollouts import StudyRolloutSource
from workbench_training.settings import (
    SCHEDULE_CONSTANTS,
    CriticSettings,
    Learning,
    PolicySettings,
    Stage,
    TrainingSchedule,
)
from workbench_training.state.disk_space import Written, count_written


@with_recipes("grpo")
class GRPO(TrainingOptimizer):
    """Trains the language model by reinforcement learning on train, and keeps the weights that are best on val.

    The weights must be local: `hf:PATH-or-hub-id` or `bundled/nano`. The result names the trained weights.
    """

    algorithm: str = Field("grpo", description="a row of the table of algorithms in the plugin's README")
    beta: float | None = Field(
        None, ge=0, description="weight of the divergence from the weights at the start; by default the algorithm's"
    )
    constraints: dict[str, float] = Field(
        default_factory=dict,
        description="mean costs of a rollout that are aimed at, of tokens, calls, tools, latency; by default the "
        "algorithm's",
    )
    critic: CriticSettings = Field(
        CriticSettings.model_validate({}), description="ppo, poad, archer: what learns the values of states"
    )
    schedule: TrainingSchedule = Field(
        TrainingSchedule.model_validate({}), description="training schedule: steps, rollouts, candidates, alarms"
    )
    policies: dict[str, PolicySettings] = Field(
        default_factory=dict, description="policies trained together, by role, instead of `address`"
    )
    stages: list[Stage] = Field(
        default_factory=list, description="rewards, learning rate and max_steps that change at given steps"
    )
    ramps: dict[str, Annotated[list[float], Field(min_length=2, max_length=2)]] = Field(
        default_factory=dict,
        exclude_if=lambda ramps: not ramps,
        description="numeric settings of nodes, by address, with their values at the first and the last step, slow at "
        "first and fast later (ZeroSearch); candidates have those of the file",
    )

    @field_validator("algorithm")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in PRESETS:
            raise ValueError(f"there is no algorithm '{value}'. {suggest(value, PRESETS)}")
        return value

    @model_validator(mode="after")
    def _fits(self) -> GRPO:
        try:
            objective, schedule = self.resolve_objective(), self.resolve_schedule()
        except ValidationError as error:  # settings of the objective have the same names here
            found = [
                InitErrorDetails(type=e["type"], loc=e["loc"], input=e["input"], ctx=e.get("ctx", {}))
                for e in error.errors()
            ]
            raise ValidationError.from_exception_data(error.title, found) from None
        valued = [name for name, preset in PRESETS.items() if "critic" in preset.objective]
        if self.critic.model_fields_set and self.algorithm not in valued:
            raise ValueError(f"{self.algorithm} has no critic: take {', '.join(valued)}, or remove `critic`")
        compared = "task" in objective.group and objective.baseline != "none"
        if schedule.rollouts == 1 and compared and not schedule.replay and not objective.step_weight:
            raise ValueError(
                f"{self.algorithm} compares the rollouts of a row with each other: give schedule.rollouts of 2 or more"
            )
        starts = [stage.start for stage in self.stages]
        if starts != sorted(set(starts)):
            raise ValueError(f"stages must begin at increasing steps, not at {starts}")
        addresses = [policy.address for policy in self.policies.values()]
        if twice := {a for a in addresses if addresses.count(a) > 1}:
            raise ValueError(f"two policies have the address {', '.join(sorted(twice))}; give each an LM of its own")
        if wrong := [name for name in self.policies if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name)]:
            raise ValueError(f"'{wrong[0]}' is not a name for a policy: letters, digits and _, beginning with a letter")
        self._check_stages()
        learnings = [self.learning, *(p.learning for p in self.policies.values() if p.learning)]
        if schedule.replay and any(s.temperature != 1.0 for s in learnings):
            raise ValueError("replay needs `learning: {temperature: 1}`: stored probabilities are those at 1")
        if schedule.straggler_cut is not None and (objective.step_weight or objective.critic is not None):
            raise ValueError(
                f"schedule.straggler_cut counts the tokens of a conversation, and {self.algorithm} learns from "
                "each step by itself: remove either"
            )
        if schedule.staleness:
            self._check_staleness(learnings, schedule)
        if objective.critic is not None and any(s.fsdp for s in learnings):
            raise ValueError("a critic is trained in one process: remove `learning.fsdp`, or the critic")
        if objective.critic is not None and objective.critic.warmup >= self.all_steps:
            raise ValueError(
                f"the first {objective.critic.warmup} steps train the critic alone (critic.warmup), and there are "
                f"{self.all_steps}: lower it"
            )
        if self.policies and self.address != "lm":
            raise ValueError("give either `address` or `policies`, each of which has its own address")
        return self

    @property
    def all_steps(self) -> int:
        """The steps of the training, at most."""
        return self.resolve_schedule().steps

    def _check_stages(self) -> None:
        """Raises ValueError for a stage that trains a policy which is not there."""
        for stage in self.stages:
            if unknown := [name for name in stage.train or () if name not in self.policies]:
                raise ValueError(
                    f"the stage from step {stage.start} trains '{unknown[0]}', which is none of `policies`. "
                    f"{suggest(unknown[0], self.policies)}"
                )

    def _check_staleness(self, learnings: Sequence[Learning], schedule: TrainingSchedule) -> None:
        """Raise ValueError where rollouts cannot be drawn during an update, or not be corrected for their age."""
        if (server := self.server_settings) is None:
            raise ValueError(
                "schedule.staleness draws with old weights while they are updated, and this process has them once: "
                "write `server: {}`, whose GPU memory holds the old ones, or remove staleness"
            )
        for name in ("evaluate_every", "save_every"):
            if getattr(schedule, name) == 1:
                raise ValueError(
                    f"schedule.staleness has no effect with `{name}: 1`: each step then begins after a candidate or a "
                    "checkpoint, with the current weights"
                )
        if server.sleep:
            raise ValueError(
                "schedule.staleness draws during updates, when a server with `sleep: true` has no memory: remove either"
            )
        if any(s.temperature != 1.0 for s in learnings):
            raise ValueError(
                "schedule.staleness needs `learning: {temperature: 1}`: samplers report log-probabilities at 1, "
                "by which rows of older weights are corrected"
            )

    async def ready(self, study: Study) -> None:
        await super().ready(study)
        if self.resolved_critic is not None:
            from workbench_training.scale.distributed import check_single_process  # imports torch

            check_single_process()
        stages = [(("stages", i, "max_steps"), stage.max_steps) for i, stage in enumerate(self.stages)]
        check_max_steps(study.workflow, [(place, most) for place, most in stages if most is not None])
        check_ramps(self.ramps, study.workflow)
        schedule = self.resolve_schedule()
        if (
            "dynamic_sampling" in self.schedule.model_fields_set
            and schedule.dynamic_sampling
            and 0 < len(study.train) <= schedule.tasks
        ):
            raise SpecError(
                f"dynamic_sampling has no effect: a step has {schedule.tasks} tasks, but train has only "
                f"{len(study.train)} rows",
                hint=f"Write fewer tasks, e.g. tasks: {max(1, len(study.train) // 2)}, or remove dynamic_sampling.",
                path=("schedule", "dynamic_sampling"),
            )

    def _tell_idle(self, study: Study) -> None:
        """Log what the algorithm's own defaults cannot do in this run."""
        schedule, objective = self.resolve_schedule(), self.resolve_objective()
        if schedule.dynamic_sampling and len(study.train) <= schedule.tasks:
            study.log(
                f"{self.algorithm}: dynamic_sampling has no effect, since a step takes all {len(study.train)} rows of "
                "train. Write fewer `tasks`."
            )
        for name, policy in self.resolve_policies().items():
            learning, of = policy.learning or self.learning, f" of {name}" if name else ""
            if objective.is_corrected and learning.temperature != 1.0:
                study.log(
                    f"sampling{of} is not corrected: log-probabilities that samplers report are those at temperature "
                    f"1, not {learning.temperature:g}"
                )
        if objective.critic is not None and any(
            term.kind != "metric" for _, terms in self.list_rewards() for term in terms
        ):
            study.log(
                "where steps of an environment earn, the critic learns from these alone; terms of `rewards` besides "
                "the metric count where none does"
            )

    def max_calls(self, workflow: Workflow, train: Sequence[Example], val: Sequence[Example]) -> int:
        schedule, longest = self.resolve_schedule(), [stage.max_steps for stage in self.stages if stage.max_steps]
        rows = min(schedule.tasks, len(train))
        rows += schedule.dynamic_sampling * min(schedule.tasks, len(train) - rows)  # others in their place
        runs = schedule.steps * rows * schedule.rollouts
        run = max(
            workflow.patched({**set_max_steps(workflow, n), **end}).max_calls
            for n in (*longest, None)
            for end in final_values(self.ramps, workflow)
        )
        return self._calls(workflow, val, runs, runs * run, -(-schedule.steps // schedule.evaluate_every))

    def count_written(self, *, keeps_all: bool, records: int = 1) -> Written:
        """As of the base. records: trainings with checkpoints of their own."""
        schedule = self.resolve_schedule()
        return count_written(
            self.all_steps,
            every=schedule.evaluate_every,
            save_every=schedule.save_every,
            keep=0 if keeps_all else schedule.keep,
            copies=3 + self.keeps_reference + (schedule.on_alarm == "rollback"),
            records=records,
            critic=self.resolved_critic,
        )

    def identify(self) -> dict[str, Any]:
        """Also the algorithm's own settings of `learning`: they change what later rollouts are drawn with. Recipes
        only where they are given, so that a plugin that adds one begins no training anew."""
        found = super().identify()
        found["schedule"] |= SCHEDULE_CONSTANTS | {"curriculum": CURRICULUM if self.schedule.curriculum else None}
        for name in {taken.name for taken in self.recipe_fields} - self.recipes.keys():
            del found[name]
        own = PRESETS[self.algorithm].learning

        def resolved(dumped: dict[str, Any], given: Learning) -> dict[str, Any]:
            return dumped | {name: value for name, value in own.items() if name not in given.model_fields_set}

        found["learning"] = resolved(found["learning"], self.learning)
        for name, policy in self.policies.items():
            if policy.learning is not None:
                dumped = found["policies"][name]
                found["policies"][name] = dumped | {"learning": resolved(dumped["learning"], policy.learning)}
        return found

    def resolve_policies(self) -> dict[str, PolicySettings]:
        """Each with the algorithm's settings of `learning` as defaults."""
        return {
            name: policy.model_copy(update={"learning": self.resolve_learning(policy.learning or self.learning)})
            for name, policy in (self.policies or super().resolve_policies()).items()
        }

    def resolve_learning(self, learning: Learning | None = None) -> Learning:
        """Settings of `learning`, by default those of all policies, with the algorithm's as defaults."""
        learning = learning or self.learning
        given = {name: getattr(learning, name) for name in learning.model_fields_set}
        return Learning.model_validate({**PRESETS[self.algorithm].learning, **given})

    def list_rewards(self) -> Iterator[tuple[tuple[str | int, ...], Sequence[RewardTerm]]]:
        yield from super().list_rewards()
        for index, stage in enumerate(self.stages):
            yield ("stages", index, "rewards"), stage.rewards or ()

    @property
    def keeps_reference(self) -> bool:
        return self.resolve_objective().beta > 0

    @property
    def resolved_critic(self) -> Critic | None:
        return self.resolve_objective().critic

    def resolve_objective(self) -> Objective:
        return make_objective(self.algorithm, self._changes())

    def _changes(self) -> dict[str, Any]:
        """Changes of the algorithm's objective in the file."""
        changes = {
            name: getattr(self, name) for name in ("beta", "constraints") if getattr(self, name) not in (None, {})
        }
        given = self.critic.model_dump(exclude_unset=True)
        return {**changes, "critic": given} if given else changes

    def resolve_schedule(self) -> TrainingSchedule:
        """The schedule, with the algorithm's settings as defaults."""
        given = {name: getattr(self.schedule, name) for name in self.schedule.model_fields_set}
        return TrainingSchedule.model_validate({**PRESETS[self.algorithm].schedule, **given})

    async def train_policies(
        self, study: Study, source: StudyRolloutSource, folder: Path, weights: Path, number: int
    ) -> None:
        from workbench_training.learner import Learner
        from workbench_training.scale.distributed import learner_for
        from workbench_training.serving.policy_lm import wait_if_any
        from workbench_training.trainer import Trainer

        self._tell_idle(study)
        objective, roles = self.resolve_objective(), source.roles
        # Step-level credit and what a turn earned need a row for each step.
        source.merge = not objective.step_weight and objective.critic is None
        source.observed = bool(objective.step_weight)
        source.stages, source.ramps = self.stages, self.ramps
        learners: dict[str, Learner] = {}
        for name, role in roles.items():
            limited = objective.model_copy(update={"max_tokens": source.find_limit(name)})
            learners[name] = learner_for(role.policy, limited, role.learning, [*learners.values()])

        async def at(version: int) -> None:
            for role in roles.values():
                await wait_if_any(role.engine.at(version))

        async def rest() -> None:
            for role in roles.values():
                await wait_if_any(role.engine.rest())

        trainer = Trainer(
            learners,
            source,
            study.train,
            self.resolve_schedule(),
            folder,
            weights=weights,
            seed=number,
            at=at,
            rest=rest,
            rate=lambda step: source.at(step, "rate"),
            trains=lambda step: source.at(step, "train"),
            before=[recipe.before_step for recipe in self.recipes.values()],
            log=study.log,
        )
        if study.best_evaluation is not None:
            trainer.state.best = study.best_evaluation.score
        try:
            await trainer.train()
        finally:
            for learner in learners.values():
                learner.close()
