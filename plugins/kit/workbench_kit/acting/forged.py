"""Functions that a model may call, with their source in the workflow file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from workbench_kit.acting.tools import Tool


class ForgedExample(BaseModel):
    """The function's test: a call and the expected result (`workbench agent functions test`)."""

    model_config = ConfigDict(extra="forbid")

    arguments: dict[str, Any] = Field(description="arguments by name")
    result: Any = Field(description="the expected result")


class Forged(BaseModel):
    """A tool with its source in the workflow file, as written by the optimizer `forge`."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z_]\w{0,63}$", description="the function to call, and the tool's name")
    description: str = Field("", description="what it does, for the model")
    parameters: dict[str, Any] = Field(default_factory=dict, description="JSON Schema of its arguments")
    source: str = Field(max_length=100_000, description="Python that defines the function")
    example: ForgedExample | None = Field(None, description="{arguments, result}: the function's test")

    def tool(self) -> Tool:
        def call(arguments: Mapping[str, Any]) -> Any:
            raise AssertionError("forged functions must run in the sandbox")

        return Tool(self.name, self.description, self.parameters, call, self.source)
