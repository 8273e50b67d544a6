"""Parses tool calls in the forms that language models write.

Workflows ask for one line, `call: {"tool": NAME, "arguments": {...}}`, and such a line takes precedence. Models use
many other forms, too: several lines, a code fence, Python, the tags of their training, ReAct's `Action:`. These count
only if they name a tool of the node. An unreadable attempt is a fault: the node reports it to the model, so that it is
not taken for the answer.

A call that an answer quotes does not count. After the label of an output (`answer: ...`), only the requested form is
read; and in the middle of a sentence, only a call that ends its line.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from workbench.kit.answers.conclusions import DECORATION
from workbench.kit.answers.json_text import find_balanced, load, load_loose, read_literal, read_object
from workbench.lm.thoughts import split_thoughts

Call = dict[str, Any]  # name, arguments; for a native call also id
Tools = Mapping[str, Sequence[str]]  # argument names by tool name
_STRICT = re.compile(r"(?im)^[ \t]*+call:\s*+(\{.*\})\s*$")
_MARK = re.compile(rf"(?im)^{DECORATION}(?:tool[ _-]?|function[ _-]?)?call[*_`]*[ \t]*:[*_]*")
_INLINE = re.compile(r"(?i)(?<=[ \t])call:")
_TAG = re.compile(
    r"(?im)<\|?(?:tool_call|function_call|tool_use|python_tag|tool_call_begin|start_action)\|?>|\[TOOL_CALLS?\]|"
    r"<\uff5ctool\u2581call\u2581begin\uff5c>(?:function<\uff5ctool\u2581sep\uff5c>)?|"
    r"<\|channel\|>(?:commentary|analysis) to=|^>>>[ \t]*"
)
#: What stands between the name of a tool and its arguments: `:0`, special tokens, a fence.
_BETWEEN = re.compile(
    r"(?::\d+)?(?:\[ARGS\]|<\|[^|>]{1,40}\|>|<\uff5c[^\uff5c]{1,40}\uff5c>|json\b|[ \t`:\n])*(?:```\w*\s*)?"
)
_PAIRS = re.compile(r"(?s)<arg_key>([^<]*)</arg_key>\s*<arg_value>((?:(?!</?arg_).)*)</arg_value>")
_ELEMENT = re.compile(r"(?i)<(?:function=|invoke name=)[\"']?([\w.-]+)[\"']?>")
_PARAMETER = re.compile(r"(?is)<parameter(?:=| name=)[\"']?([\w.-]+)[\"']?>\n?(.*?)\n?</parameter>")
_ACTION = re.compile(rf"(?im)^{DECORATION}action[*_]*[ \t]*:[*_]*[ \t]*(\S.*)$")
_ACTION_INPUT = re.compile(rf"(?im)\A(?:[ \t]*\n)*+{DECORATION}action[ _]input[*_]*[ \t]*:[*_]*")
_FENCE = re.compile(r"(?s)```([\w+-]*)\s*(.*?)(?:```|\Z)")
_BARE = re.compile(r"(?m)^[ \t]*(?=[\[{])")
_OPENING = re.compile(r"\s*(?:```[\w+-]*\s*|[`*_]+)?\s*")
_NAME = re.compile(r"[A-Za-z_][\w-]*(?:\.\w+)*")
_ARGUMENTS = ("arguments", "parameters", "args", "input", "tool_input", "params")
_CODE_FENCES = frozenset({"python", "py", "tool_code"})
_CALL_FENCES = frozenset({"tool_code", "tool_call", "function_call"})
_CUT = "it was cut off at the limit of tokens"

#: Places of a text tried for each form, so that a long text of braces takes no time.
_MANY = 20


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

#: The beginning of each correction.
UNREADABLE = "error: this looks like the call of a tool"


def read_text(text: str, tools: Tools, outputs: Collection[str] = (), cut: bool = False) -> Reading:
    """Read the first call in a reply, or the reason why the first attempt cannot be read.

    outputs: labels that begin the answer. cut: whether the reply ended at max_tokens. Without tools, only the line
    `call: {...}` is read.
    """
    text = split_thoughts(text)[1]
    strict = _STRICT.search(text)
    body = load(strict.group(1)) if strict else None
    if isinstance(body, dict) and (body.get("tool") or body.get("name") or not tools):
        return Reading([_call(body, tools)])
    if not tools:
        return Reading([{"name": None, "arguments": None}]) if strict else NOTHING
    first = _first(text, tools, outputs)
    # The probe behind the text changes the reading of a cut call, and not that of a complete one.
    if cut and first.calls and first.calls != _first(f'{text}~"', tools, outputs).calls:
        first = Reading(fault=_CUT, tool=str(first.calls[0]["name"]))
    if strict and not first.calls:
        fault = first.fault or "what follows `call:` is not a JSON object that names a tool"
        return Reading(fault=fault, certain=True, tool=first.tool)
    return replace(first, fault=_CUT) if cut and first.fault else first


def _first(text: str, tools: Tools, outputs: Collection[str]) -> Reading:
    """The first readable call before the answer; else the first fault, or NOTHING."""
    end = _answer_begins(text, outputs)
    readers = (_marked, _inline, _tagged, _elements, _actions, _fenced, _bare, _whole)
    found = [one for reader in readers for one in reader(text, tools) if one[0] < end]
    found.sort(key=lambda one: one[0])
    return next((r for _, r in found if r.calls), next((r for _, r in found if r.fault), NOTHING))


def correction(reading: Reading, tools: Tools) -> str:
    """The message to a model about an unreadable call: the fault, and the right form."""
    tool = reading.tool if reading.tool in tools else None
    named = ", ".join(f'"{argument}": ...' for argument in tools[tool]) if tool else "..."
    form = f'call: {{"tool": {json.dumps(tool) if tool else "NAME"}, "arguments": {{{named}}}}}'
    return (
        f"{UNREADABLE}, but {reading.fault}. Write a call as one line of JSON:\n{form}\n"
        "If it was meant as the answer, give the answer in the form asked for."
    )


def answer_text(text: str, outputs: Collection[str]) -> str | None:
    """The text of a reply `say: TEXT`, at the beginning or on a line after a thought; None for any other reply.

    A reply with the label of an output is an answer, and says nothing to the user.
    """
    text = split_thoughts(text)[1]
    found = re.fullmatch(r"(?is)\s*say:\s*(\S.*)", text)
    if found is None and _answer_begins(text, outputs) == len(text):
        found = re.search(rf"(?is)(?:^|\n){DECORATION}say[*_`]*:[*_`]*\s*(\S.*)", text)
    return found.group(1).strip() if found else None


def _answer_begins(text: str, outputs: Collection[str]) -> int:
    """The index of the first output label; the length of the text if there is none."""
    names = "|".join(re.escape(name) for name in outputs)
    found = re.search(rf"(?im)^{DECORATION}(?:{names})[*_`]*[ \t]*:", text) if names else None
    return found.start() if found else len(text)


# Forms of a call. Each function yields (index, reading).

_Found = Iterator[tuple[int, Reading]]


def _marked(text: str, tools: Tools) -> _Found:
    """Calls after `call:` at the beginning of a line."""
    for mark in _some(_MARK.finditer(text)):
        reading, _ = _read_at(text, mark.end(), tools)
        yield mark.start(), reading


def _inline(text: str, tools: Tools) -> _Found:
    """Calls after `call:` within a line: only those of a known tool that end the line."""
    for mark in _some(_INLINE.finditer(text)):
        reading, end = _read_at(text, mark.end(), tools)
        known = bool(reading.calls) and str(reading.calls[0]["name"]) in tools
        if known and re.match(r"[ \t]*[.!]?[ \t]*(?:\n|\Z)", text[end:]):
            yield mark.start(), reading


def _tagged(text: str, tools: Tools) -> _Found:
    """Calls after a tag such as <tool_call>."""
    for tag in _some(_TAG.finditer(text)):
        reading, _ = _read_at(text, tag.end(), tools)
        yield tag.start(), reading


def _elements(text: str, tools: Tools) -> _Found:
    """`<function=NAME>{...}</function>`, or with an element for each argument."""
    for element in _some(_ELEMENT.finditer(text)):
        name, rest = element.group(1), text[element.end() :]
        closing = re.search(r"(?i)</(?:function|invoke)>", rest)
        inside = rest[: closing.start()] if closing else rest
        arguments: Any = {
            p.group(1): _value(p.group(2)) for p in _PARAMETER.finditer(_through_last(inside, "</parameter>"))
        }
        if inside.strip().startswith("{"):
            arguments, _, why = read_object(inside, inside.index("{"))
            if not isinstance(arguments, dict):
                yield element.start(), Reading(fault=f"its arguments cannot be read: {why}", tool=name)
                continue
        if arguments or name in tools:
            yield element.start(), Reading([{"name": name, "arguments": arguments}])


def _actions(text: str, tools: Tools) -> _Found:
    """ReAct: `Action: NAME` with `Action Input: ...` on the next line, or `Action: NAME[...]`."""
    for action in _some(_ACTION.finditer(text)):
        written = action.group(1).strip().strip("`*")
        given = _ACTION_INPUT.match(text[action.end() :])
        if given is not None and _NAME.fullmatch(written):
            rest = text[action.end() + given.end() :]
            yield action.start(), _with_input(written, rest, tools)
        elif (bracket := re.fullmatch(r"([A-Za-z_][\w.-]*)\[(.*)\]\.?", written)) and bracket.group(1) in tools:
            yield action.start(), _with_input(bracket.group(1), bracket.group(2), tools)
        elif (name := _NAME.match(written)) and name.group() in tools:
            reading, _ = _read_at(text, action.start(1), tools)
            yield action.start(), reading


def _with_input(name: str, text: str, tools: Tools) -> Reading:
    """A call whose arguments are JSON, or the text of its only argument."""
    opening = _OPENING.match(text)
    start = opening.end() if opening else 0
    if text[start : start + 1] == "{":
        arguments, _, why = read_object(text, start)
        if isinstance(arguments, dict):
            return Reading([{"name": name, "arguments": arguments}])
        return Reading(fault=f"its arguments cannot be read: {why}", tool=name)
    line = text.strip().split("\n")[0].strip().strip("\"'`")
    if not line and name in tools:
        return Reading([{"name": name, "arguments": {}}])
    if len(tools.get(name, ())) == 1:
        return Reading([{"name": name, "arguments": {tools[name][0]: line}}])
    return Reading(fault="its arguments are not a JSON object", tool=name)


def _fenced(text: str, tools: Tools) -> _Found:
    """A fence with JSON, with a call in Python syntax, or, if a tool runs Python, with code."""
    for fence in _some(_FENCE.finditer(text)):
        language, content = fence.group(1).lower(), fence.group(2).strip()
        if content[:1] in ("{", "[") and content[:1]:
            yield fence.start(), _json_at(text, fence.start(2), tools, marked=language in _CALL_FENCES)
        elif reading := _expression(content, tools):
            yield fence.start(), reading
        elif language in _CODE_FENCES and list(tools.get("python", ())) == ["code"] and content:
            yield fence.start(), Reading([{"name": "python", "arguments": {"code": content}}])


def _bare(text: str, tools: Tools) -> _Found:
    """JSON at the beginning of a line."""
    for place in _some(_BARE.finditer(text)):
        yield place.start(), _json_at(text, place.end(), tools, marked=False)


def _whole(text: str, tools: Tools) -> _Found:
    """A reply that is a call in Python syntax and nothing else."""
    if reading := _expression(text.strip().strip("`").strip(), tools):
        yield 0, reading


def _some(found: Iterator[re.Match[str]]) -> Iterator[re.Match[str]]:
    for _, match in zip(range(_MANY), found, strict=False):
        yield match


# Parts of a call


def _read_at(text: str, place: int, tools: Tools) -> tuple[Reading, int]:
    """The reading after a mark, JSON or a name with arguments, and the index of its end."""
    opening = _OPENING.match(text, place)
    start = opening.end() if opening else place
    if text[start : start + 1] in ("{", "["):
        reading = _json_at(text, start, tools, marked=True)
        return reading, read_object(text, start)[1]
    found = _NAME.match(text, start)
    if found is None:
        return NOTHING, start
    name, end = found.group(), found.end()
    if text[end : end + 1] == "(":
        return _python_at(text, start, end, name, tools)
    between = _BETWEEN.match(text, end)
    after = between.end() if between else end
    if text.startswith("<arg_key>", after):
        arguments = {key.strip(): _value(value) for key, value in _PAIRS.findall(text[after:])}
        return Reading([{"name": _known(name, tools) or name, "arguments": arguments}]), len(text)
    if text[after : after + 1] == "{":
        arguments, stop, why = read_object(text, after)
        if isinstance(arguments, dict):
            return Reading([{"name": _known(name, tools) or name, "arguments": arguments}]), stop
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


def _json_at(text: str, start: int, tools: Tools, marked: bool) -> Reading:
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
    body = _unwrapped(body, tools if marked else {})
    if isinstance(body, dict):
        body = {k: _known(v, tools) or v if k in ("tool", "name") else v for k, v in body.items()}
    if isinstance(body, dict) and isinstance(body.get("tool") or body.get("name"), str):
        return Reading([_call(body, tools)]) if marked or _is_call(body, tools) else NOTHING
    known = isinstance(body, dict) and ("arguments" in body or not body)
    return Reading(fault="it names no tool", certain=True) if marked and known else NOTHING


def _unwrapped(body: Any, tools: Tools) -> Any:
    """The call inside the wrappers that some models add."""
    if isinstance(body, list):
        return _unwrapped(body[0], tools) if body else None
    if not isinstance(body, dict):
        return None
    for key in ("tool_calls", "tool_call", "function_call"):
        if isinstance(body.get(key), list | dict) and body[key]:
            return _unwrapped(body[key], tools)
    if isinstance(body.get("function"), dict):
        return body["function"]
    if isinstance(body.get("function"), str) and "name" not in body:
        return {"name": body["function"], **{k: v for k, v in body.items() if k not in ("function", "type")}}
    if isinstance(body.get("action"), str) and "action_input" in body:
        return {"name": body["action"], "arguments": body["action_input"]}
    if isinstance(body.get("tool_name"), str):
        body = {"name": body["tool_name"], **{k: v for k, v in body.items() if k not in ("tool_name", "tool_call_id")}}
    if len(body) == 1 and (name := next(iter(body))) in tools and isinstance(body[name], dict):
        return {"name": name, "arguments": body[name]}
    return body


def _known(name: Any, tools: Tools) -> str | None:
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


def _call(body: Mapping[str, Any], tools: Tools) -> Call:
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
    if (known := _known(name, tools)) is not None:
        name = known
        reading = _expression(f"{name}{raw}", tools)
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


def _expression(text: str, tools: Tools) -> Reading | None:
    """The reading of a text that is one tool call in Python syntax; None for any other text."""
    if not re.match(r"\[?\s*(?:print\()?[A-Za-z_][\w.-]*\(", text):
        return None
    try:
        tree: ast.expr = ast.parse(text, mode="eval").body
        if isinstance(tree, ast.List) and tree.elts:
            tree = tree.elts[0]
        if isinstance(tree, ast.Call) and ast.unparse(tree.func) == "print" and len(tree.args) == 1:
            tree = tree.args[0]
        name = _known(ast.unparse(tree.func), tools) if isinstance(tree, ast.Call) else None
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


def _through_last(text: str, end: str) -> str:
    """A text up to its last `end`. What begins later has no end, and searching for it would take long."""
    return text[: text.rfind(end) + len(end)] if end in text else ""


def _value(text: str) -> Any:
    """The value of an element's text: read as JSON if it is a number, true, false, null, a list or an object."""
    found = load(text.strip())
    return text if found is None or isinstance(found, str) else found
