"""Tools that a workflow may call, from Python code or an MCP server; and the calls that models write.

`python:path/tools.py:lookup`    a function in a file or a module (`workbench.user_code`)
`mcp:COMMAND ARGS#name`          the tool `name` of the MCP server that the command starts (extra `[mcp]`)
`sandbox:python`                 runs Python that the model writes, in the sandbox; the result is the printed output

A model without native tool calls is asked for a line `call: {"tool": NAME, "arguments": {...}}`.
`workbench.kit.call_parser` reads this line, and other forms that models write instead.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import shlex
import typing
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol

from workbench.concurrency import run_in_thread
from workbench.errors import NodeError, SpecError
from workbench.kit.answers.json_text import load_loose
from workbench.kit.beside import Leftovers
from workbench.kit.call_parser import Reading, correction, read_text
from workbench.kit.mcp import McpCall
from workbench.lm import Response
from workbench.runtime import Context
from workbench.spec import PolicySpec, refusal, strictest_verdict
from workbench.user_code import PREFIX, instead_of_code, load_user_code, parse_address

INTERPRETER = "sandbox:python"
_INTERPRET = """
import contextlib, io

def run(code):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {"__name__": "__main__"})
    return out.getvalue().strip()[:8000] or "(nothing was printed)"
"""


#: Characters of what a tool says where it fails.
LONGEST_ERROR = 2_000


@dataclass(frozen=True)
class Tool:
    """A callable with a name, a description and a JSON Schema of its arguments. folder: where what it leaves in files
    is looked for: beside its code, or where its server runs."""

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
        """The known default values of optional arguments."""
        return {**schema_defaults(self.schema), **self.defaults}

    @property
    def definition(self) -> dict[str, Any]:
        """What a server with native tools is told of it."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.schema)}
        return {"type": "function", "function": function}

    async def __call__(self, arguments: Mapping[str, Any], timeout: float = 300.0) -> Any:
        """Call it. Python functions that are not coroutines run in a thread. Raises NodeError("tool")."""
        check_arguments(self, arguments)
        try:
            if self.is_async:
                async with asyncio.timeout(timeout):
                    return await self.call(arguments)
            return await run_in_thread(partial(self.call, arguments), timeout)
        except NodeError:
            raise
        except TimeoutError as error:
            raise NodeError("tool", f"{self.name}: {str(error) or f'no result within {timeout:g} s'}") from error
        except Exception as error:
            raise NodeError("tool", f"{self.name}: {type(error).__name__}: {error}"[:LONGEST_ERROR]) from error


def check_arguments(tool: Tool, arguments: Mapping[str, Any]) -> None:
    """Raise NodeError("tool") for arguments that the tool does not take, or lacks."""
    if unknown := set(arguments) - set(tool.schema.get("properties", arguments)):
        raise NodeError("tool", f"{tool.name} takes no argument '{sorted(unknown)[0]}'")
    if missing := set(tool.schema.get("required", ())) - set(arguments):
        raise NodeError("tool", f"{tool.name} needs the argument '{sorted(missing)[0]}'")


def schema_defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The default values in a JSON Schema of arguments."""
    properties = schema.get("properties", {})
    return {name: p["default"] for name, p in properties.items() if isinstance(p, Mapping) and "default" in p}


class CallsTools(Protocol):
    """How a tool is called, e.g. with retries (`workbench.kit.live_calls`)."""

    async def call(self, ctx: Context, tool: Tool, arguments: Mapping[str, Any]) -> Any: ...


async def call_tool(ctx: Context, tool: Tool, arguments: Mapping[str, Any], live: CallsTools | None = None) -> Any:
    """Call a tool if the policy allows it, and return its result. Results and failures are journalled.

    live: makes the call in place of a single attempt. Raises NodeError("policy") and NodeError("tool").
    """
    await check_policy(ctx, tool.name, arguments, tool.all_defaults)
    if tool.source == INTERPRETER:
        return await run_in_sandbox(ctx, Tool("run", "", tool.schema, tool.call, _INTERPRET), arguments)

    leftovers = await ctx.shared("tools", Leftovers.open)

    async def call() -> dict[str, Any]:
        try:
            if live is not None:
                return {"value": await live.call(ctx, tool, arguments)}
            return {"value": await tool(arguments, ctx.program.runtime.timeout)}
        except NodeError as error:
            return {"error": str(error)}

    async def run() -> dict[str, Any]:
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
    return found["value"]


async def run_in_sandbox(ctx: Context, tool: Tool, arguments: Mapping[str, Any]) -> Any:
    """Run the tool's own source in the sandbox and return its result. Raises NodeError("tool")."""
    found = await ctx.sandboxed(tool.source, tool.name, arguments)
    if found["kind"] == "ok":
        return found["value"]
    line = f" in line {found['line']}" if found["line"] else ""
    raise NodeError("tool", f"{tool.name}: {found['kind']}{line}: {found['message']}")


async def check_policy(
    ctx: Context, tool: str, arguments: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> None:
    """Raise NodeError("policy") for a call that a policy refuses, or the user on request. The policies are those of the
    workflow file and, for an inner workflow, of its own file."""
    runtime = ctx.program.runtime
    await check_call((runtime.policy, *ctx.policies), tool, arguments, runtime.consent, ctx.effect, defaults)


async def check_call(
    policies: Iterable[PolicySpec],
    tool: str,
    arguments: Mapping[str, Any],
    consent: Callable[[str, Mapping[str, Any]], bool] | None,
    effect: Callable[[str, Any, Callable[[], Awaitable[bool]]], Awaitable[bool]],
    defaults: Mapping[str, Any] | None = None,
) -> None:
    """Raise NodeError("policy") for a call that one of the policies refuses, or the user where a policy says `ask`.

    Args:
        policies: all of them must allow the call.
        tool: its name.
        arguments: of the call.
        consent: asks the user; None if nobody is present, which refuses.
        effect: journals the user's answer.
        defaults: values of omitted arguments, which rules treat as given.
    """
    try:
        verdict, why = strictest_verdict(policy.verdict(tool, {**(defaults or {}), **arguments}) for policy in policies)
    except RecursionError:
        raise NodeError("policy", f"the arguments of {tool} are nested too deeply to be checked") from None
    if verdict == "ask" and consent is not None:

        async def ask() -> bool:
            return await asyncio.to_thread(consent, tool, arguments)

        if not await effect("consent", [tool, dict(arguments)], ask):
            raise NodeError("policy", f"the user did not allow {tool}{f': {why}' if why else ''}")
    elif refused := refusal(tool, verdict, why):
        raise NodeError("policy", refused)


def load_tool(address: str, base: Path) -> Tool:
    """The tool at an address. Raises SpecError that says what to write instead.

    Where code is not run (`workbench.user_code`), a Python tool is an outline.
    """
    if not address.startswith(PREFIX):
        return _load_tool(address, base)
    if instead_of_code() == "names":
        return Tool(parse_address(address).name, "", {}, _outside, address)
    return _python_tool(address, base)  # the module is kept by its content, so an edited file is read again


@lru_cache(maxsize=512)
def _load_tool(address: str, base: Path) -> Tool:
    if address == INTERPRETER:
        schema = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}
        return Tool("python", "Run Python code; the result is what it prints.", schema, _outside, address)
    if address.startswith("mcp:"):
        command, mark, name = address.removeprefix("mcp:").rpartition("#")
        if not mark or not command.strip() or not name:
            raise SpecError(f"'{address}' does not name an MCP tool", hint="Write mcp:COMMAND ARGS#tool_name.")
        call = McpCall(tuple(shlex.split(command)), name, base)
        return Tool(name, f"The tool {name} of an MCP server.", {}, call, address, folder=base.resolve())
    raise SpecError(
        f"'{address}' is not a tool",
        hint="Write python:file.py:function, mcp:COMMAND ARGS#tool_name or sandbox:python.",
    )


def _outside(arguments: Mapping[str, Any]) -> Any:
    raise AssertionError("code of a model runs in the sandbox alone, and an outline is not called")


def _python_tool(address: str, base: Path) -> Tool:
    function = load_user_code(address, base)

    def call(arguments: Mapping[str, Any]) -> Any:
        return function(**arguments)

    async def acall(arguments: Mapping[str, Any]) -> Any:
        coroutine: Any = function(**arguments)
        return await coroutine

    doc, is_async = inspect.getdoc(function) or "", inspect.iscoroutinefunction(function)
    place, run = parse_address(address), acall if is_async else call
    folder = place.file(base).parent
    return Tool(place.name, doc, _schema(function), run, address, is_async, _defaults(function), folder)


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def _schema(function: Callable[..., Any]) -> dict[str, Any]:
    """The JSON Schema of a function's arguments, from its annotations."""
    from pydantic import TypeAdapter

    try:
        hints = typing.get_type_hints(function)
    except Exception:
        hints = {}
    properties, required = {}, []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        properties[name] = TypeAdapter(hints[name]).json_schema() if name in hints else {}
        if parameter.default is parameter.empty:
            required.append(name)
    return {"type": "object", "properties": properties, "required": required}


def describe_tool(tool: Tool, hidden: Collection[str] = ()) -> str:
    """One line for a prompt: a tool's name, arguments (without the hidden ones) and description."""
    properties = tool.schema.get("properties", {})
    arguments = {name: schema.get("type", "any") for name, schema in properties.items() if name not in hidden}
    return f"- {tool.name}({json.dumps(arguments)}): {tool.description.splitlines()[0] if tool.description else ''}"


def read_calls(
    response: Response, tools: Collection[Tool] = (), outputs: Collection[str] = (), hidden: Collection[str] = ()
) -> Reading:
    """Read the calls in a response: native calls, or the first call in its text (`workbench.kit.call_parser`).

    Args:
        response: of the model.
        tools: the callable tools; forms other than the line `call: {...}` count only for these.
        outputs: labels of an answer in the requested form.
        hidden: arguments that the model does not provide.

    Returns:
        The reading. Arguments that are not JSON are None.
    """
    if response.tool_calls:
        return Reading(
            [
                {"id": c["id"], "name": c["name"], "arguments": load_arguments(c["arguments"])}
                for c in response.tool_calls
            ]
        )
    return read_text(response.text, argument_names(tools, hidden), outputs, response.finish == "length")


def calls_in(response: Response, tools: Collection[Tool] = (), hidden: Collection[str] = ()) -> list[dict[str, Any]]:
    """The calls of `read_calls`, without unreadable attempts."""
    return list(read_calls(response, tools, hidden=hidden).calls)


def argument_names(tools: Collection[Tool], hidden: Collection[str] = ()) -> dict[str, list[str]]:
    """The known argument names of each tool, in order, without the hidden ones."""
    return {tool.name: [a for a in tool.schema.get("properties", ()) if a not in hidden] for tool in tools}


def unreadable_call(
    ctx: Context, response: Response, reading: Reading, tools: Collection[Tool], hidden: Collection[str] = ()
) -> str:
    """The reply to an unreadable call. Also counts it on the span, for the report."""
    seen = {"said": response.text[:200], "why": reading.fault}
    ctx.note(unreadable_calls=[*ctx.span.notes.get("unreadable_calls", []), seen])
    return correction(reading, argument_names(tools, hidden))


def load_arguments(text: Any) -> Any:
    """The arguments of a native call, which servers give as JSON; None for what is none."""
    return load_loose(text) if isinstance(text, str) else text
