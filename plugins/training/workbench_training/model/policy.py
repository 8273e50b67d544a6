"""The policy: a causal language model in training, and its log-probabilities of rows."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file, save_file
from transformers.utils import logging as hf_logging

from workbench.errors import PluginError
from workbench_engine.generation import Generator, Refill, Row
from workbench_training.model.layer_checkpointing import LayerCheckpointing
from workbench_training.model.logprobs import compute_states, log_probabilities
from workbench_training.model.trained_weights import TrainedWeights, Weights
from workbench_training.rollouts.token_rows import Batch
from workbench_training.settings import ALPHA, Lora


class Policy(TrainedWeights):
    """A checkpoint and its trained weights: all, or those of an adapter. Not thread-safe, except that policies on a
    shared base wait for each other."""

    sharded = False
    number: int | None = None  # by which other processes know their copies, while a learner leads them

    def __init__(
        self,
        base: str,
        *,
        lora: Lora | None = None,
        device: str | None = None,
        dtype: str | None = None,
        revision: str | None = None,
        seed: int = 0,
        name: str = "default",
        beside: Policy | None = None,
        checkpointing: bool | Literal["auto"] = "auto",
        attention: str = "auto",
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ):
        """Load a folder or hub id. Full training keeps float32 weights; on a GPU products are in bfloat16. name: of
        the adapter; beside: a policy on the same base, in whose model the adapter is put. checkpointing, attention: as
        the settings of `learning`. chat_template_kwargs: with which its chat template is rendered."""
        self.base, self.lora, self.name = base, lora, name
        how = {"device": device, "dtype": dtype, "revision": revision, "seed": seed, "name": name}
        self.made_with = {"base": base, "lora": lora, **how, "chat_template_kwargs": chat_template_kwargs}
        if beside is not None:
            self.model, self.tokenizer, self._lock = beside.model, beside.tokenizer, beside._lock
            self._layers = beside._layers
        else:
            on_gpu = device != "cpu" and (device is not None or torch.cuda.is_available())
            kind = dtype or ("bfloat16" if lora and on_gpu else "float32")
            loaded = _load(base, attention, device=device, dtype=kind, revision=revision)
            self.model: Any = loaded.model
            _check_head(self.model.config)
            self.tokenizer, self._lock = loaded.tokenizer, threading.RLock()
            self._layers = LayerCheckpointing(self.model)
        self.checkpointing = self._layers.resolve(checkpointing)
        if lora is not None:
            from peft import LoraConfig, get_peft_model

            config = LoraConfig(r=lora.rank, lora_alpha=ALPHA, target_modules="all-linear", task_type="CAUSAL_LM")  # type: ignore[arg-type]
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                if beside is None:
                    self.model = get_peft_model(self.model, config, adapter_name=name)
                else:
                    self.model.add_adapter(name, config)
        # Dropout would make the trained policy another one than the one that drew the tokens.
        self.model.eval()
        self.generator = _OwnGenerator(self)
        with self.active():
            self.trained = {n: p for n, p in self.model.named_parameters() if p.requires_grad}

    @contextmanager
    def active(self) -> Iterator[None]:
        """With its own adapter in place, where several share a base."""
        with self._lock:
            if self.lora is not None and self.model.active_adapter != self.name:
                self.model.set_adapter(self.name)
            yield

    @property
    def inner(self) -> Any:
        return self.model.get_base_model() if self.lora is not None else self.model

    @property
    def device(self) -> torch.device:
        return self.generator.device

    def log_probabilities(self, batch: Batch, temperature: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
        """Of the tokens after the prompts, and the entropies there: (rows, longest)."""
        with self.passing():
            return log_probabilities(self.inner, batch, temperature=temperature)

    @torch.no_grad()
    def states(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(states before the tokens of the mask, their rows, their places): (states, size), (states,), (states,)."""
        with self.passing():
            return compute_states(self.inner, batch)

    @torch.no_grad()
    def sampling_log_probabilities(self, batch: Batch) -> torch.Tensor:
        """Of the tokens after the prompts, with the weights that samplers receive: (rows, longest)."""
        return self.log_probabilities(batch)[0]

    @contextmanager
    def passing(self) -> Iterator[None]:
        """For a pass over rows: with its own adapter, in its own precision, with or without checkpointing."""
        with self.active(), self.mixed(cached=not self.checkpointing), self._layers.enabled(self.checkpointing):
            yield

    def mixed(self, cached: bool = True) -> torch.autocast:
        """On a GPU products are in bfloat16, in drawing as in training: else the two would give other probabilities.
        cached: keep the bfloat16 copies of weights until the end."""
        on = self.device.type == "cuda"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=on, cache_enabled=cached)

    @property
    def millions(self) -> str:
        """The number of trained weights, in words."""
        return f"{sum(p.numel() for p in self.trained.values()) / 1e6:.1f} million"

    def describe(self) -> str:
        """Describe the trained weights and how they are computed."""
        kept = "computed again in the backward pass" if self.checkpointing else "kept for the backward pass"
        attention = getattr(self.inner.config, "_attn_implementation", "its own")
        return f"{self.millions} trained weights on {self.device}, attention {attention}, activations {kept}"

    def host_copy(self) -> Weights:
        """A copy of the complete trained weights, in the host's memory."""
        return {name: p.detach().to("cpu", copy=True) for name, p in self.trained.items()}

    def changed(self) -> None:
        """The weights were changed: whatever was made of them is made again."""

    # Weights as they are kept here, and as checkpoints and messages to other processes hold them: the same, but for a
    # policy of which each process holds a share.

    def whole(self, weights: Weights) -> Weights:
        return weights

    def part(self, weights: Mapping[str, torch.Tensor]) -> Weights:
        return {name: t.to(self.device) if t.dim() else t for name, t in weights.items()}

    def outline(self, weights: Mapping[str, torch.Tensor]) -> Weights:
        """Shapes and types from which other processes make their part of these weights."""
        return {name: t.cpu() for name, t in weights.items()}

    def digest(self) -> str:
        """A digest of the current trained weights."""
        return digest_of(self.trained)

    def save(self, parent: Path) -> Path:
        """Write the model as a checkpoint of its own (an adapter merged in, and beside it in `adapter`) under a name
        made from its weights; whole or not at all. Returns the folder."""

        def write(folder: Path) -> None:
            merged = None
            if self.lora is not None:
                self.save_adapter(folder / "adapter")
                merged = merge_adapter(self.inner, self.name)
            self.inner.save_pretrained(folder, state_dict=merged)

        return write_model(parent / self.digest(), self.tokenizer, write)

    def save_adapter(self, folder: Path) -> Path:
        """Write only the adapter; returns its folder."""
        self.model.save_pretrained(str(folder), selected_adapters=[self.name])
        return folder if self.name == "default" else folder / self.name


class _OwnGenerator(Generator):
    """Draws with one policy's weights, also where several share a base."""

    def __init__(self, policy: Policy):
        super().__init__(policy.inner, policy.tokenizer, policy.made_with["chat_template_kwargs"])
        self.policy = policy

    def generate(self, rows: list[Row], refill: Refill | None = None) -> None:
        with self.policy.active(), self.policy.mixed():
            super().generate(rows, refill)


def _load(base: str, attention: str, **how: Any) -> Generator:
    """Raises PluginError where an attention is not here, or the model does not have it."""
    if attention == "auto":
        return Generator.load(base, **how)
    try:
        return Generator.load(base, attention=attention, **how)
    except (ImportError, ValueError) as error:
        raise PluginError(f"`learning: {{attention: {attention}}}` cannot be had: {error}") from error


def _check_head(config: Any) -> None:
    """Refuse models that cap or scale the output matrix's logits, which are trained, before drawing."""
    changed = [
        n
        for n in ("final_logit_softcapping", "logit_scale", "logits_scaling")
        if getattr(config, n, None) not in (None, 1, 1.0)
    ]
    if changed:
        raise PluginError(
            f"models of the type {config.model_type} cannot be trained here: {changed[0]} changes their logits"
        )


@torch.no_grad()
def merge_adapter(base: Any, name: str) -> Weights:
    """The weights of a base model with one of its adapters merged in, in the host's memory, by the base's own names.
    The base stays as it is, and its device holds one more tensor at a time."""
    layers = {place: module for place, module in base.named_modules() if hasattr(module, "get_delta_weight")}
    kept, found = base.state_dict().keys(), Weights()
    for place, t in (*base.named_parameters(), *((n, b) for n, b in base.named_buffers() if n in kept)):
        owner, inner, rest = place.partition(".base_layer.")
        if inner and owner in layers:
            place = f"{owner}.{rest}"
            if rest == "weight":
                t = (t + layers[owner].get_delta_weight(name)).to(t.dtype)
        elif any(part.startswith("lora_") for part in place.split(".")):
            continue
        found[place] = t.detach().cpu()
    return found


def write_model(folder: Path, tokenizer: Any, write: Callable[[Path], None]) -> Path:
    """Write a model with its tokenizer, unless it exists; completely or not at all. Returns the folder."""
    if folder.exists():
        return folder
    building = _fresh(folder.with_name(f".{folder.name}"))
    hf_logging.disable_progress_bar()
    write(building)
    # transformers keeps how it was loaded: with HF_HUB_OFFLINE the same weights would get files of another digest.
    tokenizer.init_kwargs.pop("local_files_only", None)
    tokenizer.save_pretrained(building)
    building.rename(folder)
    return folder


def digest_of(weights: Mapping[str, torch.Tensor]) -> str:
    found = hashlib.sha256()
    for name in sorted(weights):
        found.update(name.encode())
        found.update(weights[name].detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def is_digest(name: object) -> bool:
    """True if a name from a record is one that `digest_of` gives. Any other may lead out of the folder of weights."""
    return isinstance(name, str) and re.fullmatch("[0-9a-f]{16}", name) is not None


# Checkpoints of training


def write_checkpoint(parent: Path, step: int, tensors: Mapping[str, Weights], state: Mapping[str, Any]) -> None:
    """Write a checkpoint whole or not at all, and drop all but the last two. Only safetensors and JSON."""
    folder = parent / f"step-{step:06d}"
    if folder.exists():
        return
    building = _fresh(parent / f".{folder.name}")
    for name, weights in tensors.items():
        save_file({k: v.detach().cpu().contiguous() for k, v in weights.items()}, building / f"{name}.safetensors")
    (building / "state.json").write_text(json.dumps(state), encoding="utf-8")
    for path in building.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    building.rename(folder)
    for old in sorted(parent.glob("step-*"))[:-2]:
        shutil.rmtree(old)


def last_checkpoint(parent: Path) -> tuple[int, dict[str, Weights], dict[str, Any]] | None:
    """(step, tensors by name, state) of the newest one; None if there is none."""
    folders = sorted(parent.glob("step-*"))
    if not folders:
        return None
    folder = folders[-1]
    tensors = {path.stem: load_file(path) for path in folder.glob("*.safetensors")}
    state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    return int(folder.name.removeprefix("step-")), tensors, state


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)  # leftovers of a kill
    folder.mkdir(parents=True)
    return folder
