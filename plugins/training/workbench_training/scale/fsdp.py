"""A policy whose weights are sharded over all processes (FSDP2, torch's `fully_shard`).

Each process keeps its share of every parameter, of its gradient and of AdamW's state. For a pass, the weights of one
decoder layer at a time are gathered and freed again; gradients are reduced and scattered as they arise. Since all
processes gather together, all must make the same passes in the same order: an extra pass in one of them would wait
forever.

Drawing needs whole weights. Each process that draws keeps a copy of them: all, or the first alone where a server draws
and only receives them. A gather gives each process the whole of a tensor anyway.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from workbench_engine.generation import Generator
from workbench_training.model.logprobs import log_probabilities
from workbench_training.model.policy import Policy, Weights, digest_of, write_model
from workbench_training.rollouts.token_rows import Batch


class ShardedPolicy(Policy):
    """All weights are trained, and this process holds a share of them. `trained`, what `snapshot` gives and what `part`
    makes of whole weights are shares, DTensors. What is marked as joint must be called in all processes."""

    sharded = True

    def __init__(
        self,
        base: str,
        *,
        device: str | None = None,
        dtype: str | None = None,
        everywhere: bool = True,
        **how: Any,
    ):
        """everywhere: each process keeps a copy to draw with, and not only the first."""
        # Whole for a moment, in the memory of the host. `fully_shard` moves shares alone to a GPU for good.
        super().__init__(base, device="cpu", dtype=dtype or "float32", **how)
        self.made_with |= {"device": device, "dtype": dtype, "everywhere": everywhere}
        self.place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        on_gpu, self.leads = self.place.type == "cuda", dist.get_rank() == 0
        self.copied = everywhere or self.leads
        if self.copied:
            kind = dtype or ("bfloat16" if on_gpu else None)
            own = {name: how.get(name) for name in ("revision", "chat_template_kwargs")}
            self.generator = Generator.load(base, device=device, dtype=kind, **own)
        group = dist.group.WORLD
        assert group is not None
        self.mesh = DeviceMesh.from_group(group, self.place.type)
        # In place of autocast, which would keep a bfloat16 copy of all layers for the backward pass.
        mixed = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
        self._pass = _Pass(self.model)
        names = self.model._no_split_modules or ()  # decoder layers; a type that names none is gathered whole
        layers = [module for module in self.model.modules() if type(module).__name__ in names]
        for module in [*reversed(layers), self._pass]:
            made: Any = fully_shard(
                module,
                mesh=self.mesh,
                reshard_after_forward=True,
                mp_policy=mixed if on_gpu else MixedPrecisionPolicy(),
            )
            # Losses are divided by the counts of the whole step: gradients are summed, where the default is their mean.
            made.set_gradient_divide_factor(1.0)
            made.set_force_sum_reduction_for_comms(True)  # gloo cannot multiply while it sums
        self.trained = {n: p for n, p in self.model.named_parameters() if p.requires_grad}

    @property
    def device(self) -> torch.device:
        return self.place

    def log_probabilities(self, batch: Batch, temperature: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
        """Joint. With gradients, passes must be as many in all processes, whatever their rows are."""
        with self._layers.enabled(self.checkpointing):
            return self._pass(batch, temperature, single=torch.is_grad_enabled())

    @torch.no_grad()
    def sampling_log_probabilities(self, batch: Batch) -> torch.Tensor:
        """Of the copy that draws, and that servers receive: in the first process alone."""
        return log_probabilities(self.generator.model, batch)[0]

    def restore(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Joint: take whole weights, which the first process gives."""
        shares = self.part(weights)
        with torch.no_grad():
            for name, p in self.trained.items():
                p.copy_(shares[name])
        self.changed()

    @contextmanager
    def having(self, weights: Mapping[str, torch.Tensor]) -> Iterator[None]:
        """With other shares for a while: their contents change places, since FSDP holds on to the storage."""
        self._swap(weights)
        try:
            yield
        finally:
            self._swap(weights)

    @torch.no_grad()
    def _swap(self, weights: Mapping[str, torch.Tensor]) -> None:
        for name, p in self.trained.items():
            kept = p.clone()
            p.copy_(weights[name])
            weights[name].copy_(kept)

    @torch.no_grad()
    def changed(self) -> None:
        """Joint: bring the copies that draw up to the weights, one tensor at a time."""
        copies = dict(self.generator.model.named_parameters()) if self.copied else {}
        for name, p in self.trained.items():
            gather_all = _gathered(p)
            if self.copied:
                copies[name].copy_(gather_all)

    def whole(self, weights: Weights) -> Weights:
        """Joint: whole tensors in the host's memory of the first process; nothing in the others."""
        found: Weights = {}
        for name, t in weights.items():
            gather_all = _gathered(t)
            if self.leads:
                found[name] = gather_all.cpu()
        return found

    def host_copy(self) -> Weights:
        """Joint; complete in the first process, nothing in the others."""
        return self.whole(self.trained)

    def outline(self, weights: Mapping[str, torch.Tensor]) -> Weights:
        """Shapes alone: the tensors themselves are spread by `part`. Numbers (AdamW's count of steps) are sent."""
        return {name: t if t.dim() == 0 else t.to("meta") for name, t in weights.items()}

    def part(self, weights: Mapping[str, torch.Tensor]) -> Weights:
        """Joint: the shares of whole tensors of the first process; the others give their outline."""
        return {name: t if t.dim() == 0 else self._share(t) for name, t in weights.items()}

    def _share(self, t: torch.Tensor) -> torch.Tensor:
        whole = torch.empty_like(t, device=self.place) if t.is_meta else t.to(self.place)
        return distribute_tensor(whole, self.mesh, [Shard(0)])

    def digest(self) -> str:
        """Joint; a name only in the first process."""
        return digest_of(self.whole(self.trained))

    def save(self, parent: Path) -> Path:
        """Joint: the first process writes."""
        weights = self.whole(self.trained)
        if not self.leads:
            return parent
        model = self.generator.model
        kept = model.state_dict().keys()
        buffers = {name: b for name, b in model.named_buffers() if name in kept}

        def write(folder: Path) -> None:
            model.save_pretrained(folder, state_dict={**buffers, **weights})
            # The model that is asked to save is the copy that draws, and its type is not that of the weights.
            file = folder / "config.json"
            config = json.loads(file.read_text(encoding="utf-8"))
            config["dtype"] = str(next(iter(weights.values())).dtype).removeprefix("torch.")
            file.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")

        return write_model(parent / digest_of(weights), self.tokenizer, write)


class _Pass(torch.nn.Module):
    """The module of the whole forward pass for FSDP: it gathers embeddings and head at its call, layers at theirs."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, batch: Batch, temperature: float, single: bool) -> tuple[torch.Tensor, torch.Tensor]:
        return log_probabilities(self.model, batch, temperature=temperature, single=single)


def _gathered(t: torch.Tensor) -> torch.Tensor:
    t = t.detach()
    return t.full_tensor() if isinstance(t, DTensor) else t
