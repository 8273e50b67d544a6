"""The bodies of tool calls: JSON, Python, or a name with arguments, as they stand behind the mark of a form."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.kit.answers.json_text import find_balanced, load, load_loose, read_literal, read_object

Call = dict[str, Any]  # name, arguments; for a native call also id
Tools = Mapping[str, Sequence[str]]  # argument names by tool name
#: What stands between the name of a tool and its arguments: `:0`, special tokens, a fence.
_BETWEEN = re.compile(
    r"(?::\d+)?(?:\[CALL_ID\]\w+|\[ARGS\]|commentary\b|(?i:arguments|args|input)(?=[*_]*[ \t]*:)|<\|[^|>]{1,40}\|>|"
    r"<\uff5c[^\uff5c]{1,40}\uff5c>|json\b|[ \t`:\n])*(?:```\w*\s*)?"
)
_PAIRS = re.compile(r"(?s)<arg_key>([^<]*)</arg_key>\s*<arg_value>((?:(?!</?arg_).)*)</arg_value>")
OPENING = re.compile(r"\s*(?:```[\w+-]*\s*|[`*_]+)?\s*")
NAME = re.compile(r"[A-Za-z_][\w-]*(?:\.\w+)*")
_ARGUMENTS = ("arguments", "parameters", "args", "input", "tool_input", "tool_args", "params")


@dataclass(frozen=True)
class Reading:
    """The calls in a reply.

    fault: why an apparent call cannot be read. certain: whether it was a line `call: {...}`, which can mean nothing
    else. tool: the tool that it seems to name.
    """

    calls: Sequence[Call] = ()
    fault: str | None = None
    certain: bool = False
    tool: str | None = None


NOTHING = Reading()


def read_at(text: str, place: int, tools: Tools) -> tuple[Reading, int]:
    """The reading after a mark, JSON or a name with arguments, and the index of its end."""
    opening = OPENING.match(text, place)
    start = opening.end() if opening else place
    if text.startswith("[", start) and (pythonic := read_expression(raw := find_balanced(text, start), tools)):
        return pythonic, start + len(raw)
    if text[start : start + 1] in ("{", "["):
        reading = json_at(text, start, tools, marked=True)
        return reading, read_object(text, start)[1]
    found = NAME.match(text, start)
    if found is None:
        return NOTHING, start
    name, end = found.group(), found.end()
    if text[end : end + 1] == "(":
        return _python_at(text, start, end, name, tools)
    between = _BETWEEN.match(text, end)
    after = between.end() if between else end
    if text.startswith("<arg_key>", after):
        arguments = {key.strip(): read_value(value) for key, value in _PAIRS.findall(text[after:])}
        return Reading([{"name": known_name(name, tools) or name, "arguments": arguments}]), len(text)
    if text[after : after + 1] == "{":
        arguments, stop, why = read_object(text, after)
        if isinstance(arguments, dict):
            return Reading([{"name": known_name(name, tools) or name, "arguments": arguments}]), stop
        fault = Reading(fault=f"its arguments cannot be read: {why}", tool=name)
        return (fault if name in tools else NOTHING), stop
    if name not in tools:
        return NOTHING, end
    fence = re.compile(r"\s*+```[\w+-]*[ \t]*\n(.*?)(?:\n```|\Z)", re.DOTALL).match(text, end)
    if fence and len(tools[name]) == 1:
        return Reading([{"name": name, "arguments": {tools[name][0]: fence.group(1)}}]), fence.end()
    line = text[end:].split("\n")[0]
    if not line.strip(" \t`*.;"):
        return Reading([{"name": name, "arguments": {}}]), end + len(line)
    if re.match(r"\s*(?:,|with\b|[\w-]+\s*[=:])", line):
        return Reading(fault="its arguments are not a JSON object", tool=name), end
    return NOTHING, end


def json_at(text: str, start: int, tools: Tools, marked: bool) -> Reading:
    """A call in JSON. marked: whether a mark precedes it; without one, it must name a tool and its arguments."""
    body, end, why = read_object(text, start)
    seen = text[start:end]
    named = re.search(r"""["'](?:tool|name|function)["']\s*:\s*["']([\w.-]+)["']""", seen)
    name = named.group(1) if named and named.group(1) in tools else None
    if body is None:
        attempt = (
            re.search(r"""["'](?:tool|name|arguments)["']\s*:""", seen) if marked else name and "arguments" in seen
        )
        return Reading(fault=f"its JSON cannot be read: {why}", tool=name) if attempt else NOTHING
    body = unwrapped(body, tools if marked else {})
    if isinstance(body, dict):
        body = {k: known_name(v, tools) or v if k in ("tool", "name") else v for k, v in body.items()}
    if isinstance(body, dict) and isinstance(body.get("tool") or body.get("name"), str):
        return Reading([make_call(body, tools)]) if marked or _is_call(body, tools) else NOTHING
    known = isinstance(body, dict) and ("arguments" in body or not body)
    return Reading(fault="it names no tool", certain=True) if marked and known else NOTHING


def unwrapped(body: Any, tools: Tools) -> Any:
    """The call inside the wrappers that some models add."""
    if isinstance(body, list):
        return unwrapped(body[0], tools) if body else None
    if not isinstance(body, dict):
        return None
    for key in ("tool_calls", "tool_uses", "tool_call", "function_call", "functionCall", "toolUse"):
        if isinstance(body.get(key), list | dict) and body[key]:
            return unwrapped(body[key], tools)
    if isinstance(body.get("function"), dict):
        return body["function"]
    if isinstance(body.get("function"), str) and "name" not in body:
        return {"name": body["function"], **{k: v for k, v in body.items() if k not in ("function", "type")}}
    if isinstance(body.get("action"), str) and "action_input" in body:
        return {"name": body["action"], "arguments": body["action_input"]}
    for key in ("tool_name", "function_name", "recipient_name"):
        if isinstance(body.get(key), str):
            body = {"name": body[key], **{k: v for k, v in body.items() if k not in (key, "tool_call_id")}}
    if len(body) == 1 and (name := next(iter(body))) in tools and isinstance(body[name], dict):
        return {"name": name, "arguments": body[name]}
    return body


def known_name(name: Any, tools: Tools) -> str | None:
    """The tool that a name means, also with a namespace before it, e.g. `functions.search`; None if none does."""
    if not isinstance(name, str) or name in tools:
        return name if isinstance(name, str) else None
    last = re.split(r"[.:/]", name.removesuffix(".call"))[-1]
    return last if last in tools else None


def _is_call(body: Mapping[str, Any], tools: Tools) -> bool:
    """Whether unmarked JSON is a call, and not just any object with a name."""
    name, rest = body.get("tool") or body.get("name"), set(body) - {"tool", "name", "id", "type"}
    if not isinstance(name, str) or name not in tools:
        return "tool" in body and isinstance(body.get("arguments"), dict)
    if any(key in body for key in _ARGUMENTS):
        return True
    return "tool" in body and rest <= set(tools[name])


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
    if isinstance(given, str) and isinstance(parsed := load_loose(given), dict):
        given = parsed
    return {"name": name, "arguments": given}


def _python_at(text: str, start: int, opening: int, name: str, tools: Tools) -> tuple[Reading, int]:
    """A call `NAME(...)`. An unknown tool counts only with keyword arguments and at the end of a line."""
    raw = find_balanced(text, opening)
    end = opening + len(raw)
    if (known := known_name(name, tools)) is not None:
        name = known
        reading = read_expression(f"{name}{raw}", tools)
        return reading or Reading(fault=f"the arguments of {name}(...) cannot be read", tool=name), end
    try:
        call = ast.parse(f"_{raw}", mode="eval").body
        if (
            isinstance(call, ast.Call)
            and call.keywords
            and not call.args
            and not text[end:].split("\n")[0].strip(" `.")
        ):
            return Reading(
                [{"name": name, "arguments": {str(k.arg): read_literal(k.value) for k in call.keywords}}]
            ), end
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    return NOTHING, end


def read_expression(text: str, tools: Tools) -> Reading | None:
    """The reading of a text that is one tool call in Python syntax; None for any other text."""
    if not re.match(r"\[?\s*(?:print\()?[A-Za-z_][\w.-]*\(", text):
        return None
    try:
        tree: ast.expr = ast.parse(text, mode="eval").body
        if isinstance(tree, ast.List) and tree.elts:
            tree = tree.elts[0]
        if isinstance(tree, ast.Call) and ast.unparse(tree.func) == "print" and len(tree.args) == 1:
            tree = tree.args[0]
        name = known_name(ast.unparse(tree.func), tools) if isinstance(tree, ast.Call) else None
        if not isinstance(tree, ast.Call) or name is None:
            return None
        given = [read_literal(part) for part in tree.args]
        named = {str(k.arg): read_literal(k.value) for k in tree.keywords}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    known = list(tools[name])
    if len(given) == 1 and not named and isinstance(given[0], dict) and set(given[0]) <= set(known):
        return Reading([{"name": name, "arguments": given[0]}])
    if len(given) > len(known) or None in named or "None" in named:
        return None
    return Reading([{"name": name, "arguments": {**dict(zip(known, given, strict=False)), **named}}])


def read_value(text: str) -> Any:
    """The value of an element's text: read as JSON if it is a number, true, false, null, a list or an object."""
    found = load(text.strip())
    return text if found is None or isinstance(found, str) else found
