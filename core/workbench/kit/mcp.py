"""Tools of MCP servers on stdio (extra `[mcp]`)."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from workbench.concurrency import remaining_seconds
from workbench.distribution import pip_install
from workbench.errors import NodeError
from workbench.text import visible

#: Characters of a result. It goes into prompts and is kept.
LONGEST_RESULT = 1_000_000


class McpCall:
    """One tool of an MCP server on stdio. The server is started for each call: no state leaks between examples."""

    def __init__(self, command: tuple[str, ...], name: str, base: Path):
        self.command, self.name, self.base = command, name, base

    def __call__(self, arguments: Mapping[str, Any]) -> Any:
        return asyncio.run(self._call(arguments))

    async def _call(self, arguments: Mapping[str, Any]) -> Any:
        try:
            import mcp  # noqa: F401
        except ImportError:
            raise NodeError("tool", f"MCP tools need: {pip_install('mcp')}") from None
        seconds = remaining_seconds()
        with tempfile.TemporaryFile("w+", errors="replace") as said:  # not the terminal, which escapes could control
            try:
                # A little earlier than the deadline, so that the server is ended before its thread is given up.
                async with asyncio.timeout(None if seconds is None else max(0.1, seconds - 3)):
                    result = await self._result(arguments, said)
            except TimeoutError:
                raise
            except Exception as error:
                said.seek(0)
                tail = visible(" ".join(said.read()[-300:].split()))
                cause = " ".join(str(_cause(error))[:500].split())
                raise NodeError("tool", f"{self.name}: {cause}" + (f"; it said: {tail}" if tail else "")) from error
        text = "\n".join(getattr(part, "text", "") for part in getattr(result, "content", ()))
        if getattr(result, "is_error", getattr(result, "isError", False)):  # the name changed with mcp 2
            raise NodeError("tool", f"{self.name}: {text[:500]}")
        if len(text) > LONGEST_RESULT:
            raise NodeError("tool", f"{self.name}: a result of {len(text)} characters, over {LONGEST_RESULT}")
        structured = getattr(result, "structured_content", getattr(result, "structuredContent", None))
        return structured if structured is not None else text

    async def _result(self, arguments: Mapping[str, Any], errlog: Any) -> Any:
        from mcp import ClientSession, StdioServerParameters
        from mcp.client.stdio import stdio_client

        command = sys.executable if self.command[0] == "python" else self.command[0]
        server = StdioServerParameters(command=command, args=list(self.command[1:]), cwd=str(self.base))
        async with AsyncExitStack() as stack:
            read, write = await stack.enter_async_context(stdio_client(server, errlog=errlog))
            session = await stack.enter_async_context(ClientSession(read, write))
            await session.initialize()
            return await session.call_tool(self.name, dict(arguments))


def _cause(error: BaseException) -> BaseException:
    """The first error of a group, which anyio makes of an error in one of its tasks."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
