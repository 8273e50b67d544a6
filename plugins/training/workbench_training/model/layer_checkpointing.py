"""Gradient checkpointing (Chen et al., arXiv 1604.06174, section 4): of a decoder layer only the input is kept, and its
activations are computed again in the backward pass.

transformers' own switch (`activation_checkpointing_enable`, before 5.23 `gradient_checkpointing_enable`) does not fit
here. It acts only in training mode, in which dropout is on: the trained policy would be another one than the one that
sampled. And it takes the cache away from a layer, which holds the prompts that rows share. So the layers that
transformers marks as such are wrapped here, with torch's own `checkpoint`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

from torch import is_grad_enabled
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from workbench.errors import PluginError

#: Weights of a model above which layers are recomputed by default: below, activations are rarely what fills a device.
AUTO_ABOVE = 300_000_000


class LayerCheckpointing:
    """The decoder layers of a model. Within `enabled`, a pass with gradients keeps only their inputs."""

    def __init__(self, model: Any):
        self.kind = model.config.model_type
        self.weights = sum(p.numel() for p in model.parameters())
        self.layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
        self._on = False
        for layer in self.layers:
            layer.forward = partial(self._forward, layer.forward)

    def resolve(self, setting: bool | Literal["auto"]) -> bool:
        """True if a policy with this setting recomputes layers. Raises PluginError if it asks for what the model does
        not offer."""
        if setting is True and not self.layers:
            raise PluginError(
                f"models of the type {self.kind} mark no layers for checkpointing: remove `learning: {{checkpointing: "
                "true}`"
            )
        return bool(self.layers) and (self.weights > AUTO_ABOVE if setting == "auto" else setting)

    @contextmanager
    def enabled(self, on: bool) -> Iterator[None]:
        before, self._on = self._on, on
        try:
            yield
        finally:
            self._on = before

    def _forward(self, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not (self._on and is_grad_enabled()):
            return forward(*args, **kwargs)
        # Dropout is off, so a layer draws no random numbers whose state would have to be kept.
        return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)
