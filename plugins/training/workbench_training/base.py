"""Base of all optimizers that train a language model."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field, PrivateAttr, model_validator

from workbench import BudgetSpent, Optimizer, Study, Workflow
from workbench.base.distribution import pip_install
from workbench.base.hashing import digest
from workbench.errors import PluginError, SpecError, errors_at
from workbench.lm import HasWeights
from workbench.spec import LMSpec, lm_spec
from workbench.task import Example
from workbench_training.extension import RecipeField
from workbench_training.objective import Critic
from workbench_training.recipe import Recipe
from workbench_training.rewards import GUARDS, Guard, RewardTerm, check_targets
from workbench_training.rollouts.node_outputs import check_metrics, check_outputs
from workbench_training.rollouts.study_rollouts import StudyRolloutSource, TrainedPolicy
from workbench_training.settings import (
    LEARNING_CONSTANTS,
    Learning,
    Lora,
    PolicySettings,
    ServerSettings,
    enter_server,
    round_rank,
)
from workbench_training.state.disk_space import Written, describe_space

if TYPE_CHECKING:
    from workbench_training.model.policy import Policy
    from workbench_training.serving.policy_lm import Engine
    from workbench_training.serving.vllm_server import ManagedServer


NEEDS = (("torch", (2, 11)), ("transformers", (5, 0)), ("safetensors", (0, 5)))


class TrainingOptimizer(Optimizer):
    """Base of `grpo`, `sft` and `dpo`: the model, its rewards, and the updates of its weights."""

    rewards: list[RewardTerm] = Field(
        [RewardTerm.model_validate({})], min_length=1, description="reward terms, of which the weighted sum counts"
    )
    guards: list[Guard] = Field(
        [*GUARDS],
        description="answers that earn nothing; mask_truncated: those cut at max_tokens are not learned from instead; "
        "duplicates: the same answers as in an earlier run of the row, also where they are right",
    )
    learning: Learning = Field(Learning.model_validate({}), description="learning rate, updates, memory")
    lora: Lora | None = Field(None, description="train an adapter instead of all weights")
    address: str = Field("lm", description="the LM that is trained: lm, or that of a node: nodes.NAME.lm")
    device: str | None = Field(None, description="cpu, cuda, ...; by default a GPU if there is one")
    server: str | ServerSettings = Field(
        "", description="sample on vLLM: the address of a server that runs, or {} to start one"
    )
    race: bool = Field(
        True, description="stop the evaluation of candidates that are clearly worse than the best so far"
    )

    #: Settings that papers add to this optimizer.
    recipe_fields: ClassVar[Sequence[RecipeField]] = ()
    _counted: str = PrivateAttr("")  # what takes the memory of a GPU

    @property
    def recipes(self) -> dict[str, Recipe]:
        """The recipes that are given, by the names of their settings."""
        given = {taken.name: getattr(self, taken.name) for taken in self.recipe_fields}
        return {name: recipe for name, recipe in given.items() if recipe is not None}

    @model_validator(mode="after")
    def _enter(self) -> Self:
        enter_server(self.server)
        return self

    @model_validator(mode="after")
    def _recipes_fit(self) -> Self:
        for recipe in self.recipes.values():
            recipe.check(self)
        return self

    @model_validator(mode="after")
    def _fsdp_fits(self) -> Self:
        for policy in self.resolve_policies().values():
            if (policy.learning or self.learning).fsdp and (policy.lora or self.lora) is not None:
                raise ValueError(
                    "learning.fsdp shards trained weights, gradients and AdamW's state, of which an adapter has "
                    "little: remove either `lora` or `fsdp`"
                )
        return self

    @model_validator(mode="after")
    def _server_fits(self) -> Self:
        whole = [name for name, policy in self.resolve_policies().items() if (policy.lora or self.lora) is None]
        for policy in self.resolve_policies().values() if self.server_settings is not None else ():
            if lora := policy.lora or self.lora:
                round_rank(lora.rank)
        if self.server_settings is not None and whole and len(self.resolve_policies()) > 1:
            raise ValueError(
                f"a server has one set of weights, and {whole[0]} would replace those that the other policies draw "
                "with: give each policy `lora: {}`"
            )
        return self

    def reads_search(self) -> bool:
        return False

    @property
    def server_settings(self) -> ServerSettings | None:
        """Of the server that samples; None where this process does."""
        if isinstance(self.server, str):
            return ServerSettings.model_validate({"url": self.server}) if self.server else None
        return self.server

    async def ready(self, study: Study) -> None:
        roles = self.trained_policies(study)
        if len(roles) < len(self.resolve_policies()):
            return  # there is nothing to train, which `optimize` will log
        for place, parts in self.list_rewards():
            try:
                check_targets(parts, study.train)
                check_outputs(study.workflow, parts)
                check_metrics(study, parts)
            except SpecError as error:
                raise SpecError(error.message, hint=error.hint, path=(*place, *error.path)) from None
        for name, recipe in self.recipes.items():
            with errors_at(name):
                recipe.ready(self, study)
        check_extra(any(role.lora for role in roles))
        self._check_devices(roles)
        if (server := self.server_settings) is not None:
            self._check_server(server, roles)
        if spread := [role.learning for role in roles if role.learning.fsdp]:
            from workbench_training.scale.distributed import check_processes  # imports torch

            check_processes(spread[0])
        else:
            self._check_memory(roles)

    def _check_server(self, server: ServerSettings, roles: Sequence[TrainedPolicy]) -> None:
        """Raise PluginError where a server cannot be started, or weights cannot reach it as the settings say."""
        if not server.url:
            from workbench_training.serving.vllm_server import check_command, require_one_base  # with torch

            check_command(server)
            require_one_base([role.lm.weights for role in roles])
        whole = next((role for role in roles if role.lora is None), None)
        if server.transfer == "ipc" and whole is not None:
            from workbench_training.serving.weight_transfer import check_ipc, resolve_device

            check_ipc(resolve_device(self.device or whole.spec.extra.get("device")))

    def _check_devices(self, roles: Sequence[TrainedPolicy]) -> None:
        """Raise SpecError for a device or an attention that is not here. Most files name none and need no torch yet."""
        devices = {self.device or role.spec.extra.get("device") for role in roles}
        attentions = [role.learning.attention for role in roles]
        if devices - {None, "cpu"} or any(name.startswith("flash_") for name in attentions):
            from workbench_training.model.preflight import check_device  # imports torch

            for device in devices:
                check_device(device, attentions)

    def _check_memory(self, roles: Sequence[TrainedPolicy]) -> None:
        """Count what training takes on a GPU. Raises SpecError where that is more than it has."""
        if self.device == "cpu" or version("torch").endswith("+cpu"):
            return
        from workbench_training.model.preflight import check_memory, gpu_memory, make_plan  # imports torch
        from workbench_training.serving.policy_lm import CONCURRENCY

        if (found := gpu_memory(self.device)) is not None:
            memory, others = found
            drawn, kept = max(role.spec.concurrency or CONCURRENCY for role in roles), self.keeps_reference
            critic, server = self.resolved_critic, self.server_settings
            plan = make_plan(roles, server, reference=kept, drawn=drawn, critic=critic, others=others)
            self._counted = check_memory(plan, memory)

    async def optimize(self, study: Study) -> Workflow:
        number = study.rng.getrandbits(32)
        roles = {}
        for name, settings in self.resolve_policies().items():
            role = self._role(study, name, settings)
            if isinstance(role, str):
                study.log(f"nothing to train: {role}. Name hf:PATH or bundled/nano.")
                return study.best
            roles[name] = role
        if not study.train:
            study.log("nothing to train on: the train split is empty")
            return study.best
        check_extra(any(role.lora for role in roles.values()))
        await self._train(study, roles, number)
        return study.best

    def identify(self) -> dict[str, Any]:
        """The settings that identify a training.

        Excluded are settings that change neither rollouts nor checkpoints: distribution, memory, place of sampling,
        limits.
        """
        spread: dict[str, Any] = {"learning": {"fsdp", "checkpointing", "attention"}}
        without = {
            **spread,
            "policies": {"__all__": spread},
            "server": True,
            "schedule": {"keep"},
        }
        found = self.model_dump(mode="json", exclude=without)
        policies = found.get("policies", {}).values()
        for learning in (found["learning"], *(p["learning"] for p in policies if p["learning"] is not None)):
            learning |= LEARNING_CONSTANTS
        return found

    def resolve_policies(self) -> dict[str, PolicySettings]:
        """The settings of each policy by role; a single policy has the role ''."""
        return {"": PolicySettings(address=self.address, lora=self.lora, learning=None, rewards=None)}

    @property
    def keeps_reference(self) -> bool:
        """True if the weights at the start are kept beside those that are trained."""
        return False

    @property
    def resolved_critic(self) -> Critic | None:
        """The settings of the critic of each policy; None where none is trained."""
        return None

    def list_rewards(self) -> Iterator[tuple[tuple[str | int, ...], Sequence[RewardTerm]]]:
        """Yield (path within the settings, reward terms)."""
        yield ("rewards",), self.rewards
        for name, policy in self.resolve_policies().items():
            yield ("policies", name, "rewards"), policy.rewards or ()

    def trained_policies(self, study: Study) -> list[TrainedPolicy]:
        """The policies whose weights are local."""
        found = [self._role(study, name, settings) for name, settings in self.resolve_policies().items()]
        return [role for role in found if isinstance(role, TrainedPolicy)]

    def _calls(self, workflow: Workflow, val: Sequence[Example], runs: int, calls: int, candidates: int) -> int:
        """The maximum calls of training: `calls` for its runs, calls of judges, and `candidates` passes over val."""
        stages = [stage.rewards for stage in getattr(self, "stages", ()) if stage.rewards]
        judged = max(count_judge_calls(rewards) for rewards in (self.rewards, *stages))
        judged += sum(count_judge_calls(policy.rewards or ()) for policy in self.resolve_policies().values())
        return calls + runs * judged + candidates * len(val) * workflow.max_calls

    def _role(self, study: Study, name: str, settings: PolicySettings) -> TrainedPolicy | str:
        """The LM to train, or the reason why there is none."""
        spec = self._spec(study, settings.address)
        if spec is None:
            return f"there is no LM at '{settings.address}'"
        lm = study.open_lm(spec)
        if not isinstance(lm, HasWeights):
            return f"the weights of {spec.model} are not local"
        lora = settings.lora or self.lora
        return TrainedPolicy(
            name, settings.address, spec, lm, lora, settings.learning or self.learning, settings.rewards
        )

    def _spec(self, study: Study, address: str) -> LMSpec | None:
        shared = study.role_spec("task")
        if address == "lm":
            return shared
        if value := study.workflow.get(address, None):
            return lm_spec(value)
        node = study.workflow.enabled_nodes.get(address.removeprefix("nodes.").removesuffix(".lm"))
        return shared if node is not None and "lm" in type(node.config).model_fields else None

    async def _train(self, study: Study, roles: dict[str, TrainedPolicy], number: int) -> None:
        """Load the policies and their engines, run the schedule, and close both."""
        from workbench_engine.generation import free_device_memory
        from workbench_training.scale.drawing import unless_one_dies
        from workbench_training.serving.policy_lm import LIVE, FileEngine

        identities = [getattr(role.lm, "identity", role.spec.model) for role in roles.values()]
        name = digest([*identities, study.workflow.hash, study.name, self.identify(), number])
        weights = study.database.with_name(f"{study.database.stem}-weights")
        folder = weights / f"run-{study.run_id}-{re.sub(r'[^A-Za-z0-9]+', '-', study.name)}-{name}"
        source = StudyRolloutSource(study, roles, self.rewards, self.guards, race=self.race)
        server: ManagedServer | None = None
        if self._counted:
            study.log(self._counted)
        try:
            for role in roles.values():
                await study.release_lm(role.spec)  # the baseline's weights; its next call loads them again
            free_device_memory()  # a server that starts takes its share of what is free
            if (settings := self.server_settings) is not None and not settings.url:
                from workbench_training.serving.server_setup import start_server

                log = folder / "server.log"
                server = await start_server(settings, [*roles.values()], log, self.device, study.log)
            url = server.url if server is not None else settings.url if settings is not None else ""
            for index, role in enumerate(roles.values()):
                role.key = f"{name}-{role.name}" if role.name else name
                others = [other for other in roles.values() if other.key in LIVE]
                role.policy = await asyncio.to_thread(self._load, role, others, number + index)
                LIVE[role.key] = role.engine = self._engine(role, folder, url)
                study.log(f"{role.name or role.spec.model}: {role.policy.describe()}")
            written, policies = self.count_written(keeps_all=not source.remembers), [r.policy for r in roles.values()]
            engines = [role.engine for role in roles.values()]
            sent = any(isinstance(engine, FileEngine) and engine.sends_files for engine in engines)
            if told := describe_space(written, policies, folder, sent=sent):
                study.log(told)
            await unless_one_dies(self.train_policies(study, source, folder, weights, number), engines)
        except BudgetSpent as spent:
            study.log(f"training ends with its budget: {spent}")
        finally:
            for role in roles.values():
                if LIVE.pop(role.key, None) is not None:
                    await role.engine.aclose()
            if server is not None:
                await server.aclose()

    def _load(self, role: TrainedPolicy, others: list[TrainedPolicy], seed: int) -> Policy:
        """Load the role's policy; adapters on one base share its weights."""
        from workbench_training.scale.distributed import make_policy

        extra = role.spec.extra
        beside = next(
            (
                o.policy
                for o in others
                if o.lora
                and role.lora
                and o.lm.weights == role.lm.weights
                and o.spec.extra == role.spec.extra
                and o.learning.attention == role.learning.attention
            ),
            None,
        )
        return make_policy(
            role.learning,
            role.lm.weights,
            lora=role.lora,
            device=self.device or extra.get("device"),
            dtype=extra.get("dtype"),
            revision=extra.get("revision"),
            chat_template_kwargs=extra.get("chat_template_kwargs"),
            seed=seed,
            name=role.name or "default",
            beside=beside,
            everywhere=self.server_settings is None,
        )

    def count_written(self, *, keeps_all: bool) -> Written:
        """Count what the training holds on disk at its peak. keeps_all: no candidate is deleted."""
        raise NotImplementedError

    def _engine(self, role: TrainedPolicy, folder: Path, url: str) -> Engine:
        if (settings := self.server_settings) is not None:
            from workbench_training.serving.server_setup import make_engine

            return make_engine(settings, url, role, folder / "adapters", self.device)
        from workbench_training.learner import count_devices
        from workbench_training.scale.drawing import SpreadEngine
        from workbench_training.serving.policy_lm import CONCURRENCY, LocalEngine

        if count_devices() > 1:
            return SpreadEngine(role.policy, -1, role.spec.concurrency)
        generator, most = role.policy.generator, role.spec.concurrency or CONCURRENCY
        return LocalEngine(generator, -1, most)

    async def train_policies(
        self, study: Study, source: StudyRolloutSource, folder: Path, weights: Path, number: int
    ) -> None:
        """Train the roles of the source."""
        (role,) = source.roles.values()
        await self.train_policy(study, role.policy, role.engine, source, folder, weights, number)

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
        """Train the only policy. folder: for checkpoints; weights: for candidates; number: the seed."""
        raise NotImplementedError


def count_judge_calls(rewards: Sequence[RewardTerm]) -> int:
    """The number of judge calls to score one run."""
    return sum(part.kind == "judge" for part in rewards)


def check_extra(lora: bool = False) -> None:
    """Raise PluginError if a package of the extra `grpo` is missing or too old."""
    for package, least in (*NEEDS, *((("peft", (0, 17)),) if lora else ())):
        try:
            found = version(package)
        except PackageNotFoundError:
            found = "0.0"
        if tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < least:
            wanted = ".".join(map(str, least))
            raise PluginError(f"training needs {package}>={wanted}: {pip_install('training[grpo]')}")
