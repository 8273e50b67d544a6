"""Papers as extensions of training. Each file or folder in `papers/` adds presets, losses, critics or recipes, and
training names none of them: it asks `papers()` what lies there. Deleting one removes the paper, and nothing else.

A folder with an `optimizer.py` is an optimizer of its own, of the folder's name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, Field, create_model

from workbench_training import paper_optimizers, papers as folder

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


@dataclass(frozen=True)
class RecipeField:
    """A recipe (`recipe.py`) as a setting: the optimizer that takes it, the setting's name and description."""

    optimizer: str
    name: str
    recipe: type[BaseModel]
    description: str


@dataclass(frozen=True)
class Paper:
    """Additions of one paper, by name. Losses and critics import torch, so they are addresses here."""

    presets: Mapping[str, Preset] = field(default_factory=dict)
    pair_losses: Mapping[str, PairLoss] = field(default_factory=dict)
    critics: Mapping[str, CriticKind] = field(default_factory=dict)
    recipes: Sequence[RecipeField] = ()


@cache
def papers() -> Mapping[str, Paper]:
    """The `PAPER` of each file or folder in `papers/`, by its name."""
    names = {info.name for info in pkgutil.iter_modules(folder.__path__)} - paper_optimizers().keys()
    return {name: importlib.import_module(f"{folder.__name__}.{name}").PAPER for name in sorted(names)}


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
