"""The bodies of tool calls: JSON, Python, or a name with arguments, as they stand behind the mark of a form."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from workbench.kit.answers.json_text import SHORT, find_balanced, load, load_loose, read_literal, read_object

Call = dict[str, Any]  # name, arguments; for a native call also id
Tools = Mapping[str, Sequence[str]]  # argument names by tool name
#: What stands between the name of a tool and its arguments: `:0`, special tokens, a fence.
_BETWEEN = re.compile(
    r"(?::\d+)?(?:\[CALL_ID\]\w+|\[ARGS\]|commentary\b|(?i:arguments|args|input)(?=[*_]*[ \t]*:)|<\|[^|>]{1,40}\|>|"
    r"<\uff5c[^\uff5c]{1,40}\uff5c>|json\b|code\b|[ \t`:\n])*(?:```\w*\s*)?"
)
_PAIRS = re.compile(r"(?s)<arg_key>([^<]*)</arg_key>\s*<arg_value>((?:(?!</?arg_).)*)</arg_value>")
_OPENING = re.compile(r"\s*(?:```[\w+-]*\s*|[`*_]+)?\s*")
NAME = re.compile(r"[A-Za-z_][\w-]*(?:\.\w+)*")
_FENCE = re.compile(r"(?s)\s*+```[\w+-]*[ \t]*\n(.*?)(?:\n```|\Z)")
#: What the arguments, the name and the whole of a call are called.
_ARGUMENTS = ("arguments", "parameters", "args", "input", "tool_input", "tool_args", "params", "action_input")
_NAMES = ("function", "tool_name", "function_name", "recipient_name", "recipient", "action", "command")
_WRAPPERS = ("tool_calls", "tool_uses", "tool_call", "function_call", "functionCall", "toolUse", "function")


@dataclass(frozen=True)
class Reading:
    """The calls in a reply.

    fault: why an apparent call cannot be read. certain: whether it was a line `call: {...}`, which can mean nothing
    else. tool: the tool that it seems to name. end: the index behind what was read.
    """

    calls: Sequence[Call] = ()
    fault: str | None = None
    certain: bool = False
    tool: str | None = None
    end: int = 0


NOTHING = Reading()


def read_at(text: str, place: int, tools: Tools) -> Reading:
    """The reading after a mark: JSON, or a name with arguments."""
    start = skip_opening(text, place)
    if text.startswith("[", start) and (pythonic := read_expression(raw := find_balanced(text, start), tools)):
        return replace(pythonic, end=start + len(raw))
    if text.startswith(("{", "["), start):
        return json_at(text, start, tools, marked=True)
    found = NAME.match(text, start)
    if found is None:
        return NOTHING
    name, end = found.group(), found.end()
    if text.startswith("(", end):
        return _python_at(text, start, end, tools)
    between = _BETWEEN.match(text, end)
    after = between.end() if between else end
    if text.startswith("<arg_key>", after):
        return Reading(
            [_call(name, {key.strip(): read_value(value) for key, value in _PAIRS.findall(text, after)}, tools)]
        )
    if text.startswith("{", after):
        reading = with_object(name, text, after, tools)
        return reading if reading.calls or name in tools else NOTHING
    return _plain_arguments(name, text, end, tools) if name in tools else NOTHING


def skip_opening(text: str, place: int) -> int:
    """The place of a body behind blanks, a fence and marks of Markdown."""
    opening = _OPENING.match(text, place)
    return opening.end() if opening else place


def with_object(name: str, text: str, place: int, tools: Tools) -> Reading:
    """The call of a name whose arguments are the JSON object at a place."""
    arguments, end, why = read_object(text, place)
    if isinstance(arguments, dict):
        return Reading([_call(name, arguments, tools)], end=end)
    return Reading(fault=f"its arguments cannot be read: {why}", tool=name, end=end)


def _plain_arguments(name: str, text: str, end: int, tools: Tools) -> Reading:
    """A tool with its only argument in a fence, or with none."""
    fence = _FENCE.match(text, end)
    if fence and len(tools[name]) == 1:
        return Reading([{"name": name, "arguments": {tools[name][0]: fence.group(1)}}])
    line = _line_at(text, end)
    if not line.strip(" \t`*.;"):
        return Reading([{"name": name, "arguments": {}}], end=end + len(line))
    if re.match(r"\s*(?:,|with\b|[\w-]+\s*[=:])", line):
        return Reading(fault="its arguments are not a JSON object", tool=name)
    return NOTHING


def _line_at(text: str, place: int) -> str:
    ends = text.find("\n", place)
    return text[place : ends if ends >= 0 else len(text)]


def json_at(text: str, start: int, tools: Tools, marked: bool) -> Reading:
    """A call in JSON. marked: whether a mark precedes it; without one, it must name a tool and its arguments."""
    body, end, why = read_object(text, start)
    if body is None:
        seen = text[start:end]
        named = re.search(r"""["'](?:tool|name|function)["']\s*:\s*["']([\w.-]+)["']""", seen)
        name = named.group(1) if named and named.group(1) in tools else None
        attempt = (
            re.search(r"""["'](?:tool|name|arguments)["']\s*:""", seen) if marked else name and "arguments" in seen
        )
        return Reading(fault=f"its JSON cannot be read: {why}", tool=name, end=end) if attempt else NOTHING
    body = unwrapped(body, tools, marked)
    if not isinstance(body, dict):
        return NOTHING
    body = {k: known_name(v, tools) or v if k in ("tool", "name") else v for k, v in body.items()}
    if isinstance(body.get("tool") or body.get("name"), str):
        return Reading([make_call(body, tools)], end=end) if marked or _is_call(body, tools) else NOTHING
    known = marked and ("arguments" in body or not body)
    return Reading(fault="it names no tool", certain=True, end=end) if known else NOTHING


def unwrapped(body: Any, tools: Tools, marked: bool = True) -> Any:
    """The call inside the wrappers that some models add, with its name as `name` or `tool`. marked: see `json_at`."""
    while isinstance(body, list):
        body = body[0] if body else None
    if not isinstance(body, dict):
        return None
    for key in _WRAPPERS:
        if isinstance(body.get(key), list | dict) and body[key]:
            return unwrapped(body[key], tools, marked)
    for key in _NAMES:
        if isinstance(body.get(key), str) and not {"name", "tool"} & set(body):
            return {"name": body[key], **{k: v for k, v in body.items() if k not in (key, "type", "tool_call_id")}}
    name = next(iter(body), "")
    if (
        len(body) == 1
        and name in tools
        and isinstance(body[name], dict)
        and (marked or {*body[name]} <= {*tools[name]})
    ):
        return {"name": name, "arguments": body[name]}
    return body


def known_name(name: Any, tools: Tools) -> str | None:
    """The tool that a name means, also with a namespace before it, e.g. `functions.search`; None if none does."""
    if not isinstance(name, str) or name in tools:
        return name if isinstance(name, str) else None
    last = re.split(r"[.:/]", name.removesuffix(".call"))[-1]
    return last if last in tools else None


def _is_call(body: Mapping[str, Any], tools: Tools) -> bool:
    """Return True if unmarked JSON is a call, and not just any object with a name."""
    name, rest = body.get("tool") or body.get("name"), set(body) - {"tool", "name", "id", "type"}
    if not isinstance(name, str) or name not in tools:
        return "tool" in body and isinstance(body.get("arguments"), dict)
    own = set(tools[name])
    return any(key in body for key in _ARGUMENTS) or (rest <= own and ("tool" in body or bool(rest) or not own))


def make_call(body: Mapping[str, Any], tools: Tools) -> Call:
    """The call in a JSON object; accepts the synonyms of `arguments` that models use."""
    key = "tool" if body.get("tool") else "name"
    name, given = body.get(key), body.get("arguments", {})
    if "arguments" not in body:
        named = next((body[k] for k in _ARGUMENTS if isinstance(body.get(k), dict | str)), None)
        beside = {k: v for k, v in body.items() if k != key}
        own = set(tools.get(name, ())) if isinstance(name, str) else set()
        if beside and set(beside) <= own:
            given = beside
        elif named is not None:
            given = named
    if given in (None, ""):
        given = {}
    if isinstance(given, str) and isinstance(parsed := load_loose(given), dict):
        given = parsed
    return {"name": name, "arguments": given}


def _call(name: str, arguments: Mapping[str, Any], tools: Tools) -> Call:
    return {"name": known_name(name, tools) or name, "arguments": arguments}


def _python_at(text: str, start: int, opening: int, tools: Tools) -> Reading:
    """A call `NAME(...)`. An unknown tool counts only with keyword arguments and at the end of a line."""
    end = opening + len(find_balanced(text, opening))
    ends_line = not _line_at(text, end).strip(" `.")
    if reading := read_expression(text[start:end], tools, unknown=ends_line):
        return replace(reading, end=end)
    known = known_name(text[start:opening], tools)
    return Reading(fault=f"the arguments of {known}(...) cannot be read", tool=known, end=end) if known else NOTHING


def read_expression(text: str, tools: Tools, unknown: bool = False) -> Reading | None:
    """The reading of a text that is one tool call in Python syntax; None for any other text.

    unknown: whether that of an unknown tool counts, if all of its arguments are named.
    """
    if not re.match(r"\[?\s*(?:print\()?[A-Za-z_][\w.-]*\(", text):
        return None
    try:
        tree: ast.expr = ast.parse(text, mode="eval").body
        if isinstance(tree, ast.List) and tree.elts:
            tree = tree.elts[0]
        if isinstance(tree, ast.Call) and ast.unparse(tree.func) == "print" and len(tree.args) == 1:
            tree = tree.args[0]
        if not isinstance(tree, ast.Call):
            return None
        called = ast.unparse(tree.func)
        given = [read_literal(part) for part in tree.args]
        named = {str(k.arg): read_literal(k.value) for k in tree.keywords}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    name = known_name(called, tools)
    if name is None:
        return Reading([{"name": called, "arguments": named}]) if unknown and named and not given else None
    known = list(tools[name])
    if len(given) == 1 and not named and isinstance(given[0], dict) and set(given[0]) <= set(known):
        return Reading([{"name": name, "arguments": given[0]}])
    if len(given) > len(known) or "None" in named:
        return None
    return Reading([{"name": name, "arguments": {**dict(zip(known, given, strict=False)), **named}}])


def read_expressions(text: str, tools: Tools) -> Sequence[Call]:
    """The calls of a text that is nothing but calls in Python syntax, on lines of their own or in a list."""
    try:
        body = ast.parse(text).body if len(text) < SHORT else []
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    said = [node.value for node in body if isinstance(node, ast.Expr)]
    parts = [part for node in said for part in (node.elts if isinstance(node, ast.List) else [node])]
    readings = [read_expression(ast.unparse(part), tools, unknown=True) for part in parts]
    found = [call for reading in readings if reading for call in reading.calls]
    return found if len(said) == len(body) and len(found) == len(parts) else []


def read_value(text: str) -> Any:
    """The value of an element's text: read as JSON if it is a number, true, false, null, a list or an object."""
    found = load(text.strip())
    return text if found is None or isinstance(found, str) else found
