"""Samplers that draw with other probabilities than the policy that is trained, as engines on a GPU do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from workbench_engine.generation import Generator, Refill, Row
from workbench_training.model.policy import Policy, Weights
from workbench_training.trainer import Trainer


class Bfloat16Sampler(Generator):
    """Computes in bfloat16 what the trainer computes in float32."""

    def __init__(self, policy: Policy):
        super().__init__(policy.inner, policy.tokenizer)

    def generate(self, rows: list[Row], refill: Refill | None = None) -> None:
        with torch.autocast("cpu", torch.bfloat16):
            super().generate(rows, refill)


class LaggingSampler(Generator):
    """Draws with the weights of one version before, and says nothing of it."""

    def __init__(self, policy: Policy):
        super().__init__(policy.inner, policy.tokenizer)
        self.policy, self.digest, self.before = policy, policy.digest(), policy.snapshot()
        self.now: Weights = self.before

    def generate(self, rows: list[Row], refill: Refill | None = None) -> None:
        if self.policy.digest() != self.digest:
            self.digest, self.before, self.now = self.policy.digest(), self.now, self.policy.snapshot()
        with self.policy.having(self.before):
            super().generate(rows, refill)


class PerturbedSampler(Generator):
    """Adds noise to the logits, the same at every place, and reports the log-probabilities that result."""

    def __init__(self, policy: Policy):
        super().__init__(policy.inner, policy.tokenizer)
        drawn = torch.Generator().manual_seed(1)
        self.noise = 2.0 * torch.randn(self.model.config.vocab_size, generator=drawn)

    def _logits(self, *args: Any) -> torch.Tensor:
        return super()._logits(*args) + self.noise


def sample_policy(made: Trainer, reward: Callable[[str], float]) -> float:
    """The mean reward of 128 answers that the trained policy itself draws."""
    generator = made.learners[""].policy.generator
    rows = [
        Row(generator.encode([{"role": "user", "content": text}]), 8, 1.0, 1.0, (), seed)
        for text in "abcd"
        for seed in range(32)
    ]
    generator.generate(rows)
    return sum(reward(row.text) for row in rows) / len(rows)
