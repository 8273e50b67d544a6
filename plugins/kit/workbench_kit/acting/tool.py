"""A tool: its description for models, its arguments, its call. `workbench_kit.acting` loads and calls tools."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from workbench.base.concurrency import run_in_thread
from workbench.errors import NodeError, SpecError, suggest
from workbench.spec import SERVER, parse_server
from workbench_kit.acting.bound_function import BoundFunction
from workbench_kit.acting.mcp import Listed, McpCall, is_listed, list_tools
from workbench_kit.acting.mcp_session import Server
from workbench_kit.acting.schemas import as_parameters, fit_values, schema_defaults

#: Maximum number of characters of a tool's error.
LONGEST_ERROR = 2_000


@dataclass(frozen=True)
class Tool:
    """A callable with a name, a description and a JSON Schema of its arguments.

    folder: watched for files that it leaves: the folder of its code, or its server's working folder.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    call: Callable[[Mapping[str, Any]], Any]
    source: str = field(default="")
    is_async: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of arguments, in addition to those in the schema
    folder: Path | None = None

    @property
    def all_defaults(self) -> dict[str, Any]:
        """Return the known default values of optional arguments."""
        return {**schema_defaults(self.schema), **self.defaults}

    @property
    def definition(self) -> dict[str, Any]:
        """Return the definition for servers with native tools."""
        function = {"name": self.name, "description": self.description, "parameters": as_parameters(self.schema)}
        return {"type": "function", "function": function}

    @property
    def is_known(self) -> bool:
        """Return True if its description and schema have been loaded."""
        return True

    def described(self, text: str) -> Tool:
        """Return the same tool with another description."""
        found = copy.copy(self)
        object.__setattr__(found, "description", text)
        return found

    async def __call__(self, arguments: Mapping[str, Any], timeout: float = 300.0) -> Any:
        """Call the tool. Python functions that are not coroutines run in a thread. Raises NodeError("tool")."""
        arguments = read_arguments(self, arguments)
        try:
            if self.is_async:
                async with asyncio.timeout(timeout):
                    return await self.call(arguments)
            found = await run_in_thread(partial(self.call, arguments), timeout)
            if not inspect.isawaitable(found):
                return found
            async with asyncio.timeout(timeout):  # a coroutine function behind an ordinary decorator
                return await found
        except (NodeError, SpecError):
            raise
        except TimeoutError as error:
            raise NodeError("tool", f"{self.name}: {str(error) or f'no result within {timeout:g} s'}") from error
        except Exception as error:
            raise NodeError("tool", f"{self.name}: {type(error).__name__}: {error}"[:LONGEST_ERROR]) from error


class ServerTool(Tool):
    """A tool of an MCP server. Its description and schema are requested on first use."""

    call: McpCall

    def __getattr__(self, name: str) -> Any:  # for fields that are not set yet
        if name not in ("description", "schema"):
            raise AttributeError(name)
        listed = _listed(self.call.server, self.name)
        for key in {"description", "schema"} - vars(self).keys():
            object.__setattr__(self, key, getattr(listed, key))
        return getattr(listed, name)

    @property
    def is_known(self) -> bool:
        return "schema" in vars(self) or is_listed(self.call.server)


def _listed(server: Server, name: str) -> Listed:
    """Return a tool as its server describes it. Raise SpecError if there is none with this name."""
    found = {tool.name: tool for tool in list_tools(server)}
    if name not in found:
        raise SpecError(f"the MCP server `{server}` has no tool '{name}'", hint=suggest(name, list(found)))
    return found[name]


async def know_tools(tools: Iterable[Tool]) -> None:
    """Request descriptions and schemas that have not been loaded yet. Raise SpecError."""
    for tool in tools:
        if not tool.is_known:
            await asyncio.to_thread(getattr, tool, "schema")


def read_arguments(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call, converted to a function's types, with numbers given as texts parsed. Raises
    NodeError("tool") for unknown or missing arguments."""
    if isinstance(tool.call, BoundFunction):
        return tool.call.read(tool.name, arguments)
    if not tool.is_known:
        return dict(arguments)  # the server reports errors
    schema = tool.schema
    open_ended = "properties" not in schema or schema.get("additionalProperties")
    if not open_ended and (unknown := set(arguments) - set(schema["properties"])):
        raise NodeError("tool", f"{tool.name} takes no argument '{sorted(unknown)[0]}'")
    if missing := set(schema.get("required", ())) - set(arguments):
        raise NodeError("tool", f"{tool.name} needs the argument '{sorted(missing)[0]}'")
    return fit_values(schema, arguments)


def as_rules_see(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the actual call, as JSON. Raise NodeError("tool") like `read_arguments`."""
    values = read_arguments(tool, arguments)
    return tool.call.as_json(values) if isinstance(tool.call, BoundFunction) else values


@lru_cache(maxsize=512)
def server_tools(address: str, base: Path, env: tuple[tuple[str, str], ...], asked: bool) -> Sequence[Tool]:
    """Return the tools of a server, or the one named in its address. asked: whether the server may be started."""
    parsed = parse_server(address)
    server = Server(parsed.words, base, env, parsed.command)
    if asked:
        server.variables()
    names = [parsed.tool] if parsed.tool else [tool.name for tool in list_tools(server)] if asked else []
    found: list[Tool] = []
    for name in names:
        tool = object.__new__(ServerTool)
        source = f"{SERVER}{parsed.command}#{name}" + (f" {json.dumps(env)}" if env else "")
        values: dict[str, Any] = {"name": name, "call": McpCall(server, name), "source": source, "is_async": False}
        if not asked:
            values |= {"description": f"The tool {name} of an MCP server.", "schema": {}}
        for key, value in {**values, "defaults": {}, "folder": base}.items():
            object.__setattr__(tool, key, value)
        found.append(tool)
    return found
