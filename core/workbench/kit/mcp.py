"""Tools of MCP servers on stdio (extra `[mcp]`)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from workbench.distribution import pip_install
from workbench.errors import NodeError


class McpCall:
    """One tool of an MCP server on stdio. The server is started for each call: no state leaks between examples."""

    def __init__(self, command: tuple[str, ...], name: str, base: Path):
        self.command, self.name, self.base = command, name, base

    def __call__(self, arguments: Mapping[str, Any]) -> Any:
        return asyncio.run(self._call(arguments))

    async def _call(self, arguments: Mapping[str, Any]) -> Any:
        try:
            from mcp import ClientSession, StdioServerParameters
            from mcp.client.stdio import stdio_client
        except ImportError:
            raise NodeError("tool", f"MCP tools need: {pip_install('mcp')}") from None
        command = sys.executable if self.command[0] == "python" else self.command[0]
        server = StdioServerParameters(command=command, args=list(self.command[1:]), cwd=str(self.base))
        async with AsyncExitStack() as stack:
            read, write = await stack.enter_async_context(stdio_client(server))
            session = await stack.enter_async_context(ClientSession(read, write))
            await session.initialize()
            result = await session.call_tool(self.name, dict(arguments))
        text = "\n".join(getattr(part, "text", "") for part in getattr(result, "content", ()))
        if getattr(result, "is_error", getattr(result, "isError", False)):  # the name changed with mcp 2
            raise NodeError("tool", f"{self.name}: {text[:500]}")
        structured = getattr(result, "structured_content", getattr(result, "structuredContent", None))
        return structured if structured is not None else text
