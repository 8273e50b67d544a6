"""The optimizer `grpo`: trains the weights of one LM of the workflow, and offers them as patches of that LM.

Rollouts are runs of the workflow itself: every node, tool and agent is the one that is evaluated and proved later.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, field_validator, model_validator

from workbench import BudgetSpent, Optimizer, Patch, Study, Workflow
from workbench.data import Example
from workbench.errors import PluginError, StoreError, suggest
from workbench.lm import HasWeights
from workbench.nodes import enabled
from workbench.runtime import lm_spec
from workbench.spec import LMSpec
from workbench.workflow import digest
from workbench_grpo.objective import PRESETS, Objective, make_objective
from workbench_grpo.rewards import Guards, Part, Rollout, score
from workbench_grpo.settings import Course, Learning, Lora

if TYPE_CHECKING:
    from workbench_grpo.policy import Policy
    from workbench_grpo.rollouts import Row
    from workbench_grpo.serve import Engine

NEEDS = (("torch", (2, 11)), ("transformers", (5, 0)), ("safetensors", (0, 5)))
LONGEST_CALL = 600.0  # seconds: a rollout waits for the whole batch that it is drawn in


class Trains(Optimizer):
    """Base of what trains a language model: where it is, what is rewarded, how weights are changed."""

    rewards: list[Part] = Field(
        [Part.model_validate({})], min_length=1, description="what is rewarded; their weighted sum counts"
    )
    guards: Guards = Field(Guards.model_validate({}), description="answers that earn nothing")
    learning: Learning = Field(Learning.model_validate({}), description="learning rate, updates, memory")
    lora: Lora | None = Field(None, description="train an adapter in place of all weights")
    address: str = Field("lm", description="the LM that is trained: lm, or that of a node: nodes.NAME.lm")
    device: str | None = Field(None, description="cpu, cuda, ...; by default a GPU if there is one")
    server: str = Field("", description="address of a vLLM server that draws, with adapters enabled; needs lora")
    race: bool = Field(
        True, description="stop the evaluation of candidates that are clearly worse than the best so far"
    )

    @model_validator(mode="after")
    def _server_fits(self) -> Self:
        if self.server and self.lora is None:
            raise ValueError("a server gets an adapter, not all weights: give `lora: {}` as well")
        return self

    async def optimize(self, study: Study) -> Workflow:
        spec = self._spec(study)
        lm = study.evaluator.runtime.pool.get(spec) if spec else None
        number = study.rng.getrandbits(32)
        if spec is None or not isinstance(lm, HasWeights):
            what = f"the weights of {spec.model} are not here" if spec else f"there is no LM at '{self.address}'"
            study.tell(f"nothing to train: {what}. Name hf:PATH or bundled/nano.")
            return study.best
        if not study.train:
            study.tell("nothing to train on: the train split is empty")
            return study.best
        check_extra(self.lora is not None)
        await self._train(study, spec, lm, number)
        return study.best

    def _spec(self, study: Study) -> LMSpec | None:
        if self.address == "lm":
            return study.evaluator.runtime.lm_spec("task", study.workflow)
        value = study.workflow.get(self.address, None)
        return lm_spec(value) if value else None

    async def _train(self, study: Study, spec: LMSpec, lm: HasWeights, number: int) -> None:
        """Load the policy and the engine that draws with it, and run the course; both end with it."""
        from workbench_grpo.policy import Policy
        from workbench_grpo.serve import LIVE, LocalEngine

        identity = getattr(lm, "identity", spec.model)
        name = digest([identity, study.workflow.hash, study.name, self.model_dump(mode="json"), number])
        home = study.ledger.store.path
        weights = home.with_name(f"{home.stem}-weights")
        folder = weights / f"run-{study.ledger.run_id}-{re.sub(r'[^A-Za-z0-9]+', '-', study.name)}-{name}"
        extra = {k: v for k, v in spec.extra.items() if k in ("device", "dtype", "revision")}
        policy = await asyncio.to_thread(
            Policy, lm.weights, lora=self.lora, device=self.device or extra.get("device"), dtype=extra.get("dtype"),
            revision=extra.get("revision"), seed=number,
        )  # fmt: skip
        engine = LocalEngine(policy.generator, -1)
        if self.server:
            from workbench_grpo.vllm import ServerEngine

            engine = ServerEngine(self.server, name, policy, folder / "adapters")
        LIVE[name] = engine
        source = StudySource(self, study, spec, lm, name)
        try:
            await self.course_of(study, policy, engine, source, folder, weights, number)
        except BudgetSpent as spent:
            study.tell(f"training ends with its budget: {spent}")
        finally:
            del LIVE[name]
            await engine.aclose()

    async def course_of(self, study: Study, policy: Policy, engine: Engine, source: StudySource, folder: Path,
                        weights: Path, number: int) -> None:  # fmt: skip
        """Train. folder: for checkpoints; weights: for candidates; number: the seed."""
        raise NotImplementedError


class GRPO(Trains):
    """Trains the language model by reinforcement learning on train, and keeps what is better on val.

    The LM must have its weights here: `hf:PATH-or-hub-id` or `bundled/nano`. The result names the trained weights.
    """

    algorithm: str = Field("grpo", description="a row of the table of algorithms in the plugin's README")
    objective: dict[str, Any] = Field(default_factory=dict, description="changes to the algorithm's objective")
    course: Course = Field(Course.model_validate({}), description="steps, rollouts, candidates, alarms")

    @field_validator("algorithm")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in PRESETS:
            raise ValueError(f"there is no algorithm '{value}'. {suggest(value, PRESETS)}")
        return value

    @model_validator(mode="after")
    def _fits(self) -> GRPO:
        self.made_objective()
        return self

    def made_objective(self) -> Objective:
        return make_objective(self.algorithm, self.objective)

    def made_course(self) -> Course:
        """The algorithm's own settings of the course, where the user gives none."""
        given = {name: getattr(self.course, name) for name in self.course.model_fields_set}
        return Course.model_validate({**PRESETS[self.algorithm].trainer, **given})

    async def course_of(self, study: Study, policy: Policy, engine: Engine, source: StudySource, folder: Path,
                        weights: Path, number: int) -> None:  # fmt: skip
        from workbench_grpo.learner import Learner
        from workbench_grpo.trainer import Trainer

        objective = self.made_objective()
        source.merge = not objective.step_weight  # step-level credit needs a row for each step
        trainer = Trainer(
            Learner(policy, objective, self.learning), source, study.train, self.made_course(), folder,
            weights=weights, seed=number, at=engine.at, tell=study.tell,
        )  # fmt: skip
        if study.best_evaluation is not None:
            trainer.state.best = study.best_evaluation.score
        await trainer.train()


class StudySource:
    """Rollouts from runs of the workflow under a study, and candidates as patches of its LM."""

    merge = True

    def __init__(self, settings: Trains, study: Study, spec: LMSpec, lm: HasWeights, name: str):
        self.settings, self.study, self.spec, self.lm, self.name = settings, study, spec, lm, name
        self.largest_tokens, self.longest_seconds = 0.0, 0.0

    async def rollouts(self, tasks: Sequence[Example], course: Course, step: int) -> list[list[Rollout]]:
        study, workflow = self.study, self.workflow_at(step, course)
        tokens, seconds = study.ledger.spent.tokens, study.ledger.seconds
        runs = [study.evaluate(workflow, tasks, traces=True, replica=k) for k in range(course.rollouts)]
        found = await asyncio.gather(*runs, return_exceptions=True)
        if errors := [e for e in found if isinstance(e, BaseException)]:
            raise next((e for e in errors if not isinstance(e, BudgetSpent)), errors[0])
        groups = [[Rollout(task, e.results[i], e.replica) for e in found if not isinstance(e, BaseException)]
                  for i, task in enumerate(tasks)]  # fmt: skip
        drawn = [rollout for group in groups for rollout in group]
        for rollout in drawn:
            if rollout.result.failure == "unsupported" and "policy:" in (rollout.result.message or ""):
                raise StoreError(
                    f"the journal does not hold what the checkpoint was made from: {rollout.result.message}"
                )
        await score(drawn, self.settings.rewards, self.settings.guards, study.lm("judge"))
        self.largest_tokens = max(self.largest_tokens, study.ledger.spent.tokens - tokens)
        self.longest_seconds = max(self.longest_seconds, study.ledger.seconds - seconds)
        return groups

    def workflow_at(self, step: int, course: Course) -> Workflow:
        """The workflow with the policy in place of its LM, drawing at the training temperature."""
        heat = self.settings.learning.temperature
        lm = {"model": f"policy:{self.name}@{step}", "temperature": heat, "attempts": 1,
              "timeout": max(LONGEST_CALL, self.spec.timeout)}  # fmt: skip
        if self.spec.max_tokens:
            lm["max_tokens"] = self.spec.max_tokens
        changes: dict[str, Any] = {self.settings.address: lm}
        for address, key in _decoding(self.study.workflow.nodes, "nodes"):
            changes[address] = heat if key == "temperature" else 1.0
        if course.horizon:
            most = course.horizon[min(step // course.horizon_steps, len(course.horizon) - 1)]
            for name, node in enabled(self.study.workflow).items():
                if "max_steps" in node.learnable:
                    changes[f"nodes.{name}.max_steps"] = most
        return self.study.workflow.patched(Patch(changes, note=f"rollouts of step {step + 1}"))

    def rows(self, rollout: Rollout, step: int) -> list[Row]:
        """The calls that the policy answered, as rows."""
        from workbench_grpo.rollouts import rows_of

        trace, steps = rollout.result.trace, []
        for span in trace.spans if trace else []:
            for call in span.calls:
                r = call.response
                if call.role == "task" and call.lm.startswith(f"policy:{self.name}@") and r.token_ids is not None:
                    steps.append({"agent": span.agent or span.node, "turn": len(steps), "prompt_ids": r.prompt_ids,
                                  "token_ids": r.token_ids, "logprobs": r.logprobs, "text": r.text,
                                  "truncated": r.finish == "length"})  # fmt: skip
        return rows_of(
            steps, reward=rollout.reward, task=rollout.example.id, rollout=rollout.replica, version=step,
            merge=self.merge, costs=rollout.costs,
        )  # fmt: skip

    def affords(self, course: Course, step: int) -> bool:
        """Room for another step, and for a candidate after it: weights that nobody evaluates are worth nothing."""
        study, rows = self.study, list(self.study.train)
        drawn = min(course.tasks, len(rows)) * course.rollouts
        calls = study.worst_calls(self.workflow_at(step, course), rows[:1]) * drawn
        best = study.best_evaluation
        tokens = best.objectives["tokens"] * len(study.val) if best else 0.0
        return (
            study.remaining("calls") >= calls + study.worst_calls(study.workflow, study.val)
            and study.remaining("tokens") >= 1.5 * self.largest_tokens + 1.2 * tokens
            and study.remaining("minutes") * 60 >= 2 * self.longest_seconds
        )

    async def offer(self, folder: Path, step: int) -> float | None:
        changes: dict[str, Any] = self.spec.model_dump(exclude_defaults=True)
        changes["extra"] = {k: v for k, v in self.spec.extra.items() if k != "revision"}
        found = dict(self.lm.with_weights(str(folder.resolve())))
        changes = {**changes, **found, "extra": {**changes["extra"], **found.get("extra", {})}}
        candidate = self.study.workflow.patched(
            Patch({self.settings.address: changes}, note=f"trained for {step} steps")
        )
        if not self.study.affords(candidate):
            return None
        evaluation = await self.study.evaluate(candidate, race=self.settings.race)
        if sum(evaluation.failures.values()) == len(evaluation.results):
            self.study.tell(f"the weights of step {step} failed on every row: {evaluation.results[0].message}")
        await self.study.evaluator.runtime.pool.release(lm_spec(candidate.get(self.settings.address)))
        return evaluation.score if evaluation.complete else 0.0


def _decoding(tree: Any, prefix: str) -> Iterator[tuple[str, str]]:
    """(address, key) of every temperature and top_p that stands in the nodes."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            if key in ("temperature", "top_p") and isinstance(value, int | float):
                yield f"{prefix}.{key}", key
            elif key not in ("demos", "lm"):
                yield from _decoding(value, f"{prefix}.{key}")


def check_extra(lora: bool = False) -> None:
    """Raises PluginError where a package of the extra `grpo` is missing."""
    for package, least in (*NEEDS, *((("peft", (0, 17)),) if lora else ())):
        try:
            found = version(package)
        except PackageNotFoundError:
            found = "0.0"
        if tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < least:
            wanted = ".".join(map(str, least))
            raise PluginError(f"training needs {package}>={wanted}: pip install 'agent-workbench[grpo]'")
