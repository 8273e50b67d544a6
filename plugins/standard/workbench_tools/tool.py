"""The `tool` node: one call of a tool, with fields as arguments."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pydantic import Field

from workbench.errors import Defect, placed_at
from workbench.runtime import Context
from workbench.workflow import NodeConfig, NodeKind, Surroundings
from workbench_kit.acting import ENV, call_tool, find_tool_defects, load_tool
from workbench_tools.live_calls import LiveCalls


class ToolConfig(NodeConfig):
    """Settings of a `tool` node."""

    tool: str = Field(description="python:module.function, python:file.py:function, or mcp:COMMAND ARGS#name")
    env: dict[str, str] = ENV
    arguments: dict[str, str] = Field(
        default_factory=dict, description="field of each argument; default: the field of the same name"
    )
    output: str = Field("result", description="the field that receives the result")
    constants: dict[str, Any] = Field(default_factory=dict, description="arguments with fixed values")
    live: LiveCalls | None = Field(
        None,
        exclude_if=lambda live: live is None,
        description="retries and a cache by arguments, for a tool that calls a live service; {}: defaults",
    )


class ToolNode(NodeKind):
    """Calls a Python function or an MCP tool once for each example; the result is journalled."""

    Config = ToolConfig
    primary = "tool"
    learnable = {"constants": "tools"}
    config: ToolConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        with placed_at("tool"):
            self.tool = load_tool(config.tool, base, config.env, self.code)
        # If the file names the arguments, the server is not asked for them.
        required = () if config.arguments else self.tool.schema.get("required", ())
        self.arguments = config.arguments or {n: n for n in required if n not in config.constants}

    def defects(self, around: Surroundings) -> Iterable[Defect]:
        return find_tool_defects(self.tool, self.base, ("tool",), told=False)

    def tool_names(self) -> Collection[str]:
        return [self.tool.name]

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self.arguments.values())

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.config.output,)

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        arguments = {**self.config.constants, **{a: inputs[f] for a, f in self.arguments.items()}}
        return {self.config.output: await call_tool(ctx, self.tool, arguments, self.config.live)}
