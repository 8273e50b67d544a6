"""A batch of rows in generation, and the cache of their keys and values, which grows by a column with each step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

#: What a batch is asked to complete; batches only keep them in the order of their tensors.
Row = TypeVar("Row")
#: (tokens, mask, positions, cache) -> the logits of the next token of every row.
Forward: TypeAlias = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, DynamicCache], torch.Tensor]


class GrowingCache(DynamicCache):
    """Keys and values in the type that attention computes in."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return super().update(as_computed(key_states), as_computed(value_states), layer_idx, *args, **kwargs)


@dataclass
class RunningBatch(Generic[Row]):
    """Rows with their cache and mask (rows, columns), the positions (rows, 1) of their last tokens, the logits (rows,
    tokens) of the next ones, and those that were chosen of them (rows, 1)."""

    forward: Forward
    rows: list[Row]
    cache: GrowingCache
    mask: torch.Tensor
    positions: torch.Tensor
    logits: torch.Tensor
    tokens: torch.Tensor

    @property
    def keeps_all_tokens(self) -> bool:
        """True if rows can join those in the cache: no layer has a sliding window or a recurrent state."""
        return all(type(layer) is DynamicLayer for layer in self.cache.layers)

    def select(self, index: torch.Tensor) -> None:
        self.cache.batch_select_indices(index)
        self.mask, self.positions, self.logits, self.tokens = (
            t[index] for t in (self.mask, self.positions, self.logits, self.tokens)
        )

    def keep(self, kept: Sequence[int]) -> None:
        """Drop all rows but these, which cost nothing more."""
        if len(kept) < len(self.rows):
            self.rows = [self.rows[i] for i in kept]
            if kept:
                self.select(torch.tensor(kept, device=self.mask.device))

    def step(self) -> None:
        """Pass the chosen tokens through the model."""
        self.positions = self.positions + 1
        self.mask = torch.cat([self.mask, self.mask.new_ones((len(self.rows), 1))], dim=1)
        self.logits = self.forward(self.tokens, self.mask, self.positions, self.cache)

    def join(self, other: RunningBatch[Row]) -> RunningBatch[Row]:
        """Both batches as one, only as wide as the longest of its rows."""
        width = int(max(self.positions.max(), other.positions.max())) + 1
        for layer, more in zip(self.cache.layers, other.cache.layers, strict=True):
            for name in ("keys", "values"):
                parts = [_resize(getattr(part, name), 2, width) for part in (layer, more)]
                setattr(layer, name, torch.cat(parts))
                setattr(more, name, None)
        mask = torch.cat([_resize(part.mask, 1, width) for part in (self, other)])
        positions, logits, tokens = (
            torch.cat([getattr(part, name) for part in (self, other)]) for name in ("positions", "logits", "tokens")
        )
        return RunningBatch(self.forward, [*self.rows, *other.rows], self.cache, mask, positions, logits, tokens)


def _resize(t: torch.Tensor, dimension: int, width: int) -> torch.Tensor:
    """The last columns of a tensor, or all with zeros before them. Tokens end in the last column."""
    missing = width - t.shape[dimension]
    if missing <= 0:
        return t.narrow(dimension, -missing, width)
    empty = t.new_zeros((*t.shape[:dimension], missing, *t.shape[dimension + 1 :]))
    return torch.cat([empty, t], dimension)


def as_computed(states: torch.Tensor) -> torch.Tensor:
    """Keys or values, under autocast in the type that attention would cast them to: half of the bytes of float32, the
    same numbers."""
    kind = states.device.type
    return states.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else states


def cache_argument(model: Any) -> str:
    """Return the name of a model's cache argument: `cache` since transformers 5.24, which warns of the name before."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
