"""A node without a model: the first words of a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from workbench import Context, NodeKind
from workbench.workflow import NodeConfig


class ClipConfig(NodeConfig):
    """Settings of a `clip` node."""

    field: str = Field(description="the field to shorten")
    write: str = Field("answer", description="the field to write")
    words: int = Field(30, ge=1, description="words that are kept")


class Clip(NodeKind):
    """Writes the first words of a field to another."""

    Config = ClipConfig
    primary = "field"
    learnable = {"words": "number"}

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.config.field,)

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.config.write,)

    @property
    def max_calls(self) -> int:
        return 0

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        return {self.config.write: " ".join(str(inputs[self.config.field]).split()[: self.config.words])}
