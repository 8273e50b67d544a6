"""The reader of JSON as language models write it.

It may have line breaks in strings, single quotes, Python literals, trailing commas, missing brackets, and words around
it.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

#: A bracket that may begin a list or an object, rather than a Markdown link, a LaTeX command or a placeholder.
_BRACKET = re.compile(
    r"""\{(?=\s*(?:["'\u201c\u2018}/#]|\\"|<(?:\||escape)|\w{1,80}\s*:))|"""
    r"""\[(?=\s*(?:["'\u201c\u2018\[\](){/#\d.+-]|\\"|<(?:\||escape)|(?i:true|false|null|none)\b))"""
)
#: Maximum number of values in a text, and of brackets in it that cannot be read.
MANY, _FAILED = 5000, 50
#: Maximum number of characters of malformed JSON tried as Python, and repaired after a bracket could not be read.
SHORT = 20_000
#: Thousands groups, which are no items of a list.
_GROUPED = re.compile(r"\d,0\d\d\b")
#: Maximum depth of nested brackets.
_DEEP = 200


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(strict=False, parse_constant=_refuse)


def read_values(text: str) -> Iterator[tuple[Any, int, int]]:
    """Yield (value, start, end) of the outermost lists and objects in a text, in order.

    The work on unreadable parts is bounded by the length of the text.
    """
    place, failed, spent, found = 0, 0, 0, 0
    while found < MANY and failed < _FAILED and spent < 2 * len(text) + 200_000:
        if (bracket := _BRACKET.search(text, place)) is None:
            return
        value, end, why = read_object(text, bracket.start(), mends=spent < SHORT)
        if why or value is None:
            failed, spent, place = failed + 1, spent + end - bracket.start(), bracket.end()
        else:
            yield value, bracket.start(), end
            found, place = found + 1, max(end, bracket.end())


def read_objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the outermost objects in a text, also those in a list."""
    for value, _, _ in read_values(text):
        yield from (one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict))


def find_keyed(text: str, key: str) -> dict[str, Any] | None:
    """Return the first object in a text that has a key, also one nested in another."""
    for outer in read_objects(text):
        for value in (outer, *outer.values()):
            if isinstance(value, dict) and key in value:
                return value
    return None


def read_object(text: str, start: int, mends: bool = True) -> tuple[Any, int, str]:
    """Read the JSON value, Python literal or malformed JSON at `start`: (value, end, error).

    mends: also try other forms than JSON itself.
    """
    end = start
    try:
        value, end = _DECODER.raw_decode(text, start)
        return value, end, ""
    except RecursionError:
        return None, len(text), "it is nested too deeply"
    except json.JSONDecodeError as error:
        end, why = error.pos, f"{error.msg} at its character {error.pos - start + 1}"
    except ValueError as error:  # NaN, or a number of thousands of digits
        why = str(error)
    if not mends:
        return None, end, why
    raw = find_balanced(text, start)
    end = min(len(text), start + len(raw))
    for candidate in dict.fromkeys((raw, _mended(raw))):
        if (with_json := load(candidate)) is not None:
            return with_json, end, ""
        with suppress(ValueError):
            if not _GROUPED.search(candidate) and len(found := parse_python(candidate)) == 1:
                return read_literal(found[0]), end, ""
    return None, end, why


def parse_python(text: str) -> list[ast.expr]:
    """Parse a short text as a Python list of expressions; [] for any other text."""
    try:
        said = ast.parse(text).body if len(text) < SHORT else []
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    values = [one.value for one in said if isinstance(one, ast.Expr)]
    return values if len(values) == len(said) else []


_STRAIGHT = str.maketrans({0x201C: '"', 0x201D: '"', 0x2018: "'", 0x2019: "'"})
_END = r"(?=\s{0,40}(?:[,:}\]]|$))"
#: Valid JSON; strings in single quotes and the text between them; and repairs: strings, up to a quote that an end
#: follows or to the end of the text; comments and surplus commas; keys; constants.
_PART = re.compile(
    rf"""(?>(?:[^"',A-Za-z_/\#]++|,(?!\s*[\]}}])|(?:true|false|null)\b|"(?>(?:[^"\\]++|\\.)*)"{_END})+)|"""
    rf"""(?P<single>(?>(?:'[^'"\\\n]*+'{_END}(?>(?:[\s\d.:{{}}\[\]-]|,(?!\s*[\]}}]))*))+))|"""
    rf"""'(?P<quoted>(?>(?:[^'\\\n]|\\.)*))'{_END}|"""
    rf"""(?P<double>"(?P<text>(?>(?:[^"\\]|\\.|"(?!{_END}))*))(?:"|\Z))|"""
    r"""(?P<nothing>//[^\n]*|/\*[^*]*\*/|\#[^\n]*|,)|(?P<key>[A-Za-z_]\w{0,80}(?=\s{0,9}:))|"""
    r"""\b(?P<constant>True|False|None)\b""",
    re.DOTALL,
)
#: Replaces quotes in calls of Gemma.
_QUOTES = re.compile(r'<\|"\|>|<escape>')


def _mended(raw: str) -> str:
    """Repair a text: straight quotes, quoted keys, escaped quotes in strings, no comments or trailing commas."""
    raw = _QUOTES.sub('"', raw if raw.isascii() else raw.translate(_STRAIGHT))
    if re.match(r'[\[{]\s*\\"', raw):  # a string that holds JSON
        raw = raw.replace('\\"', '"')
    return _PART.sub(_mended_part, raw)


def _mended_part(found: re.Match[str]) -> str:
    match found.lastgroup:
        case "single":
            return found[0].replace("'", '"')
        case "double" | "quoted":
            text = found["text"] if found["quoted"] is None else found["quoted"].replace("\\'", "'")
            return '"' + re.sub(r'(?<!\\)"', '\\"', text) + '"'
        case "nothing":
            return ""
        case "key":
            return f'"{found["key"]}"'
        case "constant":
            return "null" if found[0] == "None" else found[0].lower()
    return found[0]


#: Text up to the next bracket outside strings, or to a quote of an unterminated string.
_TO_BRACKET = re.compile(
    r"""(?>(?:[^"'()\[\]{}]++|"(?>(?:[^"\\]++|\\.)*)"|'(?>(?:[^'\\]++|\\.)*)')*)([()\[\]{}"']|\Z)""", re.DOTALL
)
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def find_balanced(text: str, start: int) -> str:
    """Return the text from a bracket to its closing one, with missing brackets added at the end."""
    closing = list[str]()
    for found in _TO_BRACKET.finditer(text, start):
        if found[1] in _CLOSING:
            closing.append(_CLOSING[found[1]])
        elif found[1] in ("", '"', "'"):
            closing = [] if found[1] else closing
            break
        elif closing.pop() != found[1] or not closing:
            return text[start : found.end()]
        if len(closing) == _DEEP:
            return text[start : found.end()]
    return text[start:].rstrip().removesuffix("```").rstrip() + "".join(reversed(closing))


class _AsJson(ast.NodeTransformer):
    """Converts JSON constants to Python's, and sets to lists."""

    def visit_Set(self, node: ast.Set) -> ast.expr:
        return ast.List([self.visit(one) for one in node.elts])

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(load(node.id)) if node.id in ("true", "false", "null") else node


def read_literal(node: ast.expr) -> Any:
    """Return the JSON value of a Python literal, or of `true`, `false` or `null`. Raise ValueError for anything
    else."""
    try:
        return json.loads(json.dumps(ast.literal_eval(_AsJson().visit(node)), allow_nan=False))
    except (TypeError, RecursionError) as error:
        raise ValueError("not a literal") from error


def load_loose(text: str) -> Any:
    """Return the JSON that a whole text is, repaired if needed; None if it is none, or was cut."""
    value, bare = load(text), text.strip()
    if isinstance(value, str) and isinstance(inner := load(value), list | dict):  # JSON in a text
        return inner
    if value is None and bare[:1] in ("[", "{") and bare[-1:] in ("]", "}"):
        value = read_object(bare, 0)[0]
    return value


def load(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
