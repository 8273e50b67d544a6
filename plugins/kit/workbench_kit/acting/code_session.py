"""A session of Python written by a model: cells run one after the other, variables persist, and tools are functions.

`sandbox:session`        a session for each run of a node
`sandbox:session#NAME`   a session of the row, shared by all nodes and rounds that name it

The sandbox keeps nothing. A session consists of its cells and the answers of its tools. Each further cell reruns all of
them with the answers so far (`asking_code`). So its cost grows with the square of the cells, some milliseconds a call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.errors import NodeError
from workbench.runtime import Context
from workbench_kit.acting.asking_code import answered, run_asking
from workbench_kit.acting.tool import Tool

SESSION = "sandbox:session"
#: Maximum number of characters of a cell's output that the model sees.
LONGEST_PRINT = 8_000
_CELLS = '''
import ast, contextlib, io, json, re, traceback


def workbench_main(ask, cells, functions, given, kept):
    space = {"__name__": "__main__", "ToolError": ToolError, "BaseException": Exception}
    for name, parameters in functions.items():
        space[re.sub(r"\\W", "_", name)] = workbench_function(ask, name, parameters)
    space.update(given)
    told = {"printed": "", "error": ""}
    for number, cell in enumerate(cells, 1):
        told = workbench_cell(cell, f"<cell {number}>", space)
    return {**told, "kept": {name: workbench_value(name, space) for name in kept}}


def workbench_function(ask, name, parameters):
    def function(*given, **named):
        if len(given) > len(parameters):
            raise TypeError(f"{name} takes {len(parameters)} arguments by position: {', '.join(parameters)}")
        return ask({"tool": name, "arguments": {**dict(zip(parameters, given)), **named}})

    function.__name__ = re.sub(r"\\W", "_", name)
    return function


def workbench_cell(cell, place, space):
    """Run a cell as a notebook does: the value of a last expression is printed."""
    out, error = io.StringIO(), ""
    try:
        tree = ast.parse(cell, place)
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler) and node.type is None:  # it would catch the stop
                node.type = ast.copy_location(ast.Name("Exception", ast.Load()), node)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(out):
            exec(compile(tree, place, "exec"), space)
            value = eval(compile(ast.Expression(last.value), place, "eval"), space) if last else None
            if value is not None:
                print(repr(value))
    except (WorkbenchStop, MemoryError):
        raise
    except BaseException as raised:
        lines = [frame.lineno for frame in traceback.extract_tb(raised.__traceback__) if frame.filename == place]
        line = raised.lineno if isinstance(raised, SyntaxError) else lines[-1] if lines else None
        error = f"{f'line {line}: ' if line else ''}{type(raised).__name__}: {raised}"
    return {"printed": out.getvalue().strip(), "error": error[:2000]}


def workbench_value(name, space):
    if name not in space:
        return {"error": f"there is no variable {name}"}
    try:
        return {"value": json.loads(json.dumps(space[name], allow_nan=False))}
    except (TypeError, ValueError, RecursionError) as error:
        return {"error": f"the variable {name} is no JSON value: {error}"[:500]}
'''


@dataclass(frozen=True)
class Reach:
    """Objects available to code in a session: tools as functions, and inputs as variables.

    call: makes a call; its NodeError is a ToolError in the code.
    """

    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    call: Callable[[Tool, dict[str, Any]], Awaitable[Any]] | None = None
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])


NOTHING = Reach()


@dataclass(frozen=True)
class _Told:
    """The report of a run of the cells. It comes from the sandbox, so it may hold anything."""

    printed: str
    error: str
    kept: dict[str, dict[str, Any]]


def is_session(tool: Tool) -> bool:
    """Return True if a tool runs code in a session."""
    return tool.source.partition("#")[0] == SESSION


def session_of(ctx: Context, tool: Tool) -> CodeSession:
    """Return the session of a tool: the row's if its address names one, else that of this run of the node."""
    name = tool.source.partition("#")[2]
    return ctx.row.get((CodeSession, name) if name else (CodeSession, ctx.node, ctx.draw.order), CodeSession)


class CodeSession:
    """The cells of a session so far, its objects, and the answers to its requests."""

    def __init__(self) -> None:
        self._cells, self._answers = list[str](), list[dict[str, Any]]()
        self._functions, self._given = dict[str, Sequence[str]](), dict[str, Any]()
        self._running = False

    async def run(self, ctx: Context, code: str, reach: Reach = NOTHING) -> str:
        """Run a cell and return its output.

        Raises NodeError("tool") with the error of the code, after which variables are as it left them. After a timeout
        or out-of-memory error they are as before the cell.
        """
        callable_here = {name: tool for name, tool in reach.tools.items() if not is_session(tool)}
        self._functions |= {name: list(tool.schema.get("properties", ())) for name, tool in callable_here.items()}
        self._given |= reach.given
        begun = len(self._answers)
        try:
            told = await self._run([*self._cells, code], (), ctx, reach)
        except NodeError as error:
            del self._answers[begun:]
            raise NodeError("tool", f"python: {error}. Its variables are lost, earlier ones are not") from error
        self._cells.append(code)
        printed = told.printed
        if len(printed) > LONGEST_PRINT:
            printed = f"{printed[:LONGEST_PRINT]}\n({len(printed) - LONGEST_PRINT} more characters)"
        if told.error:
            raise NodeError("tool", f"python: {told.error}" + (f"\nprinted before: {printed}" if printed else ""))
        return printed or "(nothing was printed)"

    async def values(self, ctx: Context, names: Sequence[str]) -> dict[str, Any]:
        """Return the values of variables. Raise NodeError("tool") if one is missing, or no JSON value."""
        found = (await self._run(self._cells, names, ctx, NOTHING)).kept
        if wrong := [name for name in names if "value" not in found.get(name, {})]:
            raise NodeError("tool", "; ".join(str(found.get(name, {}).get("error")) for name in wrong))
        return {name: found[name]["value"] for name in names}

    async def _run(self, cells: Sequence[str], kept: Sequence[str], ctx: Context, reach: Reach) -> _Told:
        if self._running:  # by a node that runs concurrently, or that this code calls
            raise NodeError("code", "the session runs other code now")

        async def reply(asked: Any) -> dict[str, Any]:
            asked = asked if isinstance(asked, dict) else {}
            name, arguments = str(asked.get("tool")), asked.get("arguments")
            if reach.call is None or name not in reach.tools or not isinstance(arguments, dict):
                return {"error": f"there is no tool '{name:.80}' here"}
            return await answered(reach.call(reach.tools[name], arguments))

        told = {"cells": list(cells), "functions": dict(self._functions), "kept": list(kept)}
        from pydantic import TypeAdapter, ValidationError

        self._running = True
        try:
            found = await run_asking(ctx, _CELLS, told, self._answers, reply, large={"given": self._given})
            return TypeAdapter(_Told).validate_python(found)
        except ValidationError:
            raise NodeError("code", "the code changed what reports on it") from None
        finally:
            self._running = False

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""
