"""The exact gradient of more tokens than fit through the model at once.

Everything is computed twice: without gradients, and, once the loss has given the gradient of each log-probability,
again in pieces, each with its share of that gradient (as GradCache does for representations: Gao et al., arXiv
2101.06983). So losses that compare rows see them together, however few fit.

A piece is some whole rows, or a stretch of a single one: its tokens attend to the keys and values of the stretches
before, which are kept. The backward pass goes from the last stretch to the first. What later ones say about the keys
and values of a stretch is summed until its turn: this is the chain rule, without anything cut off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from workbench_engine.running_batch import as_computed, cache_argument
from workbench_training.model.logprobs import score_states
from workbench_training.model.micro_batches import split_rows
from workbench_training.model.policy import Policy
from workbench_training.model.prompt_cache import is_plain
from workbench_training.rollouts.token_rows import Batch

Pair = tuple[torch.Tensor, torch.Tensor]


class SplitPass:
    """A pass of a policy over a batch, in pieces of at most `limit` tokens."""

    def __init__(self, policy: Policy, batch: Batch, temperature: float, limit: int):
        self.policy, self.batch, self.temperature, self.limit = policy, batch, temperature, limit
        lengths = batch.attention.sum(-1).tolist()
        splits = is_plain(policy.inner.config)
        self._rows = [
            (piece, splits and lengths[piece[0]] > limit) for piece in split_rows(lengths, range(len(lengths)), limit)
        ]
        self._stretched: dict[int, LongRow] = {}
        self.logp = torch.zeros_like(batch.mask)

    def log_probabilities(self) -> Pair:
        """(log-probabilities, entropies), each (rows, longest). Gradients of the first are for `backward`."""
        entropy = torch.zeros_like(self.batch.mask)
        with torch.no_grad():
            for piece, long in self._rows:
                part = self.batch.part(piece)
                if long:
                    row = self._stretched[piece[0]] = LongRow(self.policy, part, self.temperature, self.limit)
                    found = row.log_probabilities()
                else:
                    found = self.policy.log_probabilities(part, self.temperature)
                width = part.mask.shape[1]
                self.logp[piece, :width], entropy[piece, :width] = found
        self.logp.requires_grad_()
        return self.logp, entropy

    def backward(self) -> None:
        """Add the gradients of the weights, once `logp` has its own."""
        gradient = self.logp.grad
        assert gradient is not None
        for piece, long in self._rows:
            if not gradient[piece].any():
                continue
            if long:
                self._stretched.pop(piece[0]).backward(gradient[piece])
                continue
            part = self.batch.part(piece)
            logp, _ = self.policy.log_probabilities(part, self.temperature)
            logp.backward(gradient[piece, : logp.shape[1]])


@dataclass
class _Stretch:
    """Tokens begin to end of a row; of the tokens that are learned, those that it predicts."""

    begin: int
    end: int
    places: torch.Tensor


class LongRow:
    """A row, of which `size` tokens go through the model at once.

    Between `log_probabilities` and `backward` the keys and values of all tokens are kept, by layer.
    """

    def __init__(self, policy: Policy, batch: Batch, temperature: float, size: int):
        self.policy, self.batch, self.temperature = policy, batch, temperature
        fed = int(batch.attention.sum()) - 1  # the last token decides nothing
        places = batch.mask[0].nonzero()[:, 0]
        by_state = batch.starts[0] + places - 1
        self.stretches = [
            _Stretch(a, b, places[(by_state >= a) & (by_state < b)])
            for a, b in ((start, min(start + size, fed)) for start in range(0, fed, size))
        ]
        self._kept: list[Pair] = []

    @torch.no_grad()
    def log_probabilities(self) -> Pair:
        """(log-probabilities, entropies), each (1, longest)."""
        logp, entropy = torch.zeros_like(self.batch.mask), torch.zeros_like(self.batch.mask)
        for stretch in self.stretches:
            found, own = self._pass(stretch, self._kept)
            logp[0, stretch.places], entropy[0, stretch.places] = found
            self._kept = [_joined(a, b) for a, b in zip(self._kept, own, strict=True)] if self._kept else own
        return logp, entropy

    def backward(self, gradient: torch.Tensor) -> None:
        """Add the gradients of the weights. gradient: of the log-probabilities, (1, longest)."""
        told = [(torch.zeros_like(k, dtype=torch.float), torch.zeros_like(v, dtype=torch.float)) for k, v in self._kept]
        for stretch in reversed(self.stretches):
            a, b = stretch.begin, stretch.end
            before = [(_leaf(k, a), _leaf(v, a)) for k, v in self._kept] if a else []
            (logp, _), own = self._pass(stretch, before)
            ends = [(logp, gradient[0, stretch.places])]
            for layer, later in zip(own, told, strict=True):
                ends += [(t, total[:, :, a:b].to(t.dtype)) for t, total in zip(layer, later, strict=True)]
            ends = [(t, g) for t, g in ends if t.requires_grad]  # not so beside an adapter that starts in a later layer
            torch.autograd.backward([t for t, _ in ends], [g for _, g in ends])
            for layer, later in zip(before, told, strict=bool(before)):
                for leaf, total in zip(layer, later, strict=True):
                    if leaf.grad is not None:
                        total[:, :, :a] += leaf.grad

    def _pass(self, stretch: _Stretch, before: list[Pair]) -> tuple[Pair, list[Pair]]:
        """((log-probabilities, entropies) of the tokens that it predicts, its keys and values by layer)."""
        a, b, batch, model = stretch.begin, stretch.end, self.batch, self.policy.inner
        count = len(DynamicCache(config=model.config).layers)
        layers = [_StretchLayer(before[i] if before else None) for i in range(count)]
        cache = DynamicCache()
        cache.layers.extend(layers)
        with self.policy.passing():
            decoder = model.get_decoder()
            states = decoder(
                input_ids=batch.ids[:, a:b],
                attention_mask=batch.attention[:, :b],
                use_cache=True,
                position_ids=torch.arange(a, b, device=batch.ids.device)[None],
                **{cache_argument(decoder): cache},
            )[0][0]
            wanted = states[batch.starts[0] + stretch.places - 1 - a]
            found = score_states(model, wanted, batch.tokens[0, stretch.places], self.temperature)
        return found, [layer.own for layer in layers]


class _StretchLayer(DynamicLayer):
    """Gives a stretch the keys and values of earlier tokens besides its own, which are `own`."""

    own: Pair

    def __init__(self, before: Pair | None):
        super().__init__()
        self.before = before

    def get_seq_length(self) -> int:
        return 0 if self.before is None else self.before[0].shape[-2]

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Pair:
        found = as_computed(key_states), as_computed(value_states)
        if not self.is_initialized:  # a recomputation is part of the graph of the first pass
            self.own, self.is_initialized = found, True
        return found if self.before is None else _joined(self.before, found)


def _joined(a: Pair, b: Pair) -> Pair:
    return torch.cat([a[0], b[0]], dim=-2), torch.cat([a[1], b[1]], dim=-2)


def _leaf(t: torch.Tensor, end: int) -> torch.Tensor:
    return t[:, :, :end].detach().requires_grad_()
