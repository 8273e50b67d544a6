"""Parse tool calls in the forms that language models write.

Workflows ask for one line, `call: {"tool": NAME, "arguments": {...}}`, and such a line takes precedence. Models use
many other forms, too: several lines, a code fence, Python, the tags of their training, ReAct's `Action:`. These count
only if they name a tool of the node. An unreadable attempt is a fault: the node reports it to the model, so that it is
not taken for the answer.

A call that an answer quotes does not count. After the label of an output (`answer: ...`), only the requested form is
read; in the middle of a sentence, only a call that ends its line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import replace
from itertools import chain, islice, takewhile

from workbench.lm import split_thoughts
from workbench_kit.answers.call_bodies import NOTHING, Reading, Tools, json_at, read_at, read_call, read_expression
from workbench_kit.answers.conclusions import DECORATION
from workbench_kit.answers.json_text import load

_STRICT = re.compile(r"(?im)^[ \t]*+call:\s*+(\{.*\})\s*$")
#: Marks of calls, by form: those that begin a line, those within one, and fences. Lookaheads make the search for the
#: first two fast.
_MARKS = (
    re.compile(
        rf"(?im)^(?=[ \t>*_`#\d.)-]*+[tfca\u273f\[{{])(?:{DECORATION}(?:"
        r"(?P<mark>(?:(?:tool[ _-]?|function[ _-]?)?call|action(?: \d+)?)[*_`]*[ \t]*:[*_]*)|"
        r"(?P<name>(?:\u273fFUNCTION\u273f|tool|function)[*_]*[ \t]*:[*_]*[ \t]*(?=(?P<named>\S.*)$)))|"
        r"(?P<tag>(?:assistant)?(?:commentary|analysis)? ?to=(?=functions\.))|(?P<bare>[ \t]*(?=[\[{])))"
    ),
    re.compile(
        r"(?m)[Cc<>\[](?:(?P<inline>(?<=[ \t].)(?i:all):)|"
        r"(?P<tag>(?<=<)(?i:function=|(?:function|invoke) name=)[\"']?|"
        r"(?<=<)\|?(?!end_)(?i:(?:[a-z]{1,9}[_:])?(?:tool_?calls?|function_?calls?|tool_use|tools|python_tag|action)"
        r"(?:_begin|_start)?\|?>(?:<\|plugin\|>)?(?:\s*call:)?)|(?<=\[)(?i:TOOL_CALLS?)\]|(?<=^>)>>[ \t]*|"
        r"(?<=<)\uff5ctool\u2581call\u2581begin\uff5c>(?:function<\uff5ctool\u2581sep\uff5c>)?|"
        r"(?<=<)\|(?:start|channel)\|>(?:assistant)?(?:commentary|analysis)? ?to=))"
    ),
    re.compile(r"(?s)(?P<fence>```(?P<language>[\w+-]*)\s*(?P<content>.*?)(?:```|\Z))"),
)
_ENDS_LINE = re.compile(r"[ \t]*[.!]?[ \t]*(?:\n|\Z)")
_CUT = "it was cut off at the limit of tokens"
#: Maximum number of places tried for each kind of mark, so that a long text of braces takes no time.
_MANY = 40


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
    if call := read_call(body, tools):
        return Reading([call])
    if not tools:
        return Reading([{"name": None, "arguments": None}]) if strict else NOTHING
    first = _first(text, tools, outputs)
    # The probe after the text changes the reading of a cut call, but not that of a complete one.
    if cut and first.calls and first.calls != _first(f'{text}~"', tools, outputs).calls:
        first = Reading(fault=_CUT, tool=str(first.calls[0]["name"]))
    if strict and not first.calls:
        fault = first.fault or "what follows `call:` is not a JSON object that names a tool"
        return Reading(fault=fault, certain=True, tool=first.tool)
    return replace(first, fault=_CUT) if cut and first.fault else first


def _first(text: str, tools: Tools, outputs: Collection[str]) -> Reading:
    """Return the first readable call before the answer; else the first fault, or NOTHING."""
    said = text.strip()
    fenced = said.startswith("```") and _runs_code(tools)
    if not fenced and (whole := read_expression(said.strip("`").strip(), tools)):
        return Reading([whole])
    end, fault = _answer_begins(text, outputs), NOTHING
    found = (takewhile(lambda mark: mark.start() < end, marks.finditer(text)) for marks in _MARKS)
    places = chain(*(islice(marks, _MANY) for marks in found))
    for place in sorted(places, key=lambda mark: mark.start()):
        reading = _read_mark(text, place, tools)
        if reading.calls:
            return reading
        fault = fault if fault.fault else reading
    return fault


def correction(reading: Reading, tools: Tools) -> str:
    """Return the message to a model about an unreadable call: the fault, and the right form."""
    tool = reading.tool if reading.tool in tools else None
    named = ", ".join(f'"{argument}": ...' for argument in tools[tool]) if tool else "..."
    form = f'call: {{"tool": {json.dumps(tool) if tool else "NAME"}, "arguments": {{{named}}}}}'
    return (
        f"{UNREADABLE}, but {reading.fault}. Write a call as one line of JSON:\n{form}\n"
        "If it was meant as the answer, give the answer in the form asked for."
    )


def answer_text(text: str, outputs: Collection[str]) -> str | None:
    """Return the text of a reply `say: TEXT`, at the beginning or on a line after a thought; None for any other reply.

    A reply with the label of an output is an answer, and no message to the user.
    """
    text = split_thoughts(text)[1]
    found = re.fullmatch(r"(?is)\s*say:\s*(\S.*)", text)
    if found is None and _answer_begins(text, outputs) == len(text):
        found = re.search(rf"(?is)(?:^|\n){DECORATION}say[*_`]*:[*_`]*\s*(\S.*)", text)
    return found.group(1).strip() if found else None


def _answer_begins(text: str, outputs: Collection[str]) -> int:
    """Return the index of the first output label; the length of the text if there is none."""
    names = "|".join(re.escape(name) for name in outputs)
    found = re.search(rf"(?im)^{DECORATION}(?:{names})[*_`]*[ \t]*:", text) if names else None
    return found.start() if found else len(text)


def _read_mark(text: str, mark: re.Match[str], tools: Tools) -> Reading:
    """Read the call at a mark."""
    match mark.lastgroup:
        case "mark" | "tag":
            return read_at(text, mark.end(), tools)
        case "inline":  # only of a known tool, at the end of its line
            reading = read_at(text, mark.end(), tools)
            known = any(str(call["name"]) in tools for call in reading.calls)
            return reading if known and _ENDS_LINE.match(text, reading.end) else NOTHING
        case "name":  # `Tool:` is also a word of prose: only with the name of a tool and nothing else on its line
            return read_at(text, mark.end(), tools) if mark["named"].strip().strip("`*") in tools else NOTHING
        case "fence":
            return _read_fence(text, mark, tools)
    return json_at(text, mark.end(), tools, marked=False)


def _read_fence(text: str, mark: re.Match[str], tools: Tools) -> Reading:
    """Read a fence with JSON, with calls in Python syntax, or, if a tool runs Python, with code."""
    language, content = mark["language"].lower(), mark["content"].strip()
    runs = _runs_code(tools)
    if content.startswith(("{", "[")) and not (runs and language in ("python", "py")):
        is_call = language in ("tool_code", "tool_call", "function_call")
        return json_at(text, mark.start("content"), tools, marked=is_call)
    call = read_expression(content, tools)
    if runs and content and (language in ("python", "py", "tool_code") or (call and not language)):
        call = {"name": "python", "arguments": {"code": content}}
    return Reading([call]) if call else NOTHING


def _runs_code(tools: Tools) -> bool:
    return list(tools.get("python", ())) == ["code"]
