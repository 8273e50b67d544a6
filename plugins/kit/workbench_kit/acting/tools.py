"""Tools that a workflow may call, from Python code or an MCP server; and parsing of the calls that models write.

`python:path/tools.py:lookup`    a function in a file or a module (`workbench.spec`)
`mcp:COMMAND ARGS#name`          the tool `name` of the MCP server that the command starts (extra `[mcp]`)
`mcp:COMMAND ARGS`               all its tools
`sandbox:session`                runs Python that the model writes, in the sandbox (`code_session`)

A model without native tool calls is asked for a line `call: {"tool": NAME, "arguments": {...}}`.
`workbench_kit.answers` reads this line, and other forms that models write instead.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from workbench.base.type_guards import copied, dicts_in, is_dict
from workbench.errors import NodeError, SpecError, placed_at
from workbench.lm import Response
from workbench.runtime import Context
from workbench.spec import (
    PREFIX,
    SERVER,
    Code,
    load_python,
    parse_address,
    parse_server,
    read_user_code,
    set_variables,
    start_program,
)
from workbench_kit.acting.beside import Leftovers
from workbench_kit.acting.bound_function import BoundFunction
from workbench_kit.acting.code_session import NOTHING, SESSION, Reach, is_session, session_of
from workbench_kit.acting.mcp import McpCall
from workbench_kit.acting.mcp_session import RowSessions, in_sessions
from workbench_kit.acting.permission import permitted
from workbench_kit.acting.results import cut_result
from workbench_kit.acting.schemas import told_arguments
from workbench_kit.acting.tool import Tool, as_rules_see, know_tools, server_tools
from workbench_kit.answers import Reading, correction, known_name, load_loose, read_text, wire_name

_RUNS_CODE = "Run Python code, in this form or in a ```python fence. The result is what it prints. Variables stay."
_CODE = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}


_PARALLEL = ("multi_tool_use.parallel", "multi_tool_use_parallel")


class CallsTools(Protocol):
    """A way to call tools, e.g. with retries (`workbench_tools.live_calls`)."""

    async def call(self, ctx: Context, tool: Tool, arguments: Mapping[str, Any]) -> Any: ...


async def call_tool(
    ctx: Context,
    tool: Tool,
    arguments: Mapping[str, Any],
    live: CallsTools | None = None,
    reach: Reach = NOTHING,
) -> Any:
    """Call a tool if the policy allows it, and return its result. Results and failures are journalled.

    live: makes the call in place of a single attempt. reach: objects available to a model's code. Raises
    NodeError("policy") and NodeError("tool").
    """
    if ctx.restricted:
        await know_tools([tool])  # its rules may be about omitted arguments
    given = as_rules_see(tool, arguments)
    async with permitted(ctx, tool.name, given, tool.all_defaults if ctx.restricted else None):
        if is_session(tool):
            found = await session_of(ctx, tool).run(ctx, given["code"], reach)
        else:
            found = await _call_permitted(ctx, tool, arguments, given, live)
        return ctx.received(tool.name, found)


async def _call_permitted(
    ctx: Context, tool: Tool, arguments: Mapping[str, Any], given: Mapping[str, Any], live: CallsTools | None
) -> Any:
    leftovers = await ctx.shared("tools", Leftovers.open)
    sessions = ctx.row.get((RowSessions, ctx.draw.replica), RowSessions)
    replayed = True

    async def call() -> dict[str, Any]:
        try:
            if live is not None:
                return {"value": cut_result(await live.call(ctx, tool, arguments))}
            return {"value": cut_result(await tool(copied(arguments), ctx.program.runtime.timeout))}
        except NodeError as error:
            return {"error": str(error)}

    async def run() -> dict[str, Any]:
        nonlocal replayed
        replayed = False
        with in_sessions(sessions):
            if tool.folder is None:
                return await call()
            beside = await leftovers.look([tool.folder])
            found = await call()
        left = await asyncio.to_thread(beside.find_changed)
        return {**found, "left_beside": left} if left else found

    found = await ctx.effect("tool", [tool.source, dict(arguments)], run)
    leftovers.count(ctx.node, found.get("left_beside", ()))
    if "error" in found:
        raise NodeError("tool", found["error"])
    if replayed and live is None and isinstance(tool.call, McpCall):
        sessions.note(tool.call.server, tool.call.name, given)
    return found["value"]


async def run_in_sandbox(ctx: Context, tool: Tool, arguments: Mapping[str, Any]) -> Any:
    """Run the tool's own source in the sandbox and return its result. Raises NodeError("tool")."""
    found = await ctx.sandboxed(tool.source, tool.name, arguments)
    if found["kind"] == "ok":
        return found["value"]
    line = f" in line {found['line']}" if found["line"] else ""
    raise NodeError("tool", f"{tool.name}: {found['kind']}{line}: {found['message']}")


def load_tool(address: str, base: Path, env: Mapping[str, str] | None = None, code: Code = "loaded") -> Tool:
    """Load the tool at an address. Raises SpecError with a correction.

    Args:
        base: the folder of the workflow file.
        env: further variables of the environment of a server; $NAME stands for one of ours.
        code: unless it is `loaded`, a Python tool is an outline, and no server is started.
    """
    if address.startswith(SERVER) and not parse_server(address).tool:
        raise SpecError(f"'{address}' names all tools of a server", hint=f"Write {address}#name for one of them.")
    return tools_at(address, base, env, code)[0]


def load_tools(
    addresses: Sequence[str], base: Path, env: Mapping[str, str] | None = None, code: Code = "loaded"
) -> dict[str, Tool]:
    """Load the tools at addresses, by name (`load_tool`).

    Raises SpecError at the place of an invalid address, or of a tool with a duplicate name.
    """
    found: dict[str, Tool] = {}
    for number, address in enumerate(addresses):
        try:
            with placed_at("tools", number):
                tools = tools_at(address, base, env, code)
        except SpecError as error:
            raise error if error.path else SpecError(error.message, hint=error.hint, path=("tools", number)) from error
        for tool in tools:
            if found.setdefault(tool.name, tool) is not tool:
                hint = f"Rename one of them, or name the tools that you need: {SERVER}COMMAND#name."
                raise SpecError(f"two tools are named '{tool.name}'", hint=hint, path=("tools", number))
    return found


def has_unknown_tools(addresses: Iterable[str], code: Code) -> bool:
    """Return True if an address stands for all tools of a server that is not asked, as the code is not `loaded`."""
    return code != "loaded" and any(a.startswith(SERVER) and not parse_server(a).tool for a in addresses)


def tools_at(address: str, base: Path, env: Mapping[str, str] | None = None, code: Code = "loaded") -> Sequence[Tool]:
    """Return the tools at an address (`load_tool`): several for a server without a tool's name, or none if it is not
    asked.

    Raises SpecError with a correction.
    """
    enter_tool(address, base, env)
    if address.startswith(SERVER):
        return server_tools(address, base.resolve(), tuple((env or {}).items()), code == "loaded")
    if address.partition("#")[0] == SESSION:
        return [Tool("python", _RUNS_CODE, _CODE, _outside, address)]
    if not address.startswith(PREFIX):
        raise SpecError(
            f"'{address}' is not a tool",
            hint="Write python:file.py:function, mcp:COMMAND ARGS#tool_name or sandbox:session.",
        )
    if code == "unread":
        return [Tool(parse_address(address).name, "", {}, _outside, address)]
    return [_python_tool(address, base, code)]  # the module is cached by its content, so an edited file is read again


def enter_tool(address: str, base: Path, env: Mapping[str, str] | None = None) -> None:
    """Pass the doors of the tool at an address, with further variables for a server (`workbench.spec`)."""
    if address.startswith(SERVER):
        start_program(parse_server(address).command, base)
    elif address.startswith(PREFIX):
        load_python(address, base)
    set_variables(env or {}, base)


def _outside(arguments: Mapping[str, Any]) -> Any:
    raise AssertionError("code of a model runs in the sandbox alone, and an outline is not called")


def _python_tool(address: str, base: Path, code: Code) -> Tool:
    function = read_user_code(address, base, code)
    place, bound = parse_address(address), BoundFunction(function)
    doc, is_async = inspect.getdoc(function) or "", inspect.iscoroutinefunction(function)
    return Tool(place.name, doc, bound.schema, bound, address, is_async, bound.defaults, place.file(base).parent)


def describe_tool(tool: Tool, hidden: Collection[str] = ()) -> str:
    """Return a line for a prompt: a tool's name, arguments (without the hidden ones) and description."""
    lines = tool.description.split("\n")  # a server's description has no summary on its first line
    about = " ".join(" ".join(lines if isinstance(tool.call, McpCall) else lines[:1]).split())
    return f"- {tool.name}({json.dumps(told_arguments(tool.schema, hidden), ensure_ascii=False)}): {about}"


def read_calls(
    response: Response, tools: Collection[Tool] = (), outputs: Collection[str] = (), hidden: Collection[str] = ()
) -> Reading:
    """Read the calls in a response: native calls, or the first call in its text (`workbench_kit.answers`).

    Args:
        response: of the model.
        tools: the callable tools; forms other than the line `call: {...}` count only for these.
        outputs: labels of an answer in the requested form.
        hidden: arguments that the model does not provide.

    Returns:
        The reading. Arguments that are not JSON are None.
    """
    known = argument_names(tools, hidden)
    if response.tool_calls:
        calls = [(c, known_name(c["name"], known) or c["name"]) for c in response.tool_calls]
        return Reading([{"id": c["id"], "name": n, "arguments": load_arguments(c["arguments"])} for c, n in calls])
    return read_text(response.text, known, outputs, response.finish == "length")


def fit_calls(response: Response, names: Mapping[str, str]) -> Response:
    """Return an answer with its calls in the form that a server takes back: with names that it knows, one call each.

    names: server-side tool names, by the tools' own names (`wire_names`). A call of no tool keeps its name, as servers
    allow.
    """
    if not response.tool_calls:
        return response
    calls = [part for call in response.tool_calls for part in _apart(call)]
    fit = [{**c, "name": names[own] if (own := known_name(c["name"], names)) else wire_name(c["name"])} for c in calls]
    if fit == [dict(call) for call in response.tool_calls]:
        return response
    message, new = response.message, {call["name"]: one["name"] for call, one in zip(calls, fit, strict=True)}
    if message is not None:
        whole = len(calls) == len(response.tool_calls)
        message = {**message, "tool_calls": [_renamed(c, new) for c in message["tool_calls"]]} if whole else None
    return replace(response, tool_calls=tuple(fit), message=message)


def _apart(call: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the calls inside a call of OpenAI's wrapper `multi_tool_use.parallel`; for any other, the call itself."""
    given = load_arguments(call["arguments"]) if call["name"].endswith(_PARALLEL) else None
    uses = [*dicts_in(given.get("tool_uses"))] if is_dict(given) else []
    if not uses:
        yield dict(call)
    for n, use in enumerate(uses):
        name, given = str(use.get("recipient_name") or use.get("name") or ""), use.get("parameters")
        yield {**call, "id": f"{call['id']}{n or ''}", "name": name, "arguments": {} if given is None else given}


def _renamed(call: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    function = call["function"]
    return {**call, "function": {**function, "name": names.get(function["name"], function["name"])}}


def argument_names(tools: Collection[Tool], hidden: Collection[str] = ()) -> dict[str, list[str]]:
    """Return the known argument names of each tool, in order, without the hidden ones."""
    return {tool.name: [a for a in tool.schema.get("properties", ()) if a not in hidden] for tool in tools}


def unreadable_call(
    ctx: Context, response: Response, reading: Reading, tools: Collection[Tool], hidden: Collection[str] = ()
) -> str:
    """Return the reply to an unreadable call. Also counts it on the span, for the report."""
    seen = {"said": response.text[:200], "why": reading.fault}
    ctx.note(unreadable_calls=[*ctx.span.notes.get("unreadable_calls", []), seen])
    return correction(reading, argument_names(tools, hidden))


def load_arguments(text: Any) -> Any:
    """Parse the arguments of a native call, which servers send as JSON; None if they are invalid."""
    return load_loose(text) if isinstance(text, str) else text
