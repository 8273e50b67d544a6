"""The actions of a world as players see them: without some, and under other names.

Source: the aligned action space of AgentOccam (Yang et al., arXiv 2410.13825, section 4.1), which removes actions that
an agent rarely needs or misuses and gives the others plain names. There a prompt lists them; here the world's own list
and its tools are changed, and what a player writes is translated back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class ActionSettings(BaseModel):
    """The changes of a world's actions and tools, by their own names."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    drop: list[str] = Field(
        default_factory=list,
        description="actions and tools that no player has: whole texts, or patterns with *, e.g. scroll *",
    )
    rename: dict[str, str] = Field(
        default_factory=dict, description="the world's word or words at the beginning of an action: ours"
    )

    @model_validator(mode="after")
    def _tell_apart(self) -> Self:
        if len({*self.rename.values()}) < len(self.rename):
            raise ValueError("two actions have one name in `rename`, so that neither can be taken")
        return self

    def offered(self, actions: Sequence[str]) -> list[str]:
        """Return the actions that are left, as players see them."""
        return [_with(action, self.rename) for action in actions if not self.is_dropped(action)]

    def is_dropped(self, action: str) -> bool:
        """Return True for an action of the world that players do not have."""
        words = " ".join(action.split()).casefold()
        return any(fnmatchcase(words, pattern.casefold()) for pattern in self.drop)

    def shown(self, name: str) -> str:
        """Return a tool's name, or an action, as players see it."""
        return _with(name, self.rename)

    def original(self, action: str) -> str:
        """Return an action, or a tool's name, as the world knows it."""
        return _with(action, {ours: theirs for theirs, ours in self.rename.items()})


def _with(action: str, names: Mapping[str, str]) -> str:
    """Return an action with its first words replaced; the longest match counts."""
    for old in sorted(names, key=len, reverse=True):
        if action == old or action.startswith(f"{old} "):
            return names[old] + action[len(old) :]
    return action
