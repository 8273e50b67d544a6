"""Serve functions as tools of an MCP server on stdin and stdout.

Calls that the file's policy allows run in the sandbox.

Source: the Model Context Protocol, tools and the stdio transport, by the Python SDK (mcp 2).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from workbench.base.distribution import pip_install
from workbench.errors import SpecError
from workbench.runtime import Sandbox, SandboxResult, open_sandbox
from workbench.task import Function
from workbench_kit.acting import refusal, schema_defaults


def tool_names(functions: Sequence[Function]) -> dict[str, Function]:
    """Return functions by served name: their own name, prefixed with the node's if two functions share it."""
    counts = Counter(f.name for f in functions)
    return {
        f.name if counts[f.name] == 1 else f"{f.address.removeprefix('nodes.').replace('.', '_')}_{f.name}": f
        for f in functions
    }


async def serve(functions: Sequence[Function], name: str) -> None:
    """Serve until stdin ends. Raises SpecError if there are no functions, and SandboxError if there is no sandbox."""
    try:
        from mcp.server.lowlevel import Server
        from mcp.server.stdio import stdio_server
        from mcp.types import (
            CallToolRequestParams,
            CallToolResult,
            ListToolsResult,
            PaginatedRequestParams,
            TextContent,
            Tool,
        )
    except ImportError:
        raise SpecError(
            "serving functions needs the MCP SDK, version 2",
            hint=f"{pip_install('standard[mcp]')}, and pip install 'mcp>=2'",
        ) from None
    if not functions:
        raise SpecError("this file has no functions", hint="Name one with `functions:` of an agent, or a `code` node.")
    tools = tool_names(functions)
    sandbox = await open_sandbox()

    async def list_tools(ctx: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(
            tools=[
                Tool(name=n, description=f.description, input_schema={"type": "object", **f.parameters})
                for n, f in tools.items()
            ]
        )

    async def call_tool(ctx: Any, params: CallToolRequestParams) -> CallToolResult:
        text, structured, failed = await call_function(tools, sandbox, params.name, params.arguments or {})
        return CallToolResult(
            content=[TextContent(type="text", text=text)], structured_content=structured, is_error=failed
        )

    server = Server(name, on_list_tools=list_tools, on_call_tool=call_tool)
    try:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
    finally:
        await sandbox.aclose()


async def call_function(
    tools: dict[str, Function], sandbox: Sandbox, name: str, arguments: dict[str, Any]
) -> tuple[str, Any, bool]:
    """Call a tool. Returns (result as text, result as an object, whether it is an error).

    As in a run, policy rules match the function's own name. `ask` counts as a refusal, since no user is present.
    """
    function = tools.get(name)
    if function is None:
        return f"there is no tool '{name}'; tools: {', '.join(tools)}", None, True
    if function.policy is not None:
        given = {**schema_defaults(function.parameters), **arguments}
        refused = refusal(function.name, *function.policy.verdict(function.name, given))
        if refused is not None:
            return refused, None, True
    found: SandboxResult = await sandbox.call(function.source, function.name, arguments, timeout=function.timeout)
    if not found.ok:
        line = f" in line {found.line}" if found.line else ""
        return f"{found.kind}{line}: {found.message}", None, True
    text = found.value if isinstance(found.value, str) else json.dumps(found.value, ensure_ascii=False)
    return text, found.value if isinstance(found.value, dict) else {"result": found.value}, False
