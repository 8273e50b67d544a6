"""Defects of tools, found in their source and in their server's command. Nothing is loaded or started."""

from __future__ import annotations

import ast
import importlib.util
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.base.code_outline import find_binding, parse_python
from workbench.errors import Defect, DefectKind, SpecError
from workbench.spec import PREFIX, parse_address
from workbench_kit.acting.mcp import McpCall
from workbench_kit.acting.tools import Tool

Place = tuple[str | int, ...]
Function = ast.FunctionDef | ast.AsyncFunctionDef

_INTERPRETERS = re.compile(r"(python[\d.]*|node|deno|bun|ruby|perl|bash|sh)(\.exe)?")
_SCRIPT = re.compile(r"[^:]*\.(py|js|mjs|cjs|ts|rb|pl|sh)")


def find_tool_defects(
    tool: Tool, base: Path, path: Place, *, hidden: Collection[str] = (), described: bool = False, told: bool = True
) -> Iterator[Defect]:
    """Find the defects of a tool at an address.

    Args:
        tool: as returned by `load_tool`.
        base: the folder of the workflow file.
        path: of the address in the node.
        hidden: arguments that the model does not fill.
        described: whether the node gives it a description of its own.
        told: whether a model reads about the tool and fills its arguments.
    """
    if isinstance(tool.call, McpCall):
        yield from _server_defects(tool, tool.call.server.command, base, path)
    if not tool.source.startswith(PREFIX):
        return
    address = parse_address(tool.source)
    file = address.file(base)
    function = _find_function(file, address.name) if file.is_file() else None
    if function is None:
        return
    where = f"{file.name}:{function.lineno}"
    yield from _function_defects(tool.name, function, where, path)
    if not told:
        return
    doc = ast.get_docstring(function) or ""
    if not described and not doc.strip():
        yield Defect(
            DefectKind.UNDESCRIBED_TOOL,
            f"the tool '{tool.name}' ({where}) has no docstring, and the model is told no more than its name",
            f'Write one below its first line, e.g. """What {tool.name} does, and when to use it.""".',
            path,
        )
    for argument in _filled(function):
        known = argument.annotation is not None or re.search(rf"\b{re.escape(argument.arg)}\b", doc)
        if argument.arg not in hidden and not known:
            yield Defect(
                DefectKind.UNDESCRIBED_ARGUMENT,
                f"the model must fill '{argument.arg}' of the tool '{tool.name}' ({where}), and is told neither its "
                "type nor its meaning",
                f"Write its type, e.g. {argument.arg}: str, or name it in the docstring.",
                path,
            )


def find_source_defects(
    name: str, source: str, path: Place, schema: Mapping[str, Any] | None = None
) -> Iterator[Defect]:
    """Find the defects of a function whose source is in the workflow file.

    Args:
        name: the function that is called.
        source: Python.
        path: of the setting that holds both.
        schema: JSON Schema of the arguments that callers are told, if there is one.
    """
    try:
        function = _function_in(source, name)
    except SpecError as error:
        yield Defect(DefectKind.MISMATCHED_TOOL, f"'{name}': {error.message}", error.hint or "", (*path, "source"))
        return
    if function is None:
        return
    where = f"line {function.lineno} of its source"
    yield from _function_defects(name, function, where, (*path, "source"))
    needed = len(function.args.posonlyargs) - max(0, len(function.args.defaults) - len(function.args.args))
    if unnamed := [a.arg for a in function.args.posonlyargs[:needed]]:
        yield Defect(
            DefectKind.MISMATCHED_TOOL,
            f"'{name}' ({where}) takes '{unnamed[0]}' by position only, and the sandbox gives arguments by name",
            "Remove the / from its parameters.",
            (*path, "source"),
        )
    named = set((schema or {}).get("properties", {}))
    arguments = {a.arg for a in (*function.args.args, *function.args.kwonlyargs)}
    missing = sorted({a.arg for a in _filled(function)} - named)
    unknown = sorted(named - arguments) if function.args.kwarg is None else []
    if named and (missing or unknown):
        yield Defect(
            DefectKind.MISMATCHED_TOOL,
            f"the function '{name}' takes {', '.join(sorted(arguments)) or 'nothing'}, and is called with "
            f"{', '.join(sorted(named))}: every call fails",
            "Give both the same names.",
            (*path, "parameters"),
        )


def _function_defects(name: str, function: Function, where: str, path: Place) -> Iterator[Defect]:
    if _returns_nothing(function):
        yield Defect(
            DefectKind.EMPTY_RESULT,
            f"'{name}' ({where}) never returns a value: its result is always null",
            'Return what its reader must know, if only that it was done, e.g. return "sent".',
            path,
        )


def _filled(function: Function) -> list[ast.arg]:
    """Return the arguments without a default."""
    given, only = function.args, zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    placed = [*given.posonlyargs, *given.args]
    needed = len(placed) - len(given.defaults)
    return [*placed[: max(0, needed)], *(argument for argument, default in only if default is None)]


def _server_defects(tool: Tool, command: tuple[str, ...], base: Path, path: Place) -> Iterator[Defect]:
    """Report a command, script or module that is not on this machine."""

    def missing(what: str, hint: str) -> Defect:
        return Defect(DefectKind.MISSING_SERVER, f"the server of the tool '{tool.name}': {what}", hint, path)

    program, *rest = command
    if re.match(r"[a-z][a-z0-9+.-]*://", program):
        yield missing(
            f"'{program}' is an address, and a server is started by a command", "Write mcp:COMMAND ARGS#name."
        )
        return
    inside = base / program if "/" in program or "\\" in program else None
    if program != "python" and shutil.which(str(inside or program)) is None:
        where = f"at {inside}" if inside else "on the PATH of this machine"
        yield missing(f"there is no program '{program}' {where}", "Install it, or correct the command.")
        return
    if not _INTERPRETERS.fullmatch(Path(program).name):
        return
    if program == "python" and rest[:1] == ["-m"] and len(rest) > 1:
        top = rest[1].partition(".")[0]
        if not any((base / p).exists() for p in (top, f"{top}.py")) and importlib.util.find_spec(top) is None:
            yield missing(f"there is no module '{top}'", f"Install it, or write it beside {base.name}.")
        return
    script = next((word for word in rest if not word.startswith("-")), "")
    flags = rest[: rest.index(script)] if script else rest
    if not flags and _SCRIPT.fullmatch(script) and not (base / script).exists():
        yield missing(f"there is no file {base / script}", "Correct the path: it is relative to the workflow file.")


def _find_function(path: Path, name: str) -> Function | None:
    """Return the source of a function in a file; None if it is decorated or bound in another way, which only running
    shows.

    Raises SpecError if the file is not Python, or has no such name.
    """
    return _plain_function(find_binding(parse_python(path), name, path.name))


def _function_in(source: str, name: str) -> Function | None:
    """Find a function in a source, like `_find_function`. Raises SpecError if that is not Python or has no such
    name."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SpecError(f"source is not valid Python: {error}", hint="Correct it.") from None
    return _plain_function(find_binding(tree, name, "source"))


def _returns_nothing(function: Function) -> bool:
    """Return True if a function only ever returns None. One that ends by raising is not meant to return."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return False
        if isinstance(node, ast.Return) and not (
            node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
        ):
            return False
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return not isinstance(function.body[-1], ast.Raise)


def _plain_function(found: ast.AST | None) -> Function | None:
    """Return a function whose decorators change neither its docstring nor its arguments and result."""
    if not isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    kept = {ast.unparse(d.func if isinstance(d, ast.Call) else d).rpartition(".")[2] for d in found.decorator_list}
    return found if kept <= {"cache", "lru_cache"} else None
