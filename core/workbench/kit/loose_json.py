"""Reads JSON as language models write it: with line breaks in strings, single quotes, Python literals, trailing commas
or missing brackets.
"""

from __future__ import annotations

import ast
import json
from typing import Any


def read_object(text: str, start: int) -> tuple[Any, int, str]:
    """Read the JSON value, Python literal or malformed JSON at `start`: (value, end, error)."""
    try:
        value, end = json.JSONDecoder(strict=False).raw_decode(text, start)
        return value, end, ""
    except RecursionError:
        return None, len(text), "it is nested too deeply"
    except json.JSONDecodeError as error:
        why = f"{error.msg} at its character {error.pos - start + 1}"
    raw = find_balanced(text, start)
    end = min(len(text), start + len(raw))
    straight = raw.translate({0x201C: '"', 0x201D: '"', 0x2018: "'", 0x2019: "'"})
    for candidate in (raw, straight):
        with_json = load(candidate)
        if with_json is not None:
            return with_json, end, ""
        try:
            return read_literal(ast.parse(candidate, mode="eval").body), end, ""
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None, end, why


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
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = read_literal(node.operand)
        if isinstance(value, int | float):
            return -value
    if isinstance(node, ast.List | ast.Tuple):
        return [read_literal(part) for part in node.elts]
    if isinstance(node, ast.Dict) and all(key is not None for key in node.keys):
        return {
            str(read_literal(k)): read_literal(v) for k, v in zip(node.keys, node.values, strict=True) if k is not None
        }
    raise ValueError("not a literal")


def load(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
