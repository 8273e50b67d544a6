"""Settings of all nodes that have tools."""

from __future__ import annotations

from typing import Any

from pydantic import Field

#: The description of `tools`.
TOOLS = "python:module.function, mcp:COMMAND ARGS#name, or mcp:COMMAND ARGS for all tools of a server"

#: The environment variables of servers.
ENV: Any = Field(
    default_factory=dict,
    exclude_if=lambda env: not env,
    description="additional environment variables of MCP servers; $NAME: from our environment",
)
