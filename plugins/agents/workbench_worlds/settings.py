"""Settings of a `play` node."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from workbench.workflow import NodeConfig
from workbench_kit.acting import ENV
from workbench_worlds.actions import ActionSettings

#: Each step has a replica of its own (`workbench.runtime.Draw`).
MAX_STEPS = 1000


class PlayConfig(NodeConfig):
    """Settings of a `play` node."""

    play: str = Field(description="a world that comes with us, or python:file.py:Class")
    task: dict[str, str] = Field(default_factory=dict, description="field of the world's task: input field")
    settings: dict[str, Any] = Field(default_factory=dict, description="arguments of the world's class")
    python: str | None = Field(
        None, description="its interpreter: a path, or a list of requirements (*.txt), from which a venv is made once"
    )
    env: dict[str, str] = ENV
    of: dict[str, Any] | None = Field(None, description="the node that acts: it writes `action`")
    players: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="the nodes of several players, by the names that the world has for them"
    )
    max_steps: int = Field(20, ge=1, le=MAX_STEPS, description="actions of all players together")
    history: int = Field(4, ge=0, le=MAX_STEPS, description="earlier turns that a player sees")
    chars: int = Field(4000, ge=20, description="characters of an observation that a player sees")
    observations: Literal["full", "diff"] = Field(
        "full", description="diff: after a player's first one, only the lines that changed"
    )

    observe: dict[str, Any] | None = Field(
        None, description="a node between world and players: it reads and writes `observation`, e.g. to shorten it"
    )
    actions: ActionSettings = Field(
        ActionSettings(), description="actions and tools of the world that players do not have, or know by other names"
    )

    @model_validator(mode="after")
    def _one_way(self) -> PlayConfig:
        if (self.of is None) == (not self.players):
            raise ValueError("give either `of`, a node, or `players`")
        return self
