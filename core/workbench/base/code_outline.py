"""Outlines of functions in Python files: name, parameters and docstring, without running the file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

from workbench.errors import SpecError, suggest

_ANY = Signature([Parameter("given", Parameter.VAR_POSITIONAL), Parameter("named", Parameter.VAR_KEYWORD)])


class Outline:
    """A stand-in for a function or class that is not loaded. `inspect.signature` and `inspect.getdoc` work on it."""

    def __init__(self, name: str, doc: str | None = None, signature: Signature = _ANY):
        self.__name__, self.__doc__, self.__signature__ = name, doc, signature

    def __call__(self, *given: Any, **named: Any) -> Any:
        raise AssertionError(f"'{self.__name__}' is an outline of code that is not loaded")


def outline_function(path: Path, name: str) -> Outline:
    """Return the outline of a function in a file. For anything else than a function, only the name is known.

    Raises SpecError if the file is not Python, or has no such name.
    """
    found = find_binding(parse_python(path), name, path.name)
    if not isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef) or found.decorator_list:
        return Outline(name)
    return Outline(name, ast.get_docstring(found), _signature(found.args))


def find_binding(tree: ast.Module, name: str, where: str) -> ast.AST | None:
    """Find the statement that binds a name in a module; None if only a run would show it. Raises SpecError if none."""
    names = dict(_bound_names(tree))
    if name not in names and not names.keys() & {"*", "__getattr__"}:
        known = [n for n in names if not n.startswith("_")]
        raise SpecError(f"{where} has no function '{name}'", hint=suggest(name, known))
    return names.get(name)


def parse_python(path: Path) -> ast.Module:
    """Parse a Python file, without running it. Raises SpecError."""
    try:
        return ast.parse(path.read_bytes(), path)
    except SyntaxError as error:
        raise syntax_error(error) from None
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        raise SpecError(f"{path} cannot be read as Python: {error}", hint="Correct the file.") from None


def syntax_error(error: SyntaxError) -> SpecError:
    """Return an error with the location at which a file is not Python."""
    place = f"{error.filename}:{error.lineno}:{error.offset}"
    return SpecError(f"{place}: {error.msg}", hint="Correct the file.")


def _bound_names(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Yield each name that the statements of a module bind, in order, also inside `if` and `try`."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0], node
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node
        else:
            waiting += reversed(list(ast.iter_child_nodes(node)))


def _signature(arguments: ast.arguments) -> Signature:
    placed = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(placed) - len(arguments.defaults)) + list(arguments.defaults)
    found: list[Parameter] = []
    for i, (argument, default) in enumerate(zip(placed, defaults, strict=True)):
        only = i < len(arguments.posonlyargs)
        kind = Parameter.POSITIONAL_ONLY if only else Parameter.POSITIONAL_OR_KEYWORD
        found.append(Parameter(argument.arg, kind, default=_value(default)))
    if arguments.vararg:
        found.append(Parameter(arguments.vararg.arg, Parameter.VAR_POSITIONAL))
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        found.append(Parameter(argument.arg, Parameter.KEYWORD_ONLY, default=_value(default)))
    if arguments.kwarg:
        found.append(Parameter(arguments.kwarg.arg, Parameter.VAR_KEYWORD))
    return Signature(found)


def _value(default: ast.expr | None) -> Any:
    """Return the value of a default; None if only running the file would show it."""
    if default is None:
        return Parameter.empty
    try:
        return ast.literal_eval(default)
    except (ValueError, TypeError, RecursionError, MemoryError):
        return None
