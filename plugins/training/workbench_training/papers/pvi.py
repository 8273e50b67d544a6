"""Pointwise V-information (PVI): how many bits the inputs of a row tell the model about its label.

PVI(x -> y) = -log2 g(y) + log2 g'(y | x), where g' and g are the model fine-tuned with and without the inputs
(Ethayarajh et al., arXiv 2110.08420): rows with little are hard for the model, or wrongly labelled. Fine-tuning by it:
Lin et al., arXiv 2501.09631, of which the abstract and a digest were read (PVI, and an order of the data like a
curriculum). Departures: the direction of the order, and leaving rows out, are ours.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from workbench_training.extension import Paper, RecipeField
from workbench_training.recipe import Recipe
from workbench_training.rollouts.sft_data import ChatTokenizer, SFTExample, tokenize_example

if TYPE_CHECKING:
    from workbench_training.model.policy import Policy
    from workbench_training.rollouts.token_rows import Row

#: Rows in one forward pass.
_ROWS = 8


class PVI(Recipe):
    """The order of rows by their information."""

    order: Literal["easy_first", "hard_first"] = Field(
        "easy_first", description="order of the rows in each pass: by falling, or by rising PVI"
    )
    min_bits: float | None = Field(None, description="rows with fewer bits are left out; null: none")
    epochs: int = Field(
        0,
        ge=0,
        le=20,
        description="passes in which the two models are fine-tuned before they are asked; 0: the model as it is",
    )

    def check(self, optimizer: Any) -> None:
        if optimizer.source != "labels" or optimizer.rounds > 1:
            raise ValueError("`pvi` measures labels, once and before training: give `source: labels`, and `rounds: 1`")

    def select(
        self, policy: Policy, tokens: ChatTokenizer, examples: Sequence[SFTExample], optimizer: Any
    ) -> tuple[list[int], str]:
        bits = measure_information(policy, tokens, examples, self.epochs, optimizer)
        kept = select_informative(self, bits)
        mean = math.fsum(bits) / max(len(bits), 1)
        return kept, f"{len(kept)} of {len(examples)} worked examples are learned; their mean PVI is {mean:.2f} bits"


def drop_inputs(example: SFTExample) -> SFTExample:
    """The example without its inputs and the later texts of users and tools. Instructions and demos stay."""
    first = min(example.learned, default=len(example.messages)) - 1
    messages = [
        {**m, "content": ""} if i >= first and m["role"] in ("user", "tool") else m
        for i, m in enumerate(example.messages)
    ]
    return replace(example, messages=messages)


def measure_information(
    policy: Policy, tokens: ChatTokenizer, examples: Sequence[SFTExample], epochs: int, optimizer: Any
) -> list[float]:
    """Measure the PVI of each example's learned answers, in bits. The policy keeps its weights.

    epochs: of fine-tuning on the examples, with and without their inputs. optimizer: the `sft` whose objective,
    learning and batch are taken.
    """
    start = policy.snapshot() if epochs else None
    bits = []
    for some in (examples, [drop_inputs(example) for example in examples]):
        rows = [tokenize_example(example, tokens) for example in some]
        if start is not None:
            _fine_tune(policy, rows, epochs, optimizer)
        bits.append(_bits(policy, rows))
        if start is not None:
            policy.restore(start)
            policy.changed()
    return [given - alone for given, alone in zip(*bits, strict=True)]


def _fine_tune(policy: Policy, rows: Sequence[Sequence[Row]], epochs: int, optimizer: Any) -> None:
    from workbench_training.learner import Learner

    learner, rng, updates = Learner(policy, optimizer.objective(), optimizer.learning), random.Random("pvi"), 0
    for _ in range(epochs):
        order = rng.sample(list(rows), len(rows))
        for begin in range(0, len(order), optimizer.batch):
            some = [row for each in order[begin : begin + optimizer.batch] for row in each]
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
    """The indices of the examples that are learned, in their order."""
    kept = [i for i, found in enumerate(bits) if settings.min_bits is None or found >= settings.min_bits]
    return sorted(kept, key=lambda i: bits[i], reverse=settings.order == "easy_first")


PAPER = Paper(
    recipes=[
        RecipeField(
            "sft",
            "pvi",
            PVI,
            "source labels: order and leave out rows by what their inputs tell of their labels (PVI); {} takes the "
            "defaults",
        )
    ]
)
