"""Rollouts as runs of the workflow under a study, and trained weights as patches of its language models."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from workbench import BudgetSpent, Patch, Study, Workflow
from workbench.base.concurrency import gather_all
from workbench.base.hashing import digest
from workbench.errors import StoreError
from workbench.lm import HasWeights, Request, Response
from workbench.spec import LMSpec, allow, collecting, lm_spec, read_outside
from workbench.study import Evaluation
from workbench.task import Example
from workbench.workflow import CallRecord
from workbench_training.chat_behavior import ChatBehavior
from workbench_training.judge_calls import JudgeCalls
from workbench_training.ramps import Ramps, ramped_values
from workbench_training.rewards import Guard, RewardTerm, Rollout, limit_terms, score
from workbench_training.rollouts.node_outputs import score_output
from workbench_training.rollouts.node_settings import (
    draw_one_action,
    find_call_limit,
    find_decoding,
    find_settings,
    set_max_steps,
)
from workbench_training.rollouts.position import read_position, recall_evaluation, restore_position
from workbench_training.rollouts.rollout_trees import RolloutTree
from workbench_training.settings import Learning, Lora, Stage, TrainingSchedule

if TYPE_CHECKING:
    from workbench_training.model.policy import Policy
    from workbench_training.rollouts.token_rows import Row
    from workbench_training.serving.policy_lm import Engine

LONGEST_CALL = 600.0  # seconds: a call may wait for a place in a batch, or for all of the batch


@runtime_checkable
class CanDelegate(Protocol):
    """An LM whose requests an engine elsewhere may answer that has the same weights, e.g. a server in a training.

    delegate(answer, concurrency): from now on `answer(request)` answers, with so many requests in flight, and nothing
    is loaded here; None: the LM answers itself again.
    """

    def delegate(self, answer: Callable[[Request], Awaitable[Response]] | None, concurrency: int = 1) -> None: ...


@dataclass
class TrainedPolicy:
    """A language model of the workflow that is trained: its address, and how it is trained.

    rewards: None for the shared rewards. key: its name among the policies of this process. policy, engine: set once
    loaded.
    """

    name: str
    address: str
    spec: LMSpec
    lm: HasWeights
    lora: Lora | None
    learning: Learning
    rewards: Sequence[RewardTerm] | None = None
    key: str = ""
    policy: Policy = field(init=False)
    engine: Engine = field(init=False)


@dataclass
class PolicyRollout(Rollout):
    """A rollout, with the rollout as each role with rewards of its own sees it."""

    by_role: dict[str, Rollout] = field(default_factory=dict)


def seen_by(rollout: Rollout, role: str = "") -> Rollout:
    """The rollout with the reward and score of a role that has rewards of its own, or with those of all."""
    own: Mapping[str, Rollout] = getattr(rollout, "by_role", {})
    return own.get(role, rollout)


class StudyRolloutSource:
    """Rollouts from runs of the workflow under a study, and candidates as patches of its LMs."""

    has_candidates: bool = True

    def __init__(
        self,
        study: Study,
        roles: Mapping[str, TrainedPolicy],
        rewards: Sequence[RewardTerm],
        guards: Sequence[Guard],
        *,
        stages: Sequence[Stage] = (),
        merge: bool = True,
        race: bool = True,
    ):
        """rewards: of all roles that have none of their own. stages: sorted by their starts. merge: one row for turns
        that continue each other."""
        self.stages = stages
        self.study, self.roles, self.rewards, self.guards = study, roles, rewards, guards
        self.merge, self.race = merge, race
        self.ramps: Ramps = {}
        self.tasks: Sequence[Example] | None = None  # that the training draws from; None: train
        self.observed = False  # states are what was seen last, not all that was said before
        self.tree: RolloutTree | None = None  # in place of runs that share nothing
        self.changes: Mapping[str, Any] = {}  # of the workflow, in rollouts
        self.candidate_changes: Mapping[str, Any] = {}  # in candidates
        self.largest_tokens, self.longest_seconds = 0.0, 0.0
        self.judge_calls = JudgeCalls(study.lm("judge"), study.workflow.input_fields)

    async def rollouts(self, tasks: Sequence[Example], schedule: TrainingSchedule, step: int) -> list[list[Rollout]]:
        study, workflow = self.study, self.workflow_at(step, schedule)
        tokens, seconds = study.ledger.spent.tokens, study.seconds
        runs = [
            study.evaluate(
                workflow, tasks, traces=True, replica=k, call_replicas=self.tree.draws(k) if self.tree else ()
            )
            for k in range(schedule.rollouts)
        ]
        found = await gather_all(runs, last=BudgetSpent)
        groups: list[list[Rollout]] = [
            [PolicyRollout(task, e.results[i], e.replica) for e in found] for i, task in enumerate(tasks)
        ]
        await self._score([rollout for group in groups for rollout in group], self.at(step, "rewards") or self.rewards)
        self.largest_tokens = max(self.largest_tokens, study.ledger.spent.tokens - tokens)
        self.longest_seconds = max(self.longest_seconds, study.seconds - seconds)
        return groups

    def find_limit(self, role: str) -> int:
        """The tokens that an answer of a role has at most in rollouts, as in the baseline and in candidates."""
        return find_call_limit(self.study.workflow, self.roles[role].address, self.roles[role].spec)

    def at(self, step: int, name: str) -> Any:
        """A setting of the stage that a step is in; None where it has none."""
        return next((getattr(stage, name) for stage in reversed(self.stages) if stage.start <= step), None)

    async def _score(self, drawn: Sequence[Rollout], rewards: Sequence[RewardTerm]) -> None:
        limits = {name: self.find_limit(name) for name in self.roles}
        shared = max(limits.values(), default=None)
        for rollout in drawn:
            if rollout.result.failure == "unsupported" and "policy:" in (rollout.result.message or ""):
                raise StoreError(
                    f"the journal does not hold what the checkpoint was made from: {rollout.result.message}"
                )
        terms = limit_terms(rewards, shared)
        await score(drawn, terms, self.guards, self.judge_calls, partial(score_output, self.study))
        for role in self.roles.values():
            if role.rewards is not None:
                copies = [Rollout(r.example, r.result, r.replica) for r in drawn]
                terms = limit_terms(role.rewards, limits[role.name])
                await score(copies, terms, self.guards, self.judge_calls, partial(score_output, self.study))
                for rollout, copy in zip(drawn, copies, strict=True):
                    assert isinstance(rollout, PolicyRollout)
                    rollout.by_role[role.name] = copy
        self.judge_calls.report(self.study.log)

    def workflow_at(self, step: int, schedule: TrainingSchedule) -> Workflow:
        """The workflow with the policies in place of its LMs, drawing at the training temperature."""
        changes: dict[str, Any] = dict(self.changes)
        for role in self.roles.values():
            lm: dict[str, Any] = {
                "model": f"policy:{role.key}@{step}",
                "temperature": role.learning.temperature,
                "attempts": 1,
                "timeout": max(LONGEST_CALL, role.spec.timeout),
            }
            if role.spec.concurrency:
                lm["concurrency"] = role.spec.concurrency
            changes[role.address] = ChatBehavior.of(role.spec).under(lm)
        for address, node in find_settings(self.study.workflow, ("temperature",)):
            if node.names_temperature:
                changes[address] = self._temperature_at(address)
        for address, key in find_decoding(self.study.workflow.nodes, "nodes"):
            changes[address] = self._temperature_at(address) if key == "temperature" else 1.0
        changes |= set_max_steps(self.study.workflow, self.at(step, "max_steps")) | draw_one_action(self.study.workflow)
        changes |= ramped_values(self.ramps, self.study.workflow, step, schedule.steps)
        return self.study.workflow.patched(Patch(changes, note=f"rollouts of step {step + 1}"))

    def _temperature_at(self, address: str) -> float:
        """The training temperature of the role whose node an address is in."""
        own = [r for r in self.roles.values() if r.address != "lm" and address.startswith(r.address.removesuffix("lm"))]
        shared = [r for r in self.roles.values() if r.address == "lm"]
        return (own or shared or [*self.roles.values()])[0].learning.temperature

    def rows(self, rollout: Rollout, version: int) -> list[Row]:
        """The calls that policies answered, as rows of their roles."""
        from workbench_training.rollouts.token_rows import build_rows

        trace, turn = rollout.result.trace, 0
        steps: dict[str, list[dict[str, Any]]] = {name: [] for name in self.roles}
        by_key = {role.key: name for name, role in self.roles.items()}
        for span in trace.spans if trace else []:
            for call in span.calls:
                r = call.response
                name = by_key.get(call.lm.removeprefix("policy:").rpartition("@")[0])
                if (
                    call.role == "task"
                    and call.lm.startswith("policy:")
                    and name is not None
                    and r.token_ids is not None
                ):
                    steps[name].append(
                        {
                            "agent": span.agent or span.node,
                            "turn": turn,
                            "prompt_ids": r.prompt_ids,
                            "token_ids": r.token_ids,
                            "logprobs": r.logprobs,
                            "text": r.text,
                            "truncated": r.finish == "length",
                            "step_reward": None if rollout.guarded else call.earned,
                            "anchor": hash_state(span.agent or span.node, call) if self.observed else None,
                        }
                    )
                    turn += 1
        return [
            row
            for name, found in steps.items()
            for row in build_rows(
                found,
                reward=seen_by(rollout, name).reward,
                score=seen_by(rollout, name).score,
                task=rollout.example.id,
                rollout=rollout.replica,
                version=version,
                merge=self.merge,
                costs=rollout.costs,
                policy=name,
            )
        ]

    def limit(self, tokens: Mapping[str, int]) -> None:
        for name, role in self.roles.items():
            role.engine.conversations.limit = tokens.get(name)

    def affords(self, schedule: TrainingSchedule, step: int) -> bool:
        """Room for another step, and for a candidate after it: weights that nobody evaluates are worth nothing."""
        study, rows = self.study, self.study.train if self.tasks is None else self.tasks
        drawn, workflow = min(schedule.tasks, len(rows)), self.workflow_at(step, schedule)
        if self.tree is not None:
            calls = drawn * self.tree.calls_of(workflow)
        else:
            calls = study.planned_calls(workflow, rows[:1]) * drawn * schedule.rollouts
        best = study.best_evaluation
        tokens = best.objectives["tokens"] * len(study.val) if best else 0.0
        return (
            study.remaining("calls") >= calls + study.planned_calls(study.workflow, study.val)
            and study.remaining("tokens") >= 1.5 * self.largest_tokens + 1.2 * tokens
            and study.remaining("minutes") * 60 >= 2 * self.longest_seconds
        )

    def _candidate(self, folders: Path | Mapping[str, Path], step: int) -> Workflow:
        """folders: as of `submit`."""
        if not isinstance(folders, Mapping):
            folders = dict.fromkeys(self.roles, folders)
        named = {role.address: _named(role, folders[name]) for name, role in self.roles.items()}
        patch = {**self.candidate_changes, **named}
        models = ", ".join(f"{role.spec.model} ({role.policy.millions})" for role in self.roles.values())
        return self.study.workflow.patched(Patch(patch, note=f"trained the weights of {models} for {step} steps"))

    async def recall(self, folders: Path | Mapping[str, Path], step: int) -> float | None:
        """Make a candidate that an earlier process evaluated known again. Its score; None if that is not stored."""
        evaluation = await recall_evaluation(self.study, self._candidate(folders, step))
        return None if evaluation is None else _score(evaluation)

    @property
    def remembers(self) -> bool:
        """True if `recall` finds what was submitted, and only the best candidates are ever asked for."""
        return self.study.progress.stored is not None and tuple(self.study.objectives) == ("score",)

    def pass_over(self, schedule: TrainingSchedule, step: int) -> None:
        """Note a step whose rollouts a checkpoint already contains: its workflow is numbered among the candidates."""
        self.study.progress.propose(self.workflow_at(step, schedule), self.study.name)

    def position(self) -> dict[str, Any]:
        own = {"largest_tokens": self.largest_tokens, "judge_answers": self.judge_calls.answered}
        return read_position(self.study) | own

    def restore(self, position: Mapping[str, Any]) -> None:
        restore_position(self.study, position)
        self.largest_tokens = float(position.get("largest_tokens", 0.0))
        self.judge_calls.answered = int(position.get("judge_answers", 0))

    async def submit(self, folders: Path | Mapping[str, Path], step: int, *, current: bool = False) -> float | None:
        """Evaluate weights as one candidate: a folder for each role, or the folder of the only one.

        current: the policies have these weights now. A server that draws for them then answers the candidate's calls,
        in place of the checkpoint loaded here. Its identity, and so the journal's keys, are those of the checkpoint.
        """
        candidate = self._candidate(folders, step)
        if not self.study.affords(candidate):
            return None
        delegating = await self._draw_on_servers(candidate, step) if current else []
        try:
            evaluation = await self.study.evaluate(candidate, race=self.race)
        finally:
            for lm in delegating:
                lm.delegate(None)
        if sum(evaluation.failures.values()) == len(evaluation.results):
            self.study.log(f"the weights of step {step} failed on every row: {evaluation.results[0].message}")
        for role in self.roles.values():
            await self.study.release_lm(lm_spec(candidate.get(role.address)))
        return _score(evaluation)

    async def _draw_on_servers(self, candidate: Workflow, step: int) -> list[CanDelegate]:
        """Let the engines that draw for candidates answer for the candidate's checkpoints. Returns their LMs."""
        from workbench_training.serving.policy_lm import CandidateEngine

        found: list[CanDelegate] = []
        for role in self.roles.values():
            lm = self.study.open_lm(lm_spec(candidate.get(role.address)))
            if isinstance(lm, CanDelegate) and isinstance(role.engine, CandidateEngine) and role.engine.candidates:
                await role.engine.hold_candidate(step)
                lm.delegate(role.engine.answer, role.engine.concurrency)
                found.append(lm)
        return found


def _score(evaluation: Evaluation) -> float:
    return evaluation.score if evaluation.complete else 0.0


def describe_skipped(updates: float, of: str) -> str:
    """The message about updates that changed nothing."""
    return f"{updates:.0f} updates of {of} were left out: their loss or gradient was not finite"


def hash_state(agent: str, call: CallRecord) -> str:
    """The name of the state that an agent is in: that of the environment, if the node reported one; else by the last
    message: what a tool showed, or the question. (GiGPO's anchor states, arXiv 2505.10978, section 4.2, are
    observations; whole prompts differ as soon as histories do.)"""
    if call.state is not None:
        return digest([agent, call.state])
    return digest([agent, call.messages[-1].get("role"), call.messages[-1].get("content")])


def _named(role: TrainedPolicy, folder: Path) -> dict[str, Any]:
    """The value of the role's LM that names these weights."""
    with collecting(folder) as passed:
        read_outside(str(folder.resolve()), folder)
    allow(passed)
    changes: dict[str, Any] = role.spec.model_dump(exclude_defaults=True)
    changes["extra"] = {k: v for k, v in role.spec.extra.items() if k != "revision"}
    found = dict(role.lm.with_weights(str(folder.resolve())))
    return ChatBehavior.of(role.spec).under(
        {**changes, **found, "extra": {**changes["extra"], **found.get("extra", {})}}
    )


def scores_differ(group: Sequence[Rollout], role: str | None = None) -> bool:
    """True if the metric tells two rollouts of a group apart, for a role or for any (DAPO, arXiv 2503.14476, eq. 11).

    Penalties do not count: of answers that are all wrong, the shortest is no success.
    """
    roles = {"", *(name for r in group for name in getattr(r, "by_role", {}))} if role is None else {role}
    scores = ({seen_by(rollout, name).score for rollout in group} for name in roles)
    return any(len({score for score in found if score is not None and math.isfinite(score)}) > 1 for found in scores)
