"""The reader of JSON as language models write it: with line breaks in strings, single quotes, Python literals, trailing
commas or missing brackets, and words around it.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Any

_BRACKET = re.compile(r"[\[{]")
#: Brackets that are tried, so that a long text of them takes no time.
MANY = 50


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(strict=False, parse_constant=_refuse)


def read_values(text: str) -> Iterator[tuple[Any, int, int]]:
    """(value, start, end) of the outermost lists and objects in a text, in order."""
    place, failed = 0, 0
    while failed < MANY and (found := _BRACKET.search(text, place)):
        value, end, why = read_object(text, found.start())
        if why or value is None:
            failed, place = failed + 1, found.end()
        else:
            yield value, found.start(), end
            place = max(end, found.end())


def read_objects(text: str) -> Iterator[dict[str, Any]]:
    """The outermost objects in a text, also those in a list."""
    for value, _, _ in read_values(text):
        yield from (one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict))


def find_keyed(text: str, key: str) -> dict[str, Any] | None:
    """The first object in a text that has a key, also one under a name of another."""
    for outer in read_objects(text):
        for value in (outer, *outer.values()):
            if isinstance(value, dict) and key in value:
                return value
    return None


def read_object(text: str, start: int) -> tuple[Any, int, str]:
    """Read the JSON value, Python literal or malformed JSON at `start`: (value, end, error)."""
    try:
        value, end = _DECODER.raw_decode(text, start)
        return value, end, ""
    except RecursionError:
        return None, len(text), "it is nested too deeply"
    except json.JSONDecodeError as error:
        why = f"{error.msg} at its character {error.pos - start + 1}"
    except ValueError as error:  # NaN, or a number of thousands of digits
        why = str(error)
    raw = find_balanced(text, start)
    end = min(len(text), start + len(raw))
    mended = _mended(raw) if len(raw) < _MENDED else raw
    for candidate in (raw, mended) if mended != raw else (raw,):
        with_json = load(candidate)
        if with_json is not None:
            return with_json, end, ""
        try:
            return read_literal(ast.parse(candidate, mode="eval").body), end, ""
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None, end, why


#: Characters of a text that is mended.
_MENDED = 20_000
_STRAIGHT = str.maketrans({0x201C: '"', 0x201D: '"', 0x2018: "'", 0x2019: "'"})
_END = r"(?=\s{0,40}(?:[,:}\]]|$))"
#: A string, up to a quote that an end follows, or the rest of the text; a comment; a key without quotes.
_PART = re.compile(
    rf"""(?P<double>"(?P<text>(?:[^"\\]|\\.|"(?!{_END}))*+)(?:"|\Z))|'(?:[^'\\\n]|\\.)*+'{_END}|"""
    r"""(?P<comment>//[^\n]*|/\*[^*]*\*/|\#[^\n]*)|(?P<key>[A-Za-z_]\w{0,80}(?=\s{0,9}:))""",
    re.DOTALL,
)
#: What stands for quotes in calls of Gemma.
_QUOTES = re.compile(r'<\|"\|>|<escape>')


def _mended(raw: str) -> str:
    """A text with straight quotes, quotes around keys and in strings escaped, and without comments."""
    raw = _QUOTES.sub('"', raw.translate(_STRAIGHT))
    if re.match(r'[\[{]\s*\\"', raw):  # a string that holds JSON
        raw = raw.replace('\\"', '"')
    return _PART.sub(_mended_part, raw)


def _mended_part(found: re.Match[str]) -> str:
    if found["double"]:
        return '"' + re.sub(r'(?<!\\)"', '\\"', found["text"]) + '"'
    return "" if found["comment"] else f'"{found["key"]}"' if found["key"] else found[0]


def find_balanced(text: str, start: int) -> str:
    """The text from a bracket to the one that closes it, with missing brackets added at the end."""
    closing, quote, at = list[str](), "", start
    while at < len(text):
        char = text[at]
        if quote:
            at += char == "\\"
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "([{":
            closing.append({"(": ")", "[": "]", "{": "}"}[char])
        elif char in ")]}":
            if not closing or closing.pop() != char:
                return text[start : at + 1]
            if not closing:
                return text[start : at + 1]
        at += 1
    rest = text[start:].rstrip().removesuffix("```").rstrip()
    return rest if quote else rest + "".join(reversed(closing))


def read_literal(node: ast.expr) -> Any:
    """The JSON value of a Python literal, or of `true`, `false` or `null`. Raises ValueError for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float | None):
        return node.value
    if isinstance(node, ast.Name) and node.id in ("true", "false", "null", "none"):
        return {"true": True, "false": False}.get(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = read_literal(node.operand)
        if isinstance(value, int | float):
            return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return [read_literal(part) for part in node.elts]
    if isinstance(node, ast.Dict) and all(key is not None for key in node.keys):
        return {
            str(read_literal(k)): read_literal(v) for k, v in zip(node.keys, node.values, strict=True) if k is not None
        }
    raise ValueError("not a literal")


def load_loose(text: str) -> Any:
    """The JSON that a whole text is, mended where it has to be; None if it is none, or was cut."""
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
