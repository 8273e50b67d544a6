"""Parses tool calls in the forms that language models write.

Workflows ask for one line, `call: {"tool": NAME, "arguments": {...}}`, and such a line takes precedence. Models use
many other forms, too: several lines, a code fence, Python, the tags of their training, ReAct's `Action:`. These count
only if they name a tool of the node. An unreadable attempt is a fault: the node reports it to the model, so that it is
not taken for the answer.

A call that an answer quotes does not count. After the label of an output (`answer: ...`), only the requested form is
read; and in the middle of a sentence, only a call that ends its line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from workbench.kit.answers.conclusions import DECORATION
from workbench.kit.answers.json_text import load, read_object
from workbench.kit.call_bodies import (
    NAME,
    NOTHING,
    OPENING,
    Reading,
    Tools,
    json_at,
    make_call,
    read_at,
    read_expression,
    read_value,
)
from workbench.lm import split_thoughts

_STRICT = re.compile(r"(?im)^[ \t]*+call:\s*+(\{.*\})\s*$")
_MARK = re.compile(rf"(?im)^{DECORATION}(?:tool[ _-]?|function[ _-]?)?call[*_`]*[ \t]*:[*_]*")
_INLINE = re.compile(r"(?i)(?<=[ \t])call:")
_TAG = re.compile(
    r"(?im)<\|?(?!end_)(?:[a-z]{1,9}[_:])?(?:tool_?calls?|function_?calls?|tool_use|python_tag|action)(?:_begin|_start)?"
    r"\|?>(?:\s*call:)?|\[TOOL_CALLS?\]|"
    r"<\uff5ctool\u2581call\u2581begin\uff5c>(?:function<\uff5ctool\u2581sep\uff5c>)?|"
    r"(?:^|<\|start\|>|<\|channel\|>)(?:assistant)?(?:commentary|analysis)? ?to=(?=functions\.)|"
    r"<\|channel\|>(?:commentary|analysis) to=|^>>>[ \t]*"
)
_ELEMENT = re.compile(r"(?i)<(?:function=|invoke name=)[\"']?([\w.-]+)[\"']?>")
_PARAMETER = re.compile(r"(?is)<parameter(?:=| name=)[\"']?([\w.-]+)[\"']?[^<>]*>\n?(.*?)\n?</parameter>")
_ACTION = re.compile(
    rf"(?im)^{DECORATION}(?:action|(?P<other>\u273fFUNCTION\u273f|tool|function))[*_]*[ \t]*:[*_]*[ \t]*"
    r"(?P<named>\S.*)$"
)
_ACTION_INPUT = re.compile(
    rf"(?im)\A(?:[ \t]*\n)*+{DECORATION}(?:action[ _]input|\u273fARGS\u273f|arguments|args|input)[*_]*[ \t]*:[*_]*"
)
_FENCE = re.compile(r"(?s)```([\w+-]*)\s*(.*?)(?:```|\Z)")
_BARE = re.compile(r"(?m)^[ \t]*(?=[\[{])")
_CODE_FENCES = frozenset({"python", "py", "tool_code"})
_CALL_FENCES = frozenset({"tool_code", "tool_call", "function_call"})
_CUT = "it was cut off at the limit of tokens"

#: Places of a text tried for each form, so that a long text of braces takes no time.
_MANY = 20


#: The beginning of each correction.
UNREADABLE = "error: this looks like the call of a tool"


def read_text(text: str, tools: Tools, outputs: Collection[str] = (), cut: bool = False) -> Reading:
    """Read the first call in a reply, or the reason why the first attempt cannot be read.

    outputs: labels that begin the answer. cut: whether the reply ended at max_tokens. Without tools, only the line
    `call: {...}` is read.
    """
    text = split_thoughts(text)[1].replace("\uff5cDSML\uff5c", "")  # before the names of DeepSeek's tags
    strict = _STRICT.search(text)
    body = load(strict.group(1)) if strict else None
    if isinstance(body, dict) and (body.get("tool") or body.get("name") or not tools):
        return Reading([make_call(body, tools)])
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
        reading, _ = read_at(text, mark.end(), tools)
        yield mark.start(), reading


def _inline(text: str, tools: Tools) -> _Found:
    """Calls after `call:` within a line: only those of a known tool that end the line."""
    for mark in _some(_INLINE.finditer(text)):
        reading, end = read_at(text, mark.end(), tools)
        known = bool(reading.calls) and str(reading.calls[0]["name"]) in tools
        if known and re.match(r"[ \t]*[.!]?[ \t]*(?:\n|\Z)", text[end:]):
            yield mark.start(), reading


def _tagged(text: str, tools: Tools) -> _Found:
    """Calls after a tag such as <tool_call>."""
    for tag in _some(_TAG.finditer(text)):
        reading, _ = read_at(text, tag.end(), tools)
        yield tag.start(), reading


def _elements(text: str, tools: Tools) -> _Found:
    """`<function=NAME>{...}</function>`, or with an element for each argument."""
    for element in _some(_ELEMENT.finditer(text)):
        name, rest = element.group(1), text[element.end() :]
        closing = re.search(r"(?i)</(?:function|invoke)>", rest)
        inside = rest[: closing.start()] if closing else rest
        arguments: Any = {
            p.group(1): read_value(p.group(2)) for p in _PARAMETER.finditer(_through_last(inside, "</parameter>"))
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
        written = action["named"].strip().strip("`*")
        if action["other"] and written not in tools:  # words of prose, too
            continue
        given = _ACTION_INPUT.match(text[action.end() :])
        if given is not None and NAME.fullmatch(written):
            rest = text[action.end() + given.end() :]
            yield action.start(), _with_input(written, rest, tools)
        elif (bracket := re.fullmatch(r"([A-Za-z_][\w.-]*)\[(.*)\]\.?", written)) and bracket.group(1) in tools:
            yield action.start(), _with_input(bracket.group(1), bracket.group(2), tools)
        elif (name := NAME.match(written)) and name.group() in tools:
            reading, _ = read_at(text, action.start("named"), tools)
            yield action.start(), reading


def _with_input(name: str, text: str, tools: Tools) -> Reading:
    """A call whose arguments are JSON, or the text of its only argument."""
    opening = OPENING.match(text)
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
        runs = language in _CODE_FENCES and list(tools.get("python", ())) == ["code"]
        code = Reading([{"name": "python", "arguments": {"code": content}}])
        if content[:1] in ("{", "[") and content[:1]:
            yield fence.start(), json_at(text, fence.start(2), tools, marked=language in _CALL_FENCES)
        elif runs and content and language != "tool_code":  # a single call, too: two statements would be code
            yield fence.start(), code
        elif reading := read_expression(content, tools):
            yield fence.start(), reading
        elif runs and content:
            yield fence.start(), code


def _bare(text: str, tools: Tools) -> _Found:
    """JSON at the beginning of a line."""
    for place in _some(_BARE.finditer(text)):
        yield place.start(), json_at(text, place.end(), tools, marked=False)


def _whole(text: str, tools: Tools) -> _Found:
    """A reply that is a call in Python syntax and nothing else."""
    if reading := read_expression(text.strip().strip("`").strip(), tools):
        yield 0, reading


def _some(found: Iterator[re.Match[str]]) -> Iterator[re.Match[str]]:
    for _, match in zip(range(_MANY), found, strict=False):
        yield match


def _through_last(text: str, end: str) -> str:
    """A text up to its last `end`. What begins later has no end, and searching for it would take long."""
    return text[: text.rfind(end) + len(end)] if end in text else ""
