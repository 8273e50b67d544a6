"""The bodies of tool calls after the mark of a form: JSON, Python, or a name with arguments."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench_kit.answers.json_text import find_balanced, load, load_loose, parse_python, read_literal, read_object
from workbench_kit.answers.tool_names import known_name

Call = dict[str, Any]  # name, arguments; for a native call also id
Tools = Mapping[str, Sequence[str]]  # argument names by tool name
#: The name of a tool, if there is one, after a fence or marks of Markdown.
_NAME = re.compile(r"\s*(?:```[\w+-]*\s*|[`*_]+)?\s*(?P<name>(?:[A-Za-z_][\w-]*(?:\.\w+)*)?)")
#: Text between the name of a tool and its arguments: `:0`, special tokens, a fence, a label.
_BETWEEN = re.compile(
    r"(?:(?P<label>(?i:action[ _]input|\u273fARGS\u273f|arguments|args|input)(?=[*_]*[ \t]*:))|:\d+|\[CALL_ID\]\w+|"
    r"\[ARGS\]|commentary\b|<\|[^|>]{1,40}\|>|<\uff5c[^\uff5c]{1,40}\uff5c>|(?:json|code)\b|[\"']?>|[ \t`*_:\n])*"
)
#: An argument in tags, as written by GLM and Qwen.
_ARGUMENT = re.compile(
    r"(?is)\s*+(?:<arg_key>([^<]*)</arg_key>\s*<arg_value>((?:(?!</?arg_).)*)</arg_value>|"
    r"<parameter(?:=| name=)[\"']?([\w.-]+)[\"']?[^<>]*>\n?(.*?)\n?</parameter>)"
)
_FENCE = re.compile(r"(?s)\s*+```[\w+-]*[ \t]*\n(.*?)(?:\n```|\Z)")
#: `search[two words]`; words that begin arguments.
_BRACKET, _ATTEMPT = re.compile(r"\[(.*)\]\.?[ \t`*]*(?:\n|\Z)"), re.compile(r"\s*(?:,|with\b|[\w-]+\s*[=:])")
#: Keys for the arguments, the name and the whole of a call.
_ARGUMENTS = ("arguments", "parameters", "args", "input", "tool_input", "tool_args", "params", "action_input")
_NAMES = ("tool", "name", "function", "tool_name", "function_name", "recipient_name", "recipient", "action", "command")
_WRAPPERS = ("tool_calls", "tool_uses", "tool_call", "function_call", "functionCall", "toolUse", "function")
_NO_OBJECT = "its arguments are not a JSON object"


@dataclass(frozen=True)
class Reading:
    """The calls in a reply.

    fault: why an apparent call cannot be read. certain: whether it was a line `call: {...}`, which can mean nothing
    else. tool: the tool that it seems to name. end: the index after the text read.
    """

    calls: Sequence[Call] = ()
    fault: str | None = None
    certain: bool = False
    tool: str | None = None
    end: int = 0


NOTHING = Reading()


def names_call(body: Any) -> bool:
    """Return True if a JSON value is an object with a tool's name and arguments, whether or not the tool exists."""
    named = isinstance(body, dict) and any(isinstance(body.get(name), str) for name in _NAMES)
    return named and any(isinstance(body.get(given), dict) for given in _ARGUMENTS)


def read_call(body: Any, tools: Tools, marked: bool = True) -> Call | None:
    """Return the call in a JSON value, also in the wrappers and with the synonyms that models use, or None.

    marked: whether a mark says that it is a call. Without one, it must name a tool and its arguments.
    """
    while isinstance(body, list):
        body = body[0] if body else None
    if not isinstance(body, dict):
        return None
    for key in _WRAPPERS:
        if isinstance(body.get(key), list | dict) and body[key]:
            return read_call(body[key], tools, marked)
    key = next((one for one in _NAMES if isinstance(body.get(one), str) and body[one]), "")
    if not key:  # the name as the key
        name, given = next(iter(body.items()), ("", None))
        if marked and body.get("tool"):  # a name that is not a text: an error for the model
            return {"name": body["tool"], "arguments": body.get("arguments", {})}
        own = len(body) == 1 and name in tools and isinstance(given, dict) and (marked or {*given} <= {*tools[name]})
        return {"name": name, "arguments": given} if own else None
    name = known_name(body[key], tools) or body[key]
    beside = {k: v for k, v in body.items() if k not in (key, "id", "type", "tool_call_id")}
    given = next((body[one] for one in _ARGUMENTS if isinstance(body.get(one), dict | str)), None)
    own, is_tool, is_given = {*beside} <= {*tools.get(name, ())}, key == "tool", any(one in body for one in _ARGUMENTS)
    if not marked and name not in tools and not (is_tool and isinstance(body.get("arguments"), dict)):
        return None
    if not marked and name in tools and not is_given and not (own and (is_tool or beside or not tools[name])):
        return None
    if "arguments" in body:
        given = body["arguments"]
    elif beside and own:
        given = beside
    if isinstance(given, str) and isinstance(parsed := load_loose(given), dict):
        given = parsed
    return {"name": name, "arguments": {} if given in (None, "") else given}


def read_at(text: str, place: int, tools: Tools) -> Reading:
    """Read a call after a mark: JSON, or a name with arguments. Those of an unknown tool must be certain."""
    found = _NAME.match(text, place)
    assert found is not None  # the pattern always matches
    name, start, end = found["name"], found.start("name"), found.end()
    if text.startswith("[", start) and (pythonic := read_expression(raw := find_balanced(text, start), tools)):
        return Reading([pythonic], end=start + len(raw))
    if text.startswith(("{", "["), start):
        return json_at(text, start, tools, marked=True)
    known = known_name(name, tools)
    if not name or text.startswith("(", end):
        return _python_at(text, start, end, tools) if name else NOTHING
    name = known or name
    if known and (bracket := _BRACKET.match(text, end)):
        return _of_text(known, bracket[1], tools)
    between = _BETWEEN.match(text, end)
    assert between is not None  # the pattern always matches
    if text.startswith("{", between.end()):
        arguments, end, why = read_object(text, between.end())
        if isinstance(arguments, dict):
            return Reading([{"name": name, "arguments": arguments}], end=end)
        return Reading(fault=f"its arguments cannot be read: {why}", tool=known, end=end) if known else NOTHING
    arguments, after = dict[str, Any](), between.end()
    while argument := _ARGUMENT.match(text, after):
        key, value = (one for one in argument.groups() if one is not None)
        plain = load(value.strip())
        arguments[key.strip()], after = value if plain is None or isinstance(plain, str) else plain, argument.end()
    if arguments:
        return Reading([{"name": name, "arguments": arguments}], end=after)
    if between["label"] and (known or "\n" in between[0]):
        return _of_text(name, text[after:], tools)
    return _without_label(known, text, end, tools) if known else NOTHING


def _of_text(name: str, text: str, tools: Tools) -> Reading:
    """Read a call whose arguments are JSON, or whose only argument is the first line of a text."""
    if text.startswith("{"):
        return read_at(f"{name} {text}", 0, tools)
    line = text.strip().split("\n")[0].strip().strip("\"'`")
    if name in tools and not (line and tools[name]):
        return Reading([{"name": name, "arguments": {}}])
    if len(tools.get(name, ())) == 1:
        return Reading([{"name": name, "arguments": {tools[name][0]: line}}])
    return Reading(fault=_NO_OBJECT, tool=name)


def _without_label(name: str, text: str, end: int, tools: Tools) -> Reading:
    """Read a tool with its only argument in a fence, or without arguments."""
    if (fence := _FENCE.match(text, end)) and len(tools[name]) == 1:
        return Reading([{"name": name, "arguments": {tools[name][0]: fence[1]}}])
    line = _line_at(text, end)
    if re.fullmatch(r"(?:[\"']?>)?[ \t`*.;]*(?:</.*)?", line):
        return Reading([{"name": name, "arguments": {}}], end=end + len(line))
    return Reading(fault=_NO_OBJECT, tool=name) if _ATTEMPT.match(line) else NOTHING


def _line_at(text: str, place: int) -> str:
    return text[place:].partition("\n")[0]


def json_at(text: str, start: int, tools: Tools, marked: bool) -> Reading:
    """Read a call in JSON. marked: see `read_call`."""
    body, end, why = read_object(text, start)
    if call := read_call(body, tools, marked):
        return Reading([call], end=end)
    if body is not None:
        known = marked and isinstance(body, dict) and ("arguments" in body or not body)
        return Reading(fault="it names no tool", certain=True, end=end) if known else NOTHING
    seen = text[start:end]
    named = re.search(r"""["'](?:tool|name|function)["']\s*:\s*["']([\w.-]+)["']""", seen)
    name = named[1] if named and named[1] in tools else None
    attempt = re.search(r"""["'](?:tool|name|arguments)["']\s*:""", seen) if marked else name and "arguments" in seen
    return Reading(fault=f"its JSON cannot be read: {why}", tool=name, end=end) if attempt else NOTHING


def _python_at(text: str, start: int, opening: int, tools: Tools) -> Reading:
    """Read a call `NAME(...)`. An unknown tool counts only with keyword arguments and at the end of a line."""
    end = opening + len(find_balanced(text, opening))
    ends_line = not _line_at(text, end).strip(" `.")
    if call := read_expression(text[start:end], tools, unknown=ends_line):
        return Reading([call], end=end)
    known = known_name(text[start:opening], tools)
    return Reading(fault=f"the arguments of {known}(...) cannot be read", tool=known, end=end) if known else NOTHING


def read_expression(text: str, tools: Tools, unknown: bool = False) -> Call | None:
    """Return the call if a text is one in Python syntax, else None.

    unknown: accept an unknown tool, if all arguments are named.
    """
    said = parse_python(text) if re.match(r"\[?\s*(?:print\()?[A-Za-z_][\w.-]*\(", text) else []
    return _read_python(said[0], tools, unknown) if len(said) == 1 else None


def _read_python(tree: ast.expr, tools: Tools, unknown: bool) -> Call | None:
    if isinstance(tree, ast.List) and tree.elts:
        return _read_python(tree.elts[0], tools, unknown)
    if not isinstance(tree, ast.Call):
        return None
    called = ast.unparse(tree.func)
    if called == "print" and len(tree.args) == 1:
        return _read_python(tree.args[0], tools, unknown)
    try:
        given = [read_literal(part) for part in tree.args]
        named = {str(k.arg): read_literal(k.value) for k in tree.keywords}
    except ValueError:
        return None
    if (name := known_name(called, tools)) is None:
        return {"name": called, "arguments": named} if unknown and named and not given else None
    known = list(tools[name])
    if len(given) == 1 and not named and isinstance(given[0], dict) and {*given[0]} <= {*known}:
        return {"name": name, "arguments": given[0]}
    if len(given) > len(known) or "None" in named:
        return None
    return {"name": name, "arguments": {**dict(zip(known, given, strict=False)), **named}}


def read_expressions(text: str, tools: Tools) -> Sequence[Call]:
    """Return the calls if a text consists of nothing but calls in Python syntax, on separate lines or in a list."""
    parts = [part for one in parse_python(text) for part in (one.elts if isinstance(one, ast.List) else [one])]
    found = [_read_python(part, tools, unknown=True) for part in parts]
    return [call for call in found if call] if all(found) else []
