"""Keys and values of prompts that rows share, for passes with gradients.

A checkpointed layer runs twice, so its cache must give the same when it is asked again: nothing here grows.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from workbench_engine.running_batch import as_computed


class PromptLayer(DynamicLayer):
    """The outputs of a layer for the prompts. Only its first pass is kept; a recomputation gives equal tensors, which
    are part of the graph of the first."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        found = as_computed(key_states), as_computed(value_states)
        if not self.is_initialized:
            self.keys, self.values = found
            self.is_initialized = True
        return found


class AfterPromptLayer(DynamicLayer):
    """Gives each row the keys and values of its prompt before those of its own tokens, which are not kept.

    which: (rows,), the prompt of each row. width: the longest of these prompts.
    """

    def __init__(self, prompts: PromptLayer, which: torch.Tensor, width: int):
        super().__init__()
        self.prompts, self.which, self.width = prompts, which, width

    def get_seq_length(self) -> int:
        return self.width

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = self.prompts.keys, self.prompts.values
        assert keys is not None and values is not None
        return (
            torch.cat([of_rows(keys[:, :, : self.width], self.which), as_computed(key_states)], dim=-2),
            torch.cat([of_rows(values[:, :, : self.width], self.which), as_computed(value_states)], dim=-2),
        )


def of_rows(prompts: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
    """For each row what its prompt has. What rows of one prompt say in the backward pass is added up in their order; of
    `prompts[which]` it would be by whichever thread of a CPU comes first, and no two trainings would be the same."""
    return prompts.index_select(0, which)


def is_plain(config: Any) -> bool:
    """True if every layer of a model with this config keeps all keys and values."""
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=config).layers)


def prompt_cache(config: Any) -> DynamicCache:
    """An empty cache for a pass over prompts."""
    cache = DynamicCache()
    cache.layers.extend(PromptLayer() for _ in DynamicCache(config=config).layers)
    return cache


def after_prompts(prompts: DynamicCache, which: torch.Tensor, width: int) -> DynamicCache:
    """A cache for a pass over what follows the prompts, of rows with the prompts `which` (rows,)."""
    cache = DynamicCache()
    for layer in prompts.layers:
        assert isinstance(layer, PromptLayer) and layer.is_initialized, "a layer did not use the cache"
        cache.layers.append(AfterPromptLayer(layer, which, width))
    return cache
