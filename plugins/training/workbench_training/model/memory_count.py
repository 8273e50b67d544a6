"""Counts the memory that training will take, before any weight is loaded.

Weights, gradients and AdamW's state follow from the shapes. What a pass keeps and needs at most is counted with fake
tensors: the model runs, forward and backward, without numbers, and every storage that comes and goes is added up. The
kernels are those of a CPU under autocast in bfloat16; what CUDA's own need besides (workspaces, fragments) is not seen.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM

from workbench_training.model.layer_checkpointing import LayerCheckpointing
from workbench_training.model.logprobs import score_states
from workbench_training.objective import Critic, critic_kinds
from workbench_training.settings import Lora

GIB = 1 << 30


@dataclass(frozen=True)
class PolicyShape:
    """A policy as training loads it on a GPU. config: of its model. reference: whether a second set of trained weights
    is kept. dtype: of the weights, where it is not that of a `Policy`. critic: of the policy; trunk: the config of the
    critic's own model, if it has one."""

    config: Any
    lora: Lora | None = None
    checkpointing: bool | Literal["auto"] = "auto"
    reference: bool = False
    dtype: str | None = None
    critic: Critic | None = None
    trunk: Any = None


@dataclass(frozen=True)
class MemoryCount:
    """Bytes on the device, by what holds them.

    base: weights that are not trained. weights, gradients, optimizer, reference: of those that are. activations: what a
    pass needs at most, but for the head. logits: what the head needs at most. whole: what a pass needs at most of both.
    cache: keys and values of drawing in this process.
    """

    base: int
    weights: int
    gradients: int
    optimizer: int
    reference: int
    activations: int
    logits: int
    whole: int
    cache: int

    @property
    def resting(self) -> int:
        """Bytes that are always allocated."""
        return self.base + self.weights + self.optimizer + self.reference

    @property
    def update(self) -> int:
        """The most in an update: a pass, or AdamW's step, which for a moment holds one more copy of the weights."""
        return self.gradients + max(self.whole, self.weights)

    @property
    def most(self) -> int:
        return self.resting + max(self.update, self.cache)

    def __add__(self, other: MemoryCount) -> MemoryCount:
        """Of two policies that take turns: what rests adds up."""
        both = {
            name: getattr(self, name) + getattr(other, name) for name in ("base", "weights", "optimizer", "reference")
        }
        turns = ("gradients", "activations", "logits", "whole", "cache")
        return MemoryCount(**both, **{name: max(getattr(self, name), getattr(other, name)) for name in turns})

    def describe(self) -> str:
        names = {
            "frozen weights": self.base,
            "trained weights": self.weights,
            "gradients": self.gradients,
            "AdamW": self.optimizer,
            "reference": self.reference,
            "activations": self.activations,
            "logits": self.logits,
            "keys and values of drawing": self.cache,
        }
        return ", ".join(f"{name} {size / GIB:.1f}" for name, size in names.items() if size)


def count_memory(
    shape: PolicyShape, *, rows: int, tokens: int, drawing: tuple[int, int] | None = None, apart: bool = True
) -> MemoryCount:
    """Count what training a policy takes.

    Args:
        shape: the policy.
        rows, tokens: of one forward pass; all tokens are learned, and rows are taken for padded.
        drawing: rows and tokens that are drawn at once in this process; None where a server draws.
        apart: count activations and logits each by themselves, too, which takes three times as long.
    """
    model, inner = _build(shape)
    with FakeTensorMode():
        _make_fake(model)
        trained = [p for p in model.parameters() if p.requires_grad]
        weights = sum(p.numel() * p.element_size() for p in trained)
        base = sum(p.numel() * p.element_size() for p in model.parameters()) - weights
        layers = LayerCheckpointing(inner)
        on = layers.resolve(shape.checkpointing)
        whole, activations, logits = _count_pass(inner, layers, on, trained, rows, tokens, apart)
        cache = 0 if drawing is None else _count_cache(shape.config, *drawing)
        if drawing is not None:
            full = [p for p in model.parameters() if p.dtype == torch.float32]
            cache += sum(2 * p.numel() for p in full)  # the copies in bfloat16 that autocast keeps while it draws
    return MemoryCount(
        base, weights, weights, 2 * weights, weights if shape.reference else 0, activations, logits, whole, cache
    )


def count_critic(shape: PolicyShape, trained: int, *, rows: int, tokens: int) -> MemoryCount:
    """Count what the critic of a policy takes: heads, and a model of its own, or else the policy's first weights. Not
    counted are the states of a step, and what a pass through the heads keeps.

    Args:
        shape: of a policy with a critic.
        trained: bytes of the policy's trained weights.
        rows, tokens: of one forward pass.
    """
    assert shape.critic is not None
    kind, config = critic_kinds()[shape.critic.of], shape.trunk or shape.config
    heads = _count_heads(shape.critic, config)
    if shape.trunk is None:
        return MemoryCount(0, heads, heads, 2 * heads, trained + (heads if kind.copied else 0), 0, 0, 0, 0)
    trunk = PolicyShape(shape.trunk, checkpointing=False, reference=kind.copied, dtype="float32")
    counted = count_memory(trunk, rows=rows, tokens=tokens)
    weights, passed = heads + counted.weights, counted.activations  # no logits are computed
    return MemoryCount(0, weights, weights, 2 * weights, weights if kind.copied else 0, passed, 0, passed, 0)


def _count_heads(critic: Critic, config: Any) -> int:
    """Count the bytes of a critic's heads. config: of the model whose states they read."""
    sizes = [config.get_text_config().hidden_size, *critic.widths, 1]
    return len(critic_kinds()[critic.of].heads) * sum(4 * (a + 1) * b for a, b in pairwise(sizes))


def count_critic_checkpoint(critic: Critic, config: Any) -> int:
    """Count the bytes that a critic has in a checkpoint: its weights, two moments of each, and a copy where it keeps
    one. config: of the policy's model."""
    trunk = 0
    if critic.model is not None:
        config = AutoConfig.from_pretrained(critic.model, trust_remote_code=False)
        model, _ = _build(PolicyShape(config, dtype="float32"))
        unused = model.get_output_embeddings().weight
        tied = unused is model.get_input_embeddings().weight
        trunk = sum(4 * p.numel() for p in model.parameters() if tied or p is not unused)
    return (3 + critic_kinds()[critic.of].copied) * (_count_heads(critic, config) + trunk)


def _build(shape: PolicyShape) -> tuple[Any, Any]:
    """(the model with its adapter, the model inside), without memory."""
    kind = getattr(torch, shape.dtype or ("float32" if shape.lora is None else "bfloat16"))
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(shape.config, dtype=kind).eval()
        if shape.lora is None:
            return model, model
        from peft import LoraConfig, get_peft_model

        config = LoraConfig(r=shape.lora.rank, target_modules="all-linear", task_type="CAUSAL_LM")
        return get_peft_model(model, config), model


def _make_fake(model: Any) -> None:
    """Replace tensors without memory by fake ones; those that are shared stay so."""
    made: dict[int, torch.Tensor] = {}
    for module in model.modules():
        for name, p in module._parameters.items():
            if p is not None:
                fake = torch.nn.Parameter(torch.empty(p.shape, dtype=p.dtype), p.requires_grad)
                module._parameters[name] = made.setdefault(id(p), fake)
        for name, t in module._buffers.items():
            if t is not None:
                module._buffers[name] = made.setdefault(id(t), torch.empty(t.shape, dtype=t.dtype))


def _count_pass(
    model: Any, layers: LayerCheckpointing, on: bool, trained: list[Any], rows: int, tokens: int, apart: bool
) -> tuple[int, int, int]:
    """(the most bytes of a pass forward and backward, without the head, the head alone), gradients not counted. Not
    apart: the last two are 0."""
    for p in trained:  # a gradient is added to the one that is there
        p.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None))

    def states() -> Any:
        ids = torch.zeros((rows, tokens), dtype=torch.long)
        padded = torch.ones((rows, 1, tokens, tokens), dtype=torch.bool)
        found = model.get_decoder()(input_ids=ids, attention_mask=padded, use_cache=False)[0]
        return found.flatten(0, 1)

    def scored(found: Any) -> Any:
        wanted = torch.zeros(len(found), dtype=torch.long)
        return score_states(model, found, wanted, 1.0)[0].sum()

    def most(work: Any) -> int:
        with _Bytes([*model.parameters(), *model.buffers(), alone]) as counted:
            with torch.autocast("cpu", torch.bfloat16, cache_enabled=not on), layers.enabled(on):
                end = work()
            end.backward()
            del end
        return counted.most

    alone = torch.zeros((rows * tokens, model.config.get_text_config().hidden_size), dtype=model.dtype)
    alone.requires_grad_()
    whole = most(lambda: scored(states()))
    return (whole, most(lambda: states().sum()), most(lambda: scored(alone))) if apart else (whole, 0, 0)


def _count_cache(config: Any, rows: int, tokens: int) -> int:
    """Keys and values in bfloat16."""
    text = config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return 2 * 2 * text.num_hidden_layers * heads * width * rows * tokens


class _Bytes(TorchDispatchMode):
    """Adds up the storages that are alive of all that is computed within it; those of `given` tensors do not count."""

    def __init__(self, given: list[torch.Tensor]):
        super().__init__()
        self.most, self._now = 0, 0
        self._given = [t.untyped_storage() for t in given]
        self._alive: dict[int, weakref.ref[Any]] = {id(storage): weakref.ref(storage) for storage in self._given}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for t in tree_leaves(found):
            if isinstance(t, torch.Tensor):
                self._see(t.untyped_storage())
        return found

    def _see(self, storage: Any) -> None:
        key, size = id(storage), storage.nbytes()
        known = self._alive.get(key)
        if known is not None and known() is storage:
            return

        def gone(_: Any) -> None:
            self._now -= size
            self._alive.pop(key, None)

        self._alive[key] = weakref.ref(storage, gone)
        self._now += size
        self.most = max(self.most, self._now)
