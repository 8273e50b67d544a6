"""The edits that a proposer may make to a list of functions, and the checks before an edit costs a call of the task."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.study import Evaluation, Study
from workbench_kit.answers import find_code, find_keyed

Function = dict[str, Any]  # name, description, parameters (JSON Schema of an object), source, example: its own test

MAX_SOURCE = 8000
#: Modules that only compute.
HARMLESS = (
    "ast",
    "base64",
    "bisect",
    "calendar",
    "cmath",
    "collections",
    "colorsys",
    "copy",
    "dataclasses",
    "datetime",
    "decimal",
    "difflib",
    "enum",
    "fractions",
    "functools",
    "graphlib",
    "hashlib",
    "heapq",
    "html",
    "itertools",
    "json",
    "math",
    "numbers",
    "operator",
    "random",
    "re",
    "statistics",
    "string",
    "textwrap",
    "typing",
    "unicodedata",
    "zoneinfo",
)
#: JSON Schemas of the annotations that parameters may have.
_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array", "dict": "object"}


class Refused(Exception):
    """An action cannot be used. The message gives the reason, worded for the proposer."""


@dataclass(frozen=True)
class Action:
    """An edit. add and revise carry a whole function, with an example of a call and its result as its test."""

    kind: str  # add, revise, remove, terminate
    name: str = ""
    function: Function = field(default_factory=dict)


def read_action(
    text: str,
    functions: Sequence[Function],
    most: int,
    tools: Collection[str] = (),
) -> Action:
    """Read the action in an answer: one JSON object, with or without a code fence. Raises Refused.

    Args:
        text: the answer.
        functions: the current functions.
        most: maximum number of functions.
        tools: names that are taken.
    """
    body = _json_object(text)
    kind = str(body.get("action", "")).lower()
    if kind == "terminate":
        return Action("terminate")
    name, names = str(body.get("name", "")), [f["name"] for f in functions]
    if kind not in ("add", "revise", "remove"):
        raise Refused('"action" must be add, revise, remove or terminate')
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,63}", name):
        raise Refused('"name" must be a Python name in small letters')
    if kind in ("revise", "remove") and name not in names:
        raise Refused(f"there is no function '{name}'; there are: {', '.join(names) or 'none'}")
    if kind == "remove":
        return Action("remove", name)
    if kind == "add" and name in names:
        raise Refused(f"'{name}' is there already: revise it, or take another name")
    if kind == "add" and name in tools:
        raise Refused(f"'{name}' is a tool of the agent already: take another name")
    if kind == "add" and len(names) >= most:
        raise Refused(f"there are {most} functions already: remove or revise one")
    source = str(body.get("source", ""))
    check_source(source, name)
    parameters = body.get("parameters") or _parameters(source, name)
    _check_parameters(parameters, source, name)
    example = body.get("example")
    if not isinstance(example, dict) or not isinstance(example.get("arguments"), dict) or "result" not in example:
        raise Refused('"example" must be {"arguments": {...}, "result": ...}: a call and what it must give')
    made = {
        "name": name,
        "description": str(body.get("description", ""))[:500],
        "parameters": parameters,
        "source": source,
        "example": {k: example[k] for k in ("arguments", "result")},
    }
    return Action(kind, name, made)


def apply_action(action: Action, functions: Sequence[Function]) -> list[Function]:
    """Return the functions after an action, as a new list."""
    if action.kind == "add":
        return [*functions, action.function]
    if action.kind == "revise":
        return [action.function if f["name"] == action.name else f for f in functions]
    return [f for f in functions if f["name"] != action.name]


def check_source(source: str, name: str) -> None:
    """Raise Refused for a source that cannot work.

    This is quick feedback for the proposer; the security boundary is the sandbox.
    """
    if not source.strip() or len(source) > MAX_SOURCE:
        raise Refused(f'"source" must be Python text of at most {MAX_SOURCE} characters')
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Refused(f"the source is not Python: {error}") from None
    if name not in [n.name for n in tree.body if isinstance(n, ast.FunctionDef)]:
        raise Refused(f"the source must define the function '{name}' at its top level")
    for node in ast.walk(tree):
        imported = (
            [a.name for a in node.names]
            if isinstance(node, ast.Import)
            else [node.module or "."]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        for module in imported:
            if module.split(".")[0] not in HARMLESS:
                raise Refused(f"'{module}' may not be imported; these may: {', '.join(sorted(HARMLESS))}")


class _Uncaught(ast.NodeTransformer):
    """Removes `except` clauses and keeps the code that they guard. changed: whether there were any."""

    changed = False

    def visit_Try(self, node: ast.Try) -> Any:
        self.generic_visit(node)
        self.changed |= bool(node.handlers)
        return [*node.body, *node.orelse, *node.finalbody]


def without_handlers(source: str) -> str | None:
    """Return the program without `except` clauses, so that it raises hidden errors; None if it has none."""
    remover = _Uncaught()
    bare = remover.visit(ast.parse(source))
    return ast.unparse(bare) if remover.changed else None


async def check_example(study: Study, action: Action) -> None:
    """Run the function's own test in the sandbox. Raises Refused with the actual outcome if it fails."""
    example = action.function["example"]
    found = await study.sandboxed(action.function["source"], action.name, example["arguments"])
    if found["kind"] != "ok":
        line = f" in line {found['line']}" if found["line"] else ""
        raise Refused(f"the example raised{line}: {found['kind']}: {found['message']}")
    if found["value"] != example["result"]:
        raise Refused(f"the example gave {json.dumps(found['value'])[:300]} and not the result that you named")


def extract_python(text: str) -> str:
    """Return the Python source in an answer: the longest fenced block, or the whole answer."""
    return max(find_code(text), key=len, default=text)


def find_solved_inputs(evaluation: Evaluation, address: str) -> dict[str, Any] | None:
    """Return the node's inputs in the first solved training example, or None."""
    node = address.removeprefix("nodes.").rpartition(".")[0]
    for result in evaluation.results:
        for span in result.trace.spans if result.trace and result.score == 1 else ():
            if span.node == node and not span.error:
                return dict(span.inputs)
    return None


def _json_object(text: str) -> dict[str, Any]:
    if (found := find_keyed(text, "action")) is None:
        raise Refused('answer with one JSON object that has the key "action"')
    return _finite(found)


def _finite(body: dict[str, Any]) -> dict[str, Any]:
    """Raise Refused for NaN, Infinity and 1e999, which Python reads but our files cannot hold."""
    try:
        json.dumps(body, allow_nan=False)
    except ValueError:
        raise Refused("a number is NaN or infinite, which JSON does not have") from None
    return body


def _signature(source: str, name: str) -> ast.arguments:
    """Return the parameters of the last top-level function of that name."""
    functions = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef) and n.name == name]
    return functions[-1].args


def _parameters(source: str, name: str) -> dict[str, Any]:
    """Return a schema from the function's parameters and annotations, if the proposer gave none."""
    taken = _signature(source, name)
    properties: dict[str, Any] = {}
    for argument in [*taken.posonlyargs, *taken.args, *taken.kwonlyargs]:
        annotation = ast.unparse(argument.annotation).split("[")[0] if argument.annotation else ""
        properties[argument.arg] = {"type": _TYPES[annotation]} if annotation in _TYPES else {}
    needed = [a.arg for a in taken.args[: len(taken.args) - len(taken.defaults)]]
    needed += [a.arg for a, default in zip(taken.kwonlyargs, taken.kw_defaults, strict=True) if default is None]
    return {"type": "object", "properties": properties, "required": needed}


def _check_parameters(parameters: Any, source: str, name: str) -> None:
    """Raise Refused unless the schema describes an object and fits the function."""
    if not isinstance(parameters, dict) or parameters.get("type", "object") != "object":
        raise Refused('"parameters" must be a JSON Schema of type object')
    named, needed = parameters.get("properties", {}), parameters.get("required", [])
    if not isinstance(named, dict) or not all(isinstance(v, dict) for v in named.values()):
        raise Refused('"properties" in "parameters" must be an object of JSON Schemas')
    if not isinstance(needed, list) or not all(isinstance(n, str) and n in named for n in needed):
        raise Refused('"required" in "parameters" must be a list of names that stand in "properties"')
    taken = _signature(source, name)
    if taken.posonlyargs:
        raise Refused(f"'{name}' is called by the names of its arguments: remove the '/'")
    known = {a.arg for a in [*taken.args, *taken.kwonlyargs]}
    strange = [n for n in named if n not in known] if taken.kwarg is None else []
    missing = [n for n in _parameters(source, name)["required"] if n not in named]
    if strange or missing:
        raise Refused(f'"parameters" and the function differ: {", ".join([*strange, *missing])}')
