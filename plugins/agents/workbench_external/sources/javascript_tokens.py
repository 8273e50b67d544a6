"""The tokens of JavaScript and TypeScript, as far as texts need them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

#: After these, a slash begins a pattern; after a name, a number or a closing bracket it divides.
_BEFORE_PATTERN = re.compile(
    r"(?:[(,=:\[!&|?{};+\-*%^~<>]|\b(?:return|typeof|case|in|of|delete|void|throw|new|do|else))\Z"
)
_SPACE = re.compile(r"(?:\s|//[^\n\r\u2028\u2029]*|/\*.*?\*/)+", re.DOTALL)
_STRING = re.compile(r"\"(?:[^\"\\\n\r]|\\(?:\r\n|.))*\"|'(?:[^'\\\n\r]|\\(?:\r\n|.))*'", re.DOTALL)
_PATTERN = re.compile(r"/(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[a-z]*")
_NAME = re.compile(r"[\w$\u0080-\U0010ffff]+")


@dataclass(frozen=True)
class Token:
    """A token. kind: `string`, `template`, `name`, `pattern` or `mark`."""

    kind: str
    start: int
    end: int
    text: str


def read_tokens(source: str, start: int = 0, end: int | None = None) -> Iterator[Token]:
    """Yield the tokens of a part of a source, without comments. An unclosed quote is a mark, as in JSX."""
    at, end, before = start, len(source) if end is None else end, ""
    opened = list[str]()  # text before each open bracket: after `if (...)` a slash begins a pattern
    while at < end:
        if (space := _SPACE.match(source, at, end)) is not None:
            at = space.end()
            continue
        char = source[at]
        kind, found = "mark", None
        if char in "\"'":
            kind, found = "string", _STRING.match(source, at, end)
        elif char == "/" and (not before or _BEFORE_PATTERN.search(before)):
            kind, found = "pattern", _PATTERN.match(source, at, end)
        elif (name := _NAME.match(source, at, end)) is not None:
            kind, found = "name", name
        closed = found.end() if found is not None else None
        if char == "`" and (closed := end_of_template(source, at, end)) is not None:
            kind = "template"
        if closed is None:
            kind, closed = "mark", at + 1
        token = Token(kind, at, closed, source[at:closed])
        yield token
        if kind == "mark" and char == "(":
            opened.append(before)
        begun = opened.pop() if kind == "mark" and char == ")" and opened else ""
        before, at = ";" if begun in ("if", "while", "for", "with") else token.text, closed


def end_of_template(source: str, start: int, end: int) -> int | None:
    """Return the place after the closing backtick of the template that begins at `start`; None if it is not closed."""
    at = start + 1
    while at < end:
        if source[at] == "\\":
            at += 2
        elif source[at] == "`":
            return at + 1
        elif source.startswith("${", at):
            if (closed := end_of_field(source, at, end)) is None:
                return None
            at = closed
        else:
            at += 1
    return None


def end_of_field(source: str, start: int, end: int) -> int | None:
    """Return the place after the bracket that closes `${` at `start`; None if it is not closed."""
    depth = 0
    for token in read_tokens(source, start + 1, end):
        depth += {"{": 1, "}": -1}.get(token.text, 0) if token.kind == "mark" else 0
        if not depth:
            return token.end
    return None
