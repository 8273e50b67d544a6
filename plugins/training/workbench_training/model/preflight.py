"""Refuses a training that cannot fit in the memory of its GPU, before the first call, and says what would fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from transformers import AutoConfig

from workbench.errors import SpecError
from workbench_engine.checkpoint import check_checkpoint
from workbench_training.model.memory_count import GIB, MemoryCount, PolicyShape, count_critic, count_memory
from workbench_training.objective import Critic
from workbench_training.rollouts.study_rollouts import TrainedPolicy
from workbench_training.settings import Lora, ServerSettings

#: The CUDA context of this process, and what fragments: not counted, so kept free.
RESERVE = 2 * GIB
#: What a server that sleeps still has: its CUDA context and graphs, which it does not free. Not measured.
SLEEPING = 2 * GIB
#: Passes of fewer tokens are possible, but so slow that a training with them is refused.
SMALLEST = 1024
#: What drawing in this process is counted for: longer rows are drawn in smaller batches.
DRAWN_TOKENS = 2048


@dataclass(frozen=True)
class Plan:
    """The users of a GPU: policies in training, one pass of `tokens` tokens at a time, and a server's share.

    server: its share of all memory of the GPU. others: bytes that other processes hold. sleeps: the server gives its
    share back during updates. drawn: rows that this process draws at once; 0 where a
    server draws. free_tokens: whether the size of a pass may be chosen.
    """

    policies: tuple[PolicyShape, ...]
    tokens: int = 16384
    free_tokens: bool = True
    server: float = 0.0
    sleeps: bool = False
    drawn: int = 0
    others: int = 0

    @cached_property
    def counted(self) -> MemoryCount:
        return self.count(apart=False)

    @property
    def most(self) -> int:
        """The most bytes that the policies take together."""
        return self.counted.most

    def count(self, apart: bool = True) -> MemoryCount:
        """Bytes of all policies together. Adapters on one model share its other weights."""
        found: list[MemoryCount] = []
        for i, shape in enumerate(self.policies):
            row = min(self.tokens, getattr(shape.config.get_text_config(), "max_position_embeddings", self.tokens))
            drawing = (self.drawn, min(DRAWN_TOKENS, row)) if self.drawn else None
            counted = count_memory(shape, rows=max(1, self.tokens // row), tokens=row, drawing=drawing, apart=apart)
            shared = shape.lora is not None and any(
                other.lora is not None and other.config == shape.config for other in self.policies[:i]
            )
            found.append(replace(counted, base=0) if shared else counted)
            if shape.critic is not None:
                found.append(count_critic(shape, counted.weights, rows=max(1, self.tokens // row), tokens=row))
        return sum(found[1:], found[0])

    @property
    def resting(self) -> int:
        """The bytes that stay while a server draws."""
        return self.counted.resting

    @cached_property
    def sizes(self) -> list[Plan]:
        """This plan, and with passes of a half of its tokens, a quarter, ..., down to `SMALLEST`."""
        found: list[Plan] = [self]
        while found[-1].tokens // 2 >= SMALLEST:
            found.append(replace(self, tokens=found[-1].tokens // 2))
        return found

    def room(self, memory: int) -> int:
        """Bytes left for an update on a device with so many bytes."""
        return memory - SLEEPING - RESERVE if self.sleeps else self.drawing_room(memory)

    def drawing_room(self, memory: int) -> int:
        """Bytes left for training while the server draws."""
        return memory - self.server_bytes(memory) - RESERVE

    def server_bytes(self, memory: int) -> int:
        """Bytes that vLLM takes: its share of the whole GPU, whatever others hold of it (v1/worker/utils.py)."""
        return math.ceil(self.server * (memory + self.others))

    def starts(self, memory: int) -> bool:
        """True if vLLM starts: it ends where less than its share is free."""
        return self.server_bytes(memory) <= memory

    def fits(self, memory: int) -> bool:
        return self.starts(memory) and self.most <= self.room(memory) and self.resting <= self.drawing_room(memory)

    def fitting_tokens(self, memory: int) -> int:
        """The tokens of a pass that fit: those of the plan, or a half, a quarter, ...; 0 where `SMALLEST` do not."""
        if not self.sizes[-1].fits(memory):
            return 0
        return next(plan.tokens for plan in self.sizes if plan.fits(memory))


def check_memory(plan: Plan, memory: int) -> str:
    """Describe what takes the memory of the device (bytes). Raises SpecError where it does not suffice, with the
    settings that make it suffice."""
    if not plan.starts(memory):
        raise SpecError(
            f"vLLM would not start: it takes {plan.server:g} of the {(memory + plan.others) / GIB:.1f} GiB of the GPU, "
            f"which are {plan.server_bytes(memory) / GIB:.1f}, and {memory / GIB:.1f} are free",
            hint=_share_hint(plan, memory),
        )
    tokens = plan.fitting_tokens(memory)
    if tokens and (plan.free_tokens or tokens == plan.tokens):
        return _described(next(size for size in plan.sizes if size.tokens == tokens), memory)
    found = _described(plan, memory)
    raise SpecError(f"training does not fit in the memory of the GPU: {found}", hint=_hint(plan, memory))


def _described(plan: Plan, memory: int) -> str:
    found = plan.count()
    server = f", the server {plan.server_bytes(memory) / GIB:.1f}" if plan.server else ""
    server += f", other processes {plan.others / GIB:.1f}" if plan.others else ""
    if plan.sleeps:
        server += f" while it draws, when {plan.resting / GIB:.1f} stay of {plan.drawing_room(memory) / GIB:.1f}"
    return (
        f"{found.most / GIB:.1f} GiB are counted for passes of {plan.tokens} tokens, and "
        f"{plan.room(memory) / GIB:.1f} of {memory / GIB:.1f} are there for them ({found.describe()}{server})"
    )


def _share_hint(plan: Plan, memory: int) -> str:
    """The largest share with which the server starts and training fits, in steps of 0.05."""
    shares = [round(0.05 * n, 2) for n in range(19, 0, -1) if 0.05 * n < plan.server]
    fitting = (share for share in shares if replace(plan, server=share, free_tokens=True).fitting_tokens(memory))
    if (share := next(fitting, None)) is not None:
        return f"Write `server: {{memory: {share:g}}}`, or free the GPU."
    return "Free the GPU, or name a server on another one with `server: {url: ...}`."


def _hint(plan: Plan, memory: int) -> str:
    """The first change of settings that makes it fit; each is tried with those before it."""
    if not plan.free_tokens and (tokens := plan.fitting_tokens(memory)):
        return f"Write `learning: {{micro_tokens: {tokens}}}`, or leave micro_tokens out."
    plan, written = replace(plan, free_tokens=True), list[str]()
    adapter = Lora.model_validate({})
    for text, change in (
        ("learning: {checkpointing: true}", lambda p: replace(p, policies=_each(p, checkpointing=True))),
        ("server: {sleep: true}", lambda p: replace(p, sleeps=p.server > 0)),
        ("lora: {}", lambda p: replace(p, policies=_each(p, lora=adapter))),
        ("server: {memory: 0.3}", lambda p: replace(p, server=min(p.server, 0.3))),
    ):
        changed = change(plan)
        if _excess(changed, memory) >= _excess(plan, memory):
            continue  # it is so already, or does not help
        plan = changed
        written.append(f"`{text}`")
        if plan.fitting_tokens(memory):
            return f"Write {' and '.join(written)}."
    return "No setting makes it fit: train a smaller model, or in several processes with `learning: {fsdp: true}`."


def _excess(plan: Plan, memory: int) -> int:
    """The bytes that are missing in the tighter phase; negative where it fits."""
    return max(plan.most - plan.room(memory), plan.resting - plan.drawing_room(memory))


def _each(plan: Plan, **changes: Any) -> tuple[PolicyShape, ...]:
    """The policies with these changes; an adapter stays as it is."""
    return tuple(
        replace(shape, **{k: v for k, v in changes.items() if k != "lora" or shape.lora is None})
        for shape in plan.policies
    )


def make_plan(
    roles: Sequence[TrainedPolicy],
    server: ServerSettings | None,
    *,
    reference: bool,
    drawn: int,
    critic: Critic | None = None,
    others: int = 0,
) -> Plan:
    """The plan of a training. drawn: rows that a policy draws at once in this process; critic: of each policy; others:
    bytes of the GPU that other processes hold."""
    shapes, trunk = [], None
    if critic is not None and critic.model is not None:
        check_checkpoint(critic.model)
        trunk = AutoConfig.from_pretrained(critic.model, trust_remote_code=False)
    for role in roles:
        revision = role.spec.extra.get("revision")
        check_checkpoint(role.lm.weights, revision)
        config = AutoConfig.from_pretrained(role.lm.weights, revision=revision or "main", trust_remote_code=False)
        dtype = role.spec.extra.get("dtype")
        shapes.append(PolicyShape(config, role.lora, role.learning.checkpointing, reference, dtype, critic, trunk))
    beside = server if server is not None and not server.url else None  # one that runs already has GPUs of its own
    return Plan(
        tuple(shapes),
        tokens=max(role.learning.micro_tokens for role in roles),
        free_tokens=all("micro_tokens" not in role.learning.model_fields_set for role in roles),
        server=beside.memory if beside is not None else 0.0,
        sleeps=beside is not None and beside.sleep,
        drawn=0 if server is not None else drawn,
        others=others,
    )


def check_device(device: str | None, attentions: Sequence[str]) -> None:
    """Raise SpecError for a device that is not here, or for attention kernels that it does not have: loading the model
    would tell it, but only after the baseline was paid for."""
    try:
        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError:
        raise SpecError(
            f"there is no device '{device}'", hint="Write cpu, cuda, or cuda:1.", path=("device",)
        ) from None
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        found = f"{torch.cuda.device_count()} GPUs" if torch.cuda.device_count() else "no GPU"
        raise SpecError(f"there is no {place}: torch finds {found} here", path=("device",))
    flash = [name for name in attentions if name.startswith("flash_")]
    if flash and place.type == "cpu":
        raise SpecError(
            f"{flash[0]} needs a GPU, and training would be on the CPU",
            hint="Write `attention: auto`.",
            path=("learning", "attention"),
        )


def gpu_memory(device: str | None) -> tuple[int, int] | None:
    """(bytes that a training with this `device` may use of its GPU, bytes that other processes hold of it); None
    without a GPU."""
    if not torch.cuda.is_available() or torch.device(device or "cuda").type != "cuda":
        return None
    place = torch.device(device or "cuda")
    free, total = torch.cuda.mem_get_info(place)
    free += torch.cuda.memory_reserved(place)
    return free, total - free
