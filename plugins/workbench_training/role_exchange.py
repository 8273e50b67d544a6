"""Two policies exchange their roles: each continues from the weights of the other (CORY, arXiv 2410.06101, section 3).

Two copies of one model answer in sequence. The pioneer sees the question, the observer also what the pioneer answered.
Both earn the sum of what the two answers earn, and change places from time to time, so that neither comes to rely on
its place.
"""

from __future__ import annotations

from collections.abc import Mapping

from workbench_training.learner import Learner
from workbench_training.model.policy import Weights


def exchange_roles(first: Learner, second: Learner) -> None:
    """Exchange weights, references and what AdamW remembers. Raises ValueError for policies of different shapes."""
    one, two = _copied(first), _copied(second)
    shapes = [[weight.shape for weight in found["weights"].values()] for found in (one, two)]
    if shapes[0] != shapes[1]:
        raise ValueError("policies of different shapes cannot exchange their roles")
    first.load(_renamed(two, second, first))
    second.load(_renamed(one, first, second))
    first.skipped, second.skipped = second.skipped, first.skipped


def _copied(learner: Learner) -> dict[str, Weights]:
    return {part: {k: v.detach().clone() for k, v in found.items()} for part, found in learner.tensors().items()}


def _renamed(tensors: Mapping[str, Weights], of: Learner, to: Learner) -> dict[str, Weights]:
    """Tensors of one learner by the names of another: an adapter has its policy's name in them."""
    names = dict(zip(of.policy.trained, to.policy.trained, strict=True))

    def renamed(name: str) -> str:
        parameter, bar, key = name.partition("|")
        return f"{names.get(parameter, parameter)}{bar}{key}"

    return {part: {renamed(name): value for name, value in found.items()} for part, found in tensors.items()}
