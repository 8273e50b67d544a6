"""CORY: two policies exchange their roles, and each continues from the weights of the other (Ma et al., arXiv
2410.06101, section 3).

Two copies of one model answer in sequence. The pioneer sees the question, the observer also what the pioneer answered.
Both earn the sum of what the two answers earn, and change places from time to time, so that neither comes to rely on
its place.

Read: the authors' repository (github.com/Harry67Hu/CORY at 710219f, `imdb_train/cory.py`). As there: both rewards are
summed for both, and the weights change places after every 5 steps. Departures: any algorithm of `grpo`
in place of PPO; AdamW's memory goes with the weights, where theirs begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench.errors import SpecError
from workbench_training.extension import Paper, RecipeField
from workbench_training.recipe import Recipe

if TYPE_CHECKING:
    from workbench import Study
    from workbench_training.learner import Learner
    from workbench_training.model.policy import Weights


#: Steps between two exchanges, as in the authors' repository.
EVERY = 5


class RoleExchange(Recipe):
    """Two policies of one base exchange their roles from time to time."""

    def check(self, optimizer: Any) -> None:
        policies = optimizer.policies
        if len(policies) != 2 or len({str(policy.lora) for policy in policies.values()}) != 1:
            raise ValueError(
                "`cory` exchanges the weights of two policies: give two `policies`, both with the same `lora` or both "
                "without"
            )
        if optimizer.resolve_schedule().staleness:
            raise ValueError("roles cannot be exchanged while rollouts are drawn ahead: remove `cory` or staleness")

    def ready(self, optimizer: Any, study: Study) -> None:
        bases = {role.lm.weights for role in optimizer.trained_policies(study)}
        if len(bases) > 1:
            raise SpecError(
                f"policies of different models cannot exchange their roles: {', '.join(sorted(map(str, bases)))}",
                hint="Give both the same `lm`, or remove `cory`.",
            )

    def before_step(self, step: int, learners: Mapping[str, Learner]) -> None:
        if step and step % EVERY == 0:
            exchange_roles(*learners.values())


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


PAPER = Paper(
    recipes=[
        RecipeField(
            "grpo",
            "cory",
            RoleExchange,
            "two policies of one base exchange their roles (CORY): {}",
        )
    ]
)
