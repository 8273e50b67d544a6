"""What all optimizers that train a language model have in common."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, model_validator

from workbench import BudgetSpent, Optimizer, Study, Workflow
from workbench.distribution import pip_install
from workbench.errors import PluginError, SpecError
from workbench.hashing import digest
from workbench.lm import HasWeights
from workbench.spec import LMSpec, lm_spec
from workbench.task import Example
from workbench_training.rewards import Guards, Part, check_targets
from workbench_training.settings import Learning, Lora, Managed, PolicySettings
from workbench_training.study_rollouts import Role, StudySource

if TYPE_CHECKING:
    from workbench_training.policy import Policy
    from workbench_training.policy_lm import Engine
    from workbench_training.vllm_server import ManagedServer


NEEDS = (("torch", (2, 11)), ("transformers", (5, 0)), ("safetensors", (0, 5)))


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
    server: str | Managed = Field(
        "", description="vLLM draws; needs lora. The address of a server with adapters enabled, or {} to start one"
    )
    race: bool = Field(
        True, description="stop the evaluation of candidates that are clearly worse than the best so far"
    )

    @model_validator(mode="after")
    def _fsdp_fits(self) -> Self:
        for policy in self.made_policies().values():
            if (policy.learning or self.learning).fsdp and (policy.lora or self.lora) is not None:
                raise ValueError(
                    "learning.fsdp spreads what is trained, with its gradients and AdamW's memory, and an adapter has "
                    "little of these: leave out either `lora` or `fsdp`"
                )
        return self

    @model_validator(mode="after")
    def _server_fits(self) -> Self:
        if self.server != "" and any((policy.lora or self.lora) is None for policy in self.made_policies().values()):
            raise ValueError("a server gets an adapter, not all weights: give `lora: {}` as well")
        return self

    async def ready(self, study: Study) -> None:
        found = [self._role(study, name, settings) for name, settings in self.made_policies().items()]
        roles = [role for role in found if isinstance(role, Role)]
        if len(roles) < len(found):
            return  # there is nothing to train, as `optimize` will tell
        for place, parts in self.rewarded():
            try:
                check_targets(parts, study.train)
            except SpecError as error:
                raise SpecError(error.message, hint=error.hint, path=(*place, *error.path)) from None
        check_extra(any(role.lora for role in roles))
        if isinstance(self.server, Managed):
            from workbench_training.vllm_server import check_command, one_base  # with torch

            check_command(self.server)
            one_base([role.lm.weights for role in roles])
        if spread := [role.learning for role in roles if role.learning.fsdp]:
            from workbench_training.distributed import check_processes  # imports torch

            check_processes(spread[0])

    async def optimize(self, study: Study) -> Workflow:
        number = study.rng.getrandbits(32)
        roles = {}
        for name, settings in self.made_policies().items():
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

    def named_by(self) -> dict[str, Any]:
        """The settings that a training is named by: not how it is spread, where it draws or what ends it, which change
        neither rollouts nor checkpoints; nor settings that came later and are not used, so that runs from before find
        what is theirs."""
        spread: dict[str, Any] = {"learning": {"fsdp"}}
        later = {"guards": {"duplicates"}} if self.guards.duplicates == "keep" else {}
        without = {
            **spread,
            **later,
            "policies": {"__all__": spread},
            "server": True,
            "course": {"samples", "gpu_seconds"},
        }
        return self.model_dump(mode="json", exclude=without)

    def made_policies(self) -> dict[str, PolicySettings]:
        """What is trained, by role; a single policy has no name."""
        return {"": PolicySettings(address=self.address, lora=self.lora, learning=None, rewards=None)}

    def rewarded(self) -> Iterator[tuple[tuple[str | int, ...], Sequence[Part]]]:
        """What runs are scored with, with its place among the settings."""
        yield ("rewards",), self.rewards
        for name, policy in self.made_policies().items():
            yield ("policies", name, "rewards"), policy.rewards or ()

    def _calls(self, workflow: Workflow, val: Sequence[Example], runs: int, calls: int, candidates: int) -> int:
        """The most calls of training: so many runs that are scored, which take `calls`, and so many candidates."""
        stages = [stage.rewards for stage in getattr(self, "stages", ()) if stage.rewards]
        judged = max(judges(rewards) for rewards in (self.rewards, *stages))
        judged += sum(judges(policy.rewards or ()) for policy in self.made_policies().values())
        return calls + runs * judged + candidates * len(val) * workflow.max_calls

    def _role(self, study: Study, name: str, settings: PolicySettings) -> Role | str:
        """The LM to train, or why there is none."""
        spec = self._spec(study, settings.address)
        if spec is None:
            return f"there is no LM at '{settings.address}'"
        lm = study.open_lm(spec)
        if not isinstance(lm, HasWeights):
            return f"the weights of {spec.model} are not here"
        lora = settings.lora or self.lora
        return Role(name, settings.address, spec, lm, lora, settings.learning or self.learning, settings.rewards)

    def _spec(self, study: Study, address: str) -> LMSpec | None:
        shared = study.role_spec("task")
        if address == "lm":
            return shared
        if value := study.workflow.get(address, None):
            return lm_spec(value)
        node = study.workflow.enabled_nodes.get(address.removeprefix("nodes.").removesuffix(".lm"))
        return shared if node is not None and "lm" in type(node.config).model_fields else None

    async def _train(self, study: Study, roles: dict[str, Role], number: int) -> None:
        """Load the policies and the engines that draw with them, and run the course; both end with it."""
        from workbench_training.policy_lm import LIVE

        identities = [getattr(role.lm, "identity", role.spec.model) for role in roles.values()]
        name = digest([*identities, study.workflow.hash, study.name, self.named_by(), number])
        home = study.database
        weights = home.with_name(f"{home.stem}-weights")
        folder = weights / f"run-{study.run_id}-{re.sub(r'[^A-Za-z0-9]+', '-', study.name)}-{name}"
        source = StudySource(study, roles, self.rewards, self.guards, race=self.race)
        server: ManagedServer | None = None
        try:
            server = await self._started(study, roles, folder)
            for index, role in enumerate(roles.values()):
                role.key = f"{name}-{role.name}" if role.name else name
                others = [other for other in roles.values() if other.key in LIVE]
                role.policy = await asyncio.to_thread(self._load, role, others, number + index)
                LIVE[role.key] = role.engine = self._engine(role, folder, server)
            await self.course_for(study, source, folder, weights, number)
        except BudgetSpent as spent:
            study.log(f"training ends with its budget: {spent}")
        finally:
            for role in roles.values():
                if LIVE.pop(role.key, None) is not None:
                    await role.engine.aclose()
            if server is not None:
                await server.aclose()

    async def _started(self, study: Study, roles: dict[str, Role], folder: Path) -> ManagedServer | None:
        """The server of this training, ready to load adapters."""
        if not isinstance(self.server, Managed):
            return None
        from workbench_training.vllm_server import ManagedServer, one_base

        rank = max(role.lora.rank for role in roles.values() if role.lora)
        server = ManagedServer(
            one_base([role.lm.weights for role in roles.values()]),
            self.server,
            folder / "server.log",
            rank=rank,
            adapters=len(roles),
        )
        study.log(f"starting a server, which prints to {server.log}")
        try:
            await server.start()
        except BaseException:
            await server.aclose()
            raise
        return server

    def _load(self, role: Role, others: list[Role], seed: int) -> Policy:
        """The role's policy; adapters on one base share its weights."""
        from workbench_training.distributed import make_policy

        extra = {k: v for k, v in role.spec.extra.items() if k in ("device", "dtype", "revision")}
        beside = next(
            (
                o.policy
                for o in others
                if o.lora and role.lora and o.lm.weights == role.lm.weights and o.spec.extra == role.spec.extra
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
            seed=seed,
            name=role.name or "default",
            beside=beside,
        )

    def _engine(self, role: Role, folder: Path, server: ManagedServer | None) -> Engine:
        if url := server.url if server is not None else self.server:
            from workbench_training.vllm_engine import ServerEngine

            return ServerEngine(str(url), role.key, role.policy, folder / "adapters")
        from workbench_training.policy_lm import CONCURRENCY, LocalEngine

        return LocalEngine(role.policy.generator, -1, role.spec.concurrency or CONCURRENCY)

    async def course_for(self, study: Study, source: StudySource, folder: Path, weights: Path, number: int) -> None:
        """Train the roles of the source."""
        (role,) = source.roles.values()
        await self.course_of(study, role.policy, role.engine, source, folder, weights, number)

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
        """Train the only policy. folder: for checkpoints; weights: for candidates; number: the seed."""
        raise NotImplementedError


def judges(rewards: Sequence[Part]) -> int:
    """The calls of a judge that scoring one run takes."""
    return sum(part.kind == "judge" for part in rewards)


def check_extra(lora: bool = False) -> None:
    """Raises PluginError where a package of the extra `grpo` is missing."""
    for package, least in (*NEEDS, *((("peft", (0, 17)),) if lora else ())):
        try:
            found = version(package)
        except PackageNotFoundError:
            found = "0.0"
        if tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < least:
            wanted = ".".join(map(str, least))
            raise PluginError(f"training needs {package}>={wanted}: {pip_install('grpo')}")
