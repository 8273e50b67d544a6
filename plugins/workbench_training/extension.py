"""Papers as extensions of training. Each file or folder in `papers/` adds presets, losses, critics or recipes, and
training names none of them: it asks `papers()` what lies there. Deleting one removes the paper, and nothing else.

A folder with an `optimizer.py` is an optimizer of its own, of the folder's name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, create_model

if TYPE_CHECKING:
    from workbench import Study, Workflow
    from workbench.patterns import Pattern
    from workbench.task import Example
    from workbench_training.learner import Learner
    from workbench_training.rewards import Rollout
    from workbench_training.rollouts.sft_data import SFTExample
    from workbench_training.rollouts.study_rollouts import StudyRolloutSource
    from workbench_training.rollouts.token_rows import Row
    from workbench_training.settings import TrainingSchedule


T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True)
class Preset:
    """A named algorithm: what differs from the defaults of `objective`, `schedule` and `learning`, and where it is
    from."""

    objective: Mapping[str, Any]
    source: str
    schedule: Mapping[str, Any] = field(default_factory=dict)
    learning: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PairLoss:
    """A loss over pairs of answers: `module:function`, called with `loss.Pairs` and `pair_beta`."""

    address: str
    reads_reference: bool = True


@dataclass(frozen=True)
class CriticKind:
    """A kind of critic: the names of its heads, and `module:class` of its ValueLearner, which imports torch. copied:
    whether it keeps a copy of its weights."""

    heads: tuple[str, ...]
    address: str
    copied: bool = False


class Recipe(BaseModel):
    """A paper's setting of one optimizer. Each method is called by that optimizer; by default it changes nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def check(self, optimizer: Any) -> None:
        """Raise ValueError for settings of the optimizer that do not go together with this one."""

    def ready(self, optimizer: Any, study: Study) -> None:
        """Raise SpecError, with a path below this setting, where the workflow or its roles do not fit."""

    def changes(self, workflow: Workflow, nodes: Collection[str]) -> dict[str, Any]:
        """Changes of the workflow beside the weights, for rollouts and for use. nodes: those that are trained."""
        return {}

    @property
    def extra_calls(self) -> int:
        """Calls for each run besides the workflow's and those of rewards."""
        return 0

    def lessons(
        self, group: Sequence[Rollout], nodes: Collection[str], threshold: float, errors: Pattern
    ) -> Iterator[SFTExample] | None:
        """The chats that `sft` learns from a group of rollouts; None for its own choice."""
        return None

    async def choose(
        self, source: StudyRolloutSource, tasks: Sequence[Example], schedule: TrainingSchedule, round_: int
    ) -> list[list[Row]] | None:
        """The pairs that `dpo` learns from in a round; None for its own choice."""
        return None

    def mask_pairs(self, pairs: Sequence[Sequence[Row]], tokenizer: Any) -> list[list[Row]] | None:
        """The pairs of `dpo` with fewer tokens that count; None for all tokens."""
        return None

    def before_step(self, step: int, learners: Mapping[str, Learner]) -> None:
        """Called before each step of `grpo`."""


@dataclass(frozen=True)
class RecipeField:
    """A recipe as a setting: the optimizer that takes it, the setting's name and description."""

    optimizer: str
    name: str
    recipe: type[Recipe]
    description: str


@dataclass(frozen=True)
class Paper:
    """What one paper adds, by name. Losses and critics import torch, so they are addresses here."""

    presets: Mapping[str, Preset] = field(default_factory=dict)
    pair_losses: Mapping[str, PairLoss] = field(default_factory=dict)
    critics: Mapping[str, CriticKind] = field(default_factory=dict)
    recipes: Sequence[RecipeField] = ()


@cache
def papers() -> Mapping[str, Paper]:
    """The `PAPER` of each file or folder in `papers/`, by its name."""
    from workbench_training import papers as folder

    names = {info.name for info in pkgutil.iter_modules(folder.__path__)} - paper_optimizers().keys()
    return {name: importlib.import_module(f"{folder.__name__}.{name}").PAPER for name in sorted(names)}


def paper_optimizers() -> dict[str, str]:
    """`module:class` of the optimizer in each folder of `papers/` that has one, by the folder's name. Imports none."""
    from workbench_training import papers as folder

    names = sorted(path.parent.name for place in folder.__path__ for path in Path(place).glob("*/optimizer.py"))
    return {name: f"{folder.__name__}.{name}.optimizer:OPTIMIZER" for name in names}


def load(address: str) -> Any:
    """Import what `module:attribute` names."""
    module, _, name = address.partition(":")
    return getattr(importlib.import_module(module), name)


def with_recipes(name: str) -> Callable[[type[T]], type[T]]:
    """Decorate an optimizer: it takes a setting for each recipe that papers add to it, none of which is given by
    default."""

    def extend(base: type[T]) -> type[T]:
        taken = [found for paper in papers().values() for found in paper.recipes if found.optimizer == name]
        settings: dict[str, Any] = {
            found.name: (found.recipe | None, Field(None, description=found.description)) for found in taken
        }
        made = create_model(base.__name__, __base__=base, __module__=base.__module__, __doc__=base.__doc__, **settings)
        made.recipe_fields = taken  # type: ignore[attr-defined]
        return made

    return extend
