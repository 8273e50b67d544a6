"""Texts in Python: literals, f-strings, sums, joined lists, `%`, docstrings and their parts."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from functools import partial

from workbench_external.sources.dialects import PERCENT, with_dialect
from workbench_external.sources.docstrings import parts_of_docstring
from workbench_external.sources.passages import (
    CannotWrite,
    Field,
    Part,
    Passage,
    compact,
    newline_of,
    only_text,
    split_at,
    write_list,
)

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def read_python(source: str) -> Iterator[Passage]:
    """The texts of a Python file. Raises SyntaxError, ValueError and RecursionError for what is none."""
    mark = source.startswith("\ufeff")
    tree = ast.parse(source[mark:])
    yield from _Reader(source, int(mark)).read(tree)


class _Reader:
    def __init__(self, source: str, begin: int):
        self.source, self.taken = source, set[int]()
        self.lines = re.split(r"(?<=\n)|(?<=\r)(?!\n)", source[begin:])
        self.begins, at = [], begin
        for line in self.lines:
            self.begins.append(at)
            at += len(line)
        self.newline = newline_of(source)

    def read(self, tree: ast.AST) -> Iterator[Passage]:
        documents = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, _DOCUMENTED) and node.body and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):  # outer ones first
            if id(node) in self.taken or not isinstance(node, ast.expr):
                continue
            if id(node) in documents and isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from self._docstring(node, node.value)
            elif (found := self._passage(node)) is not None:
                yield found

    def _span(self, node: ast.expr) -> tuple[int, int]:
        def place(line: int, column: int) -> int:
            return self.begins[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

        return place(node.lineno, node.col_offset), place(node.end_lineno or 0, node.end_col_offset or 0)

    def _passage(self, node: ast.expr) -> Passage | None:
        if isinstance(node, ast.Constant):
            if not isinstance(node.value, str):
                return None
            return self._literal(node, (node.value,))
        if isinstance(node, ast.JoinedStr):
            self._take(*ast.walk(node))
            return Passage(*self._span(node), compact(_parts_of_f_string(node)), self._write_f_string)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self._sum(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and _text_of(node.left) is not None:
            self._take(node.left)
            return with_dialect(self._literal(node.left, (str(_text_of(node.left)),)), PERCENT)
        if isinstance(node, ast.List) and sum(_holds_text(one) for one in node.elts) > 1:
            return self._list(node, "\n")
        return self._join(node) if isinstance(node, ast.Call) else None

    def _take(self, *nodes: ast.AST) -> None:
        self.taken |= {id(node) for node in nodes}

    def _literal(self, node: ast.expr, parts: tuple[Part, ...], margin: str = "") -> Passage:
        start, end = self._span(node)
        triple = re.match(r"[rRuU]*(?:\"\"\"|''')", self.source[start:end]) is not None

        def write(new: Sequence[Part]) -> str:
            return self._as_in_file(write_literal(only_text(new, "a plain string"), triple))

        return Passage(start, end, parts, write, margin, ("",) if margin else None)

    def _as_in_file(self, literal: str) -> str:
        return literal.replace("\n", self.newline)

    def _write_f_string(self, new: Sequence[Part]) -> str:
        fields = [part.source for part in new if isinstance(part, Field)]
        # Older versions of Python take neither the literal's quote nor a backslash in a field.
        marks = [mark for mark in ('"', "'", '"""', "'''") if not any(mark[0] in field for field in fields)]
        if not marks or any("\\" in field for field in fields):
            raise CannotWrite("its fields hold quotes of both kinds, or a backslash")
        text = "".join(
            part.source if isinstance(part, Field) else _escaped(part, marks[0]).replace("{", "{{").replace("}", "}}")
            for part in new
        )
        return f"f{marks[0]}{text}{marks[0]}"

    def _docstring(self, node: ast.Constant, value: str) -> Iterator[Passage]:
        start, _ = self._span(node)
        margin = re.search(r"[ \t]*\Z", self.source[:start])
        whole = self._literal(node, (value,), margin[0] if margin is not None and margin[0] else "    ")
        yield whole
        yield from parts_of_docstring(whole, value, self.source[whole.start : whole.end])

    def _sum(self, node: ast.BinOp) -> Passage | None:
        parts: list[Part] = []
        summands = _summands(node)
        if not any(_text_of(part) is not None for part in summands):
            return None
        sums = [part for part in ast.walk(node) if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Add)]
        self._take(*sums[1:])
        for part in summands:
            if isinstance(part, ast.Constant | ast.JoinedStr):
                self._take(*ast.walk(part))
            parts += self._parts_of_summand(part)
        return Passage(*self._span(node), compact(parts), self._write_sum)

    def _parts_of_summand(self, node: ast.expr) -> Iterator[Part]:
        if (text := _text_of(node)) is not None:
            yield text
        elif isinstance(node, ast.JoinedStr):
            for part in _parts_of_f_string(node):
                yield part if isinstance(part, str) else Field(f"f{_quoted_field(part)}")
        else:
            yield Field(self._operand(node))

    def _operand(self, node: ast.expr) -> str:
        words = ast.get_source_segment(self.source.removeprefix("\ufeff"), node) or ast.unparse(node)
        simple = isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call)
        return words if simple else f"({words})"

    def _write_sum(self, new: Sequence[Part]) -> str:
        words = [part.source if isinstance(part, Field) else self._as_in_file(write_literal(part)) for part in new]
        return " + ".join(words) or '""'

    def _join(self, node: ast.Call) -> Passage | None:
        """`"\\n".join([...])` of texts and other values."""
        if not (isinstance(node.func, ast.Attribute) and node.func.attr == "join" and len(node.args) == 1):
            return None
        mark, given = _text_of(node.func.value), node.args[0]
        if mark is None or not isinstance(given, ast.List | ast.Tuple) or not given.elts:
            return None
        self._take(given)
        return self._list(given, mark)

    def _list(self, given: ast.List | ast.Tuple, mark: str) -> Passage | None:
        """A list as the text that its elements are, joined by a mark: lines, where it is joined elsewhere."""
        parts: list[Part] = []
        for place, element in enumerate(given.elts):
            if isinstance(element, ast.Starred):
                return None
            parts += [mark] if place else []
            for summand in _summands(element):
                parts += self._parts_of_summand(summand)
        if not any(isinstance(part, str) and part != mark for part in parts):
            return None
        start, end = self._span(given)
        return Passage(start, end, compact(parts), partial(self._write_list, mark, start))

    def _write_list(self, mark: str, start: int, new: Sequence[Part]) -> str:
        """The list whose elements, joined by a mark, are the text: one a line."""
        return write_list(self.source, start, map(self._write_sum, split_at(new, mark)), " " * 4)


def _text_of(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _holds_text(node: ast.expr) -> bool:
    return any(_text_of(one) is not None or isinstance(one, ast.JoinedStr) for one in _summands(node))


def _summands(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_summands(node.left), *_summands(node.right)]
    return [node]


def _parts_of_f_string(node: ast.JoinedStr) -> list[Part]:
    return [
        str(part.value)
        if isinstance(part, ast.Constant)
        else Field(ast.unparse(ast.JoinedStr([part]))[2:-1], "f-string")
        for part in node.values
    ]


def _quoted_field(field: Field) -> str:
    mark = next((mark for mark in ('"', "'") if mark not in field.source), '"""')
    return f"{mark}{field.source}{mark}"


def write_literal(text: str, triple: bool = False) -> str:
    """A Python literal for a text: over several lines where it has several, and escaped where that would not do.

    triple: whether it has three quotes anyway, as a docstring.
    """
    plain = all(char.isprintable() or char in "\n\t" for char in text) and "\\" not in text
    if plain and '"""' not in text and not text.endswith('"') and ("\n" in text or triple):
        return f'"""{text}"""'
    mark = "'" if '"' in text and "'" not in text else '"'
    return f"{mark}{_escaped(text, mark)}{mark}"


def _escaped(text: str, mark: str) -> str:
    """A text inside quotes, letters as they are."""
    found = json.dumps(text)[1:-1] if any(0xD800 <= ord(char) < 0xE000 for char in text) else None
    if found is None:
        found = "".join(
            {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char)
            or (char if char.isprintable() else f"\\U{ord(char):08x}")
            for char in text
        )
        return found.replace(mark[0], "\\" + mark[0])
    return found if mark[0] == '"' else found.replace('\\"', '"').replace(mark[0], "\\" + mark[0])
