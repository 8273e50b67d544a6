"""Pointwise V-information (PVI): how many bits a row's question tells the model about its label.

Source: PVI(x -> y) = -log2 g[null](y) + log2 g'[x](y), g' and g being the model fine-tuned with and without the
questions (Ethayarajh et al., arXiv 2110.08420): rows with low PVI are hard for the model, or wrongly labelled.
Fine-tuning by it: Lin et al., arXiv 2501.09631, of which only the abstract and a digest could be read (PVI, and an
order of the data like a curriculum). So the direction of the order, and leaving rows out, are ours.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from workbench_training.objective import Objective
from workbench_training.rollouts.sft_data import ChatTokenizer, SFTExample, tokenize_example
from workbench_training.settings import Learning

if TYPE_CHECKING:
    from workbench_training.model.policy import Policy
    from workbench_training.rollouts.token_rows import Row

_ROWS = 8  # in one forward pass


class PVI(BaseModel):
    """What the information of a row decides."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    order: Literal["easy_first", "hard_first", "random"] = Field(
        "easy_first", description="rows in each pass: by falling or by rising PVI, or in any order"
    )
    least: float | None = Field(None, description="rows with fewer bits are left out; null: none")
    epochs: int = Field(
        0,
        ge=0,
        le=20,
        description="passes in which the two models are fine-tuned before they are asked; 0: the model as it is",
    )

    @model_validator(mode="after")
    def _decides(self) -> Self:
        if self.order == "random" and self.least is None:
            raise ValueError("`order: random` leaves PVI without effect: give `least` as well, or another order")
        return self


def drop_question(example: SFTExample) -> SFTExample:
    """The example without its question, and without what users and tools say later. Instructions and demos stay."""
    first = min(example.learned, default=len(example.messages)) - 1
    messages = [
        {**m, "content": ""} if i >= first and m["role"] in ("user", "tool") else m
        for i, m in enumerate(example.messages)
    ]
    return replace(example, messages=messages)


def measure_information(
    policy: Policy,
    tokens: ChatTokenizer,
    examples: Sequence[SFTExample],
    *,
    epochs: int,
    objective: Objective,
    learning: Learning,
    batch: int,
    seed: str,
) -> list[float]:
    """PVI of each example's learned answers, in bits. The policy's weights are afterwards those of before.

    Args:
        policy, tokens: the model, and its tokenizer.
        examples: with their questions.
        epochs: of fine-tuning on the examples, with and without their questions.
        objective, learning, batch: as the training has them.
        seed: of the order of fine-tuning.
    """
    start = policy.snapshot() if epochs else None
    bits = []
    for some in (examples, [drop_question(example) for example in examples]):
        rows = [tokenize_example(example, tokens) for example in some]
        if start is not None:
            _fine_tune(policy, rows, epochs, objective, learning, batch, random.Random(seed))
        bits.append(_bits(policy, rows))
        if start is not None:
            policy.restore(start)
            policy.changed()
    return [given - alone for given, alone in zip(*bits, strict=True)]


def _fine_tune(
    policy: Policy,
    rows: Sequence[Sequence[Row]],
    epochs: int,
    objective: Objective,
    learning: Learning,
    batch: int,
    rng: random.Random,
) -> None:
    from workbench_training.learner import Learner

    learner, updates = Learner(policy, objective, learning), 0
    for _ in range(epochs):
        order = rng.sample(list(rows), len(rows))
        for begin in range(0, len(order), batch):
            some = [row for each in order[begin : begin + batch] for row in each]
            learner.step(some, [1.0] * len(some), 0, None, updates)
            updates += 1


def _bits(policy: Policy, rows: Sequence[Sequence[Row]]) -> list[float]:
    """log2 of the probability of the learned tokens of each example's rows."""
    import torch

    from workbench_training.rollouts.token_rows import collate

    flat = [(i, row) for i, some in enumerate(rows) for row in some]
    found = [0.0] * len(rows)
    with torch.no_grad():
        for begin in range(0, len(flat), _ROWS):
            part = flat[begin : begin + _ROWS]
            batch = collate([row for _, row in part], policy.device)
            sums = (policy.log_probabilities(batch)[0] * batch.mask).sum(-1).tolist()
            for (i, _), nats in zip(part, sums, strict=True):
                found[i] += nats / math.log(2)
    return found


def select_informative(settings: PVI, bits: Sequence[float]) -> list[int]:
    """The examples that are learned, by their indices, in the order of the settings."""
    kept = [i for i, found in enumerate(bits) if settings.least is None or found >= settings.least]
    if settings.order == "random":
        return kept
    return sorted(kept, key=lambda i: bits[i], reverse=settings.order == "easy_first")
