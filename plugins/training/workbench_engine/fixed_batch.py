"""A batch whose tensors keep their places, so that a step of decoding is captured as a CUDA graph and replayed.

A step of a small model is some thousand kernels, and to launch them from Python takes several times as long as to run
them. A graph launches all at once, but always on the same memory: so keys and values have places for a number of rows
and columns, a row that leaves is replaced by the last one, and rows that join take free places. Where these run out,
the batch is made again with others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeAlias

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from workbench_engine.running_batch import GrowingCache, Row, RunningBatch

#: Devices on which shapes are fixed. On a CPU a launch costs nothing that a graph could save.
DEVICES = ("cuda",)
#: Steps of a batch before its shape is fixed, and steps that must be left then. To fix it and to capture a step takes
#: about as long as three steps of a batch that grows (an H100, a model of half a billion weights).
AFTER, MIN = 4, 8
#: Free columns of a new batch. All columns are read in each step, also those that are still free.
COLUMNS = 256
#: Columns come in multiples of this, as kernels of attention want masks.
GRAIN = 64


def settle(batch: Batch[Row], model: Any, steps: int, left: int) -> Batch[Row]:
    """The batch with room for a step, in fixed shape where that pays. steps: those taken so far; left: the most that a
    row may still take."""
    if isinstance(batch, FixedBatch):
        if batch.filled < batch.columns and 4 * len(batch.rows) > batch.places:
            return batch
        batch = batch.loosen()
    if steps < AFTER or left < MIN or not _can_be_fixed(batch, model):
        return batch
    return FixedBatch(batch, model, min(left, COLUMNS))


def _can_be_fixed(batch: RunningBatch, model: Any) -> bool:
    """True for a model that transformers calls fit for static caches, whose attention takes a mask as it is."""
    config, layers = model.config.get_text_config(), batch.cache.layers
    return (
        batch.mask.device.type in DEVICES
        and config._attn_implementation == "sdpa"
        and getattr(model, "_can_compile_fullgraph", False)
        and not getattr(config, "alibi", False)
        and batch.keeps_all_tokens
        and all(getattr(layer, "is_initialized", True) for layer in layers)
    )


class FixedBatch(Generic[Row]):
    """A running batch with `places` for rows and `columns` for tokens, of which `filled` are used."""

    keeps_all_tokens = True

    def __init__(self, batch: RunningBatch[Row], model: Any, free: int):
        """Takes the rows of a batch, which is then empty. free: columns for further tokens."""
        self.rows, self.forward, self.tokens = batch.rows, batch.forward, batch.tokens
        self.filled, self.places = batch.mask.shape[1], _round_up(len(batch.rows))
        self.columns = -(-(self.filled + free) // GRAIN) * GRAIN
        self._model, self._loose, count = model, batch.cache, len(batch.rows)
        self._last = int(getattr(model.config.get_text_config(), "max_position_embeddings", 0) or 1 << 30) - 1
        self._column = torch.full((1,), self.filled, device=batch.mask.device)
        self._mask = torch.zeros((self.places, self.columns), dtype=torch.bool, device=batch.mask.device)
        self._mask[:count, : self.filled] = batch.mask.bool()
        self._ids, self._positions = (batch.positions.new_zeros((self.places, 1)) for _ in range(2))
        self._positions[:count] = batch.positions
        self._cache = GrowingCache()
        for layer in batch.cache.layers:
            self._cache.layers.append(_FixedLayer(layer, self.places, self.columns, self._column))
        self._out, self._graph = batch.logits, None
        self._steps, self._captures = 0, batch.mask.device.type == "cuda"

    @property
    def logits(self) -> torch.Tensor:
        return self._out[: len(self.rows)]

    def keep(self, kept: Sequence[int]) -> None:
        """Drop all rows but these. The last ones take the places of those that leave."""
        count = len(kept)
        if count == len(self.rows):
            return
        order = list(range(count))
        moved = [i for i in kept if i >= count]
        free = sorted(set(order) - set(kept))
        for place, i in zip(free, moved, strict=True):
            order[place] = i
        self.rows = [self.rows[i] for i in order]
        if not moved:
            self.tokens = self.tokens[:count]
            return
        device = self._mask.device
        self.tokens = self.tokens[torch.tensor(order, device=device)]
        source, target = torch.tensor(moved, device=device), torch.tensor(free, device=device)
        for t in self._by_row():
            t.index_copy_(0, target, t.index_select(0, source))

    def step(self) -> None:
        """Pass the chosen tokens through the model. The first step runs as it is, and so makes ready what a capture
        needs; the second one is captured."""
        self._ids[: len(self.rows)] = self.tokens
        if self._steps == 1 and self._captures:
            self._capture()
        if self._graph is not None:
            self._graph.replay()
        else:
            self._pass()
        self.filled += 1
        self._steps += 1

    def join(self, other: RunningBatch[Row]) -> Batch[Row]:
        """Both batches as one: in free places, or else in a batch of another shape. A step was taken before."""
        begin, end, width = len(self.rows), len(self.rows) + len(other.rows), other.mask.shape[1]
        if end > self.places or width > self.filled:
            return self.loosen().join(other)
        columns = slice(self.filled - width, self.filled)
        for layer, more in zip(self._cache.layers, other.cache.layers, strict=True):
            for name in ("keys", "values"):
                getattr(layer, name)[begin:end, :, columns] = getattr(more, name)
        self._mask[begin:end] = False
        self._mask[begin:end, columns] = other.mask.bool()
        self._positions[begin:end] = other.positions
        self._out[begin:end] = other.logits
        self.rows, self.tokens = [*self.rows, *other.rows], torch.cat([self.tokens, other.tokens])
        return self

    def loosen(self) -> RunningBatch[Row]:
        """The rows as a batch that grows, only as wide as the longest of them. This one is then empty."""
        count, self._graph = len(self.rows), None
        positions, logits = self._positions[:count].clone(), self.logits.clone()
        begin = max(0, self.filled - int(positions.max()) - 1)
        for layer, fixed in zip(self._loose.layers, self._cache.layers, strict=True):
            for name in ("keys", "values"):
                setattr(layer, name, getattr(fixed, name)[:count, :, begin : self.filled])
        self._cache.layers.clear()
        mask = self._mask[:count, begin : self.filled].long()
        return RunningBatch(self.forward, self.rows, self._loose, mask, positions, logits, self.tokens)

    def _by_row(self) -> Iterator[torch.Tensor]:
        yield from (self._mask, self._positions)
        for layer in self._cache.layers:
            yield from (layer.keys, layer.values)  # type: ignore[misc]

    def _pass(self) -> None:
        """A step, in tensors that stay where they are."""
        self._positions.add_(1).clamp_(max=self._last)  # free places run along
        self._mask.index_fill_(1, self._column, True)
        with _grouped_attention(self._model.config.get_text_config()):
            self._out = self.forward(self._ids, self._mask[:, None, None], self._positions, self._cache)
        self._column.add_(1)

    def _capture(self) -> None:
        """Record a step, unless the model does what a graph cannot hold, such as to look at a number."""
        device = self._mask.device
        with torch.cuda.device(device):
            stream, graph = torch.cuda.current_stream(), torch.cuda.CUDAGraph()
            out = self._out
            try:
                with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                    self._pass()
                self._graph = graph
            except RuntimeError:
                torch.cuda.set_stream(stream)
                self._out, self._captures = out, False


Batch: TypeAlias = RunningBatch[Row] | FixedBatch[Row]


class _FixedLayer(DynamicLayer):
    """Keys and values in (places, heads, columns, width), taken from a layer. A token goes to the current column."""

    def __init__(self, layer: Any, places: int, columns: int, column: torch.Tensor):
        super().__init__()
        self._column = column
        for name in ("keys", "values"):
            found = getattr(layer, name)
            rows, heads, filled, width = found.shape
            made = found.new_zeros((places, heads, columns, width))
            made[:rows, :, :filled] = found
            setattr(self, name, made)
            setattr(layer, name, None)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        for kept, new in ((self.keys, key_states), (self.values, value_states)):
            kept.index_copy_(2, self._column, new)  # type: ignore[union-attr]
        return self.keys, self.values  # type: ignore[return-value]


def _round_up(count: int) -> int:
    """Places for so many rows and a few more, so that rows that join one by one seldom lack one."""
    grain = 1 << max(0, count.bit_length() - 3)
    return -(-count // grain) * grain


def attend_in_groups(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of one token a row. Heads that share keys count as tokens of one head, so that keys and values are read
    once and not copied for each of them (Ainslie et al., arXiv 2305.13245)."""
    rows, heads, tokens, width = query.shape
    shared = key.shape[1]
    if tokens > 1 or shared == heads or more.get("position_bias") is not None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **more)
    folded = query.reshape(rows, shared, heads // shared, width)
    found = scaled_dot_product_attention(folded, key, value, attn_mask=attention_mask, scale=scaling)
    return found.reshape(rows, 1, heads, -1), None


_NAME = "sdpa_in_groups"
AttentionInterface.register(_NAME, attend_in_groups)


@contextmanager
def _grouped_attention(config: Any) -> Iterator[None]:
    before, config._attn_implementation = config._attn_implementation, _NAME
    try:
        yield
    finally:
        config._attn_implementation = before
