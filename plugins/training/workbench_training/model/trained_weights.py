"""Trained weights in this process: copied, set back, and replaced by others for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

Weights = dict[str, torch.Tensor]


class TrainedWeights:
    """Base of policies and of value models."""

    trained: Weights

    def snapshot(self) -> Weights:
        """A copy of the trained weights, on their device."""
        return {name: p.detach().clone() for name, p in self.trained.items()}

    def restore(self, weights: Mapping[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, p in self.trained.items():
                p.copy_(weights[name])

    @contextmanager
    def having(self, weights: Mapping[str, torch.Tensor]) -> Iterator[None]:
        """With other weights for a while, without a second model and without copying any."""
        kept = {name: p.data for name, p in self.trained.items()}
        try:
            for name, p in self.trained.items():
                p.data = weights[name]
            yield
        finally:
            for name, p in self.trained.items():
                p.data = kept[name]
