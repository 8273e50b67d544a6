"""Values of states of rows: heads over a decoder's states.

The decoder is the policy with the weights that training began with, which stay as they are (so does the critic in
POAD's code: it disables the adapter), or a model of the critic's own, which is trained with the heads. Heads over the
states of the policy as it is trained were lost within a step: every update moves all states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from workbench.errors import PluginError
from workbench_engine.generation import Generator
from workbench_training.model.logprobs import compute_states
from workbench_training.model.policy import Policy
from workbench_training.model.trained_weights import TrainedWeights, Weights
from workbench_training.rollouts.token_rows import Batch, Row, collate

Tensor = torch.Tensor


class Head(nn.Module):
    """Hidden layers with ReLU, and one number."""

    def __init__(self, size: int, widths: Sequence[int]):
        super().__init__()
        sizes = [size, *widths]
        layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], 1))

    def forward(self, states: Tensor) -> Tensor:
        return self.layers(states.float()).squeeze(-1)


class ValueModel(TrainedWeights, nn.Module):
    """Heads over states before tokens of rows."""

    def __init__(self, policy: Policy, heads: Sequence[str], widths: Sequence[int], base: str | None = None):
        """heads: their names. base: the folder or hub id of a decoder of its own; None: the policy with its present
        weights. Raises PluginError where the two have different tokens."""
        super().__init__()
        self.policy = [policy]  # in a list, so that its weights are none of ours
        self.trunk: Any = None if base is None else _load_trunk(base, policy)
        self.start: Weights = policy.snapshot() if base is None else {}
        config: Any = self.trunk.config if self.trunk is not None else policy.inner.config
        with torch.random.fork_rng():
            torch.manual_seed(policy.made_with["seed"])
            self.heads = nn.ModuleDict({name: Head(config.get_text_config().hidden_size, widths) for name in heads})
        self.to(policy.device)
        self.trained = {name: p for name, p in self.named_parameters() if p.requires_grad}

    def states(
        self, rows: Sequence[Row], masks: Sequence[Sequence[int]], tokens: int
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """(states, numbers of rows, places) in passes of rows of like length: the states before the places that a mask
        marks. A mask may be longer than its row by one place: the state after its last token. tokens: of one pass, with
        padding."""
        marked = {i: _with_mask(row, mask) for i, (row, mask) in enumerate(zip(rows, masks, strict=True)) if any(mask)}
        order = sorted(marked, key=lambda i: len(marked[i].prompt_ids) + len(marked[i].token_ids))
        while order:
            widest = marked[order[-1]]
            taken = order[-max(1, tokens // (len(widest.prompt_ids) + len(widest.token_ids))) :]
            del order[-len(taken) :]
            states, which, places = self._pass(collate([marked[i] for i in taken], self.policy[0].device))
            yield states, torch.tensor(taken, device=which.device)[which], places

    def _pass(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        if self.trunk is None:
            with self.policy[0].having(self.start):
                return self.policy[0].states(batch)
        with self.policy[0].mixed():
            return compute_states(self.trunk, batch)


def _load_trunk(base: str, policy: Policy) -> Any:
    loaded = Generator.load(base, device=str(policy.device), dtype="float32")
    if loaded.tokenizer.get_vocab() != policy.tokenizer.get_vocab():
        raise PluginError(
            f"the critic's model {base} has other tokens than {policy.base}: name one with the same tokenizer, or "
            "remove `critic.model`"
        )
    model: Any = loaded.model
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    if head.weight is not embedding.weight:
        head.requires_grad_(False)  # values do not pass through it
    return model


def _with_mask(row: Row, mask: Sequence[int]) -> Row:
    """A row with one token more, of which nothing but the state before it is used, and another mask."""
    length = len(row.token_ids) + 1
    return replace(
        row,
        token_ids=(*row.token_ids, 0),
        mask=(*mask, *(0,) * (length - len(mask))),
        logprobs=(0.0,) * length,
    )
