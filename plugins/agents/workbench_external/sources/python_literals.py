"""Literals of Python: finding those of an expression, and writing a text as literals."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator, Sequence

from workbench_external.sources.passages import CannotWrite, Field, Part, compact
from workbench_external.sources.segments import Segment, break_words


def read_literals(source: str, start: int, end: int) -> tuple[Segment, ...]:
    """Read the literals of an expression that form one text. Raises SyntaxError."""
    found = list[Segment]()
    for first, last in _spans(source[start:end].replace("\r\n", " \n")):
        node = ast.parse(source[start + first : start + last], mode="eval").body
        parts = parts_of_f_string(node) if isinstance(node, ast.JoinedStr) else [ast.literal_eval(node)]
        found.append(Segment(start + first, start + last, compact(parts)))
    return tuple(found)


def _spans(code: str) -> Iterator[tuple[int, int]]:
    """Yield the places of the literals in an expression. An f-string is one literal."""
    code = f"({code})"  # so that line breaks between them do not end it
    begins = [0]
    for line in code.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    depth, began = 0, 0
    for token in tokenize.generate_tokens(io.StringIO(code, newline="").readline):
        kind = tokenize.tok_name[token.type]
        first, last = (begins[line - 1] + column - 1 for line, column in (token.start, token.end))
        if kind == "FSTRING_START":  # since Python 3.12
            began, depth = first if not depth else began, depth + 1
        elif kind == "FSTRING_END":
            depth -= 1
            if not depth:
                yield began, last
        elif kind == "STRING" and not depth:
            yield first, last


def parts_of_f_string(node: ast.JoinedStr) -> list[Part]:
    """Return the constants and fields of an f-string."""
    return [
        str(part.value)
        if isinstance(part, ast.Constant)
        else Field(ast.unparse(ast.JoinedStr([part]))[2:-1], "f-string")
        for part in node.values
    ]


def write_words(parts: Sequence[Part], width: int, step: str = "") -> list[str]:
    """Return literals of one line each, with other operands between them."""
    found, run = list[str](), list[Part]()
    for part in (*parts, None):
        if part is not None and (isinstance(part, str) or part.level == "f-string"):
            run.append(part)
            continue
        found += break_words(run, width, write_one)
        run = []
        found += [] if part is None else [part.source]
    return found or ['""']


def write_one(parts: Sequence[Part], marks: Sequence[str] = ('"', "'", '"""', "'''")) -> str:
    """Return a literal, or an f-string if there are fields; in one line unless in triple quotes. Raises CannotWrite."""
    text = "".join(part for part in parts if isinstance(part, str))
    fields = [part.source for part in parts if isinstance(part, Field)]
    if not fields:
        mark = marks[0] if len(marks[0]) > 1 else "'" if '"' in text and "'" not in text else '"'
        return f"{mark}{_inside(text, mark)}{mark}"
    # Older versions of Python allow neither the literal's quote nor a backslash in a field.
    fit = [mark for mark in marks if not any((mark if len(mark) > 1 else mark[0]) in field for field in fields)]
    if not fit or any("\\" in field for field in fields):
        raise CannotWrite("its fields hold quotes of both kinds, or a backslash")
    found = "".join(
        part.source if isinstance(part, Field) else _inside(part, fit[0]).replace("{", "{{").replace("}", "}}")
        for part in parts
    )
    return f"f{fit[0]}{found}{fit[0]}"


def is_readable(parts: Sequence[Part]) -> bool:
    """Return True for a text of several lines that triple quotes hold without escapes."""
    text = "".join(part if isinstance(part, str) else "" for part in parts)
    plain = all(char.isprintable() or char in "\n\t" for char in text) and "\\" not in text
    return plain and "\n" in text and '"""' not in text and not text.endswith('"')


def _inside(text: str, mark: str) -> str:
    """Escape a text for its quotes. Letters stay as they are; in triple quotes, so do line breaks."""
    if any(0xD800 <= ord(char) < 0xE000 for char in text):
        found = json.dumps(text)[1:-1].replace('\\"', '"')
        return found.replace(mark[0], "\\" + mark[0])
    simple = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    if len(mark) > 1:
        simple = {"\\": "\\\\", "\n": "\n", "\t": "\t"}
    found = "".join(
        simple.get(char) or (char if char.isprintable() else f"\\U{ord(char):08x}" if char != "\r" else "\\r")
        for char in text
    )
    if len(mark) == 1:
        return found.replace(mark, "\\" + mark)
    return escape_quotes(found, mark[0])


def escape_quotes(text: str, mark: str) -> str:
    """Escape the quotes that would end a literal in triple quotes. mark: one of them."""
    return re.sub(rf"{mark}{{3,}}|{mark}+\Z", lambda quotes: f"\\{mark}" * len(quotes[0]), text)
