"""Texts in Python: literals, f-strings, sums, joined lists, `%`, docstrings and their parts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from workbench_external.sources.dialects import PERCENT, with_dialect
from workbench_external.sources.docstrings import parts_of_docstring
from workbench_external.sources.passages import (
    Field,
    Part,
    Passage,
    compact,
    newline_of,
    only_text,
)
from workbench_external.sources.python_literals import (
    is_readable,
    parts_of_f_string,
    read_literals,
    write_one,
    write_words,
)
from workbench_external.sources.segments import Layout, Segment

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def read_python(source: str, breaks: bool = True) -> Iterator[Passage]:
    """Yield the texts of a Python file. Raises SyntaxError, ValueError and RecursionError if it is invalid.

    breaks: whether a literal may be broken into lines.
    """
    mark = source.startswith("\ufeff")
    tree = ast.parse(source[mark:])
    yield from _Reader(source, int(mark), breaks).read(tree)


class _Reader:
    def __init__(self, source: str, begin: int, breaks: bool):
        self.source, self.taken, self.breaks = source, set[int](), breaks
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
            return self._literal(node, compact(parts_of_f_string(node)))
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

        def write(new: Sequence[Part]) -> str:
            if not isinstance(node, ast.JoinedStr):
                only_text(new, "a plain string")
            segments = read_literals(self.source, start, end)
            triple = re.match(r"[a-zA-Z]*(\"\"\"|''')", self.source[start:end])
            if len(segments) == 1 and (triple or margin or (self._is_statement(start) and is_readable(new))):
                marks = (triple[1],) if triple else ('"""', "'''")
                return write_one(new, marks).replace("\n", self.newline)
            return Layout(self.source, start, end, segments, breaks=self.breaks).write(new, write_words)

        return Passage(start, end, parts, write, margin, ("",) if margin else None)

    def _is_statement(self, place: int) -> bool:
        """Return True for an assignment to a name of the module: its lines may begin at the margin."""
        begin = self.source.rfind("\n", 0, place) + 1
        return re.fullmatch(r"\w[\w.: \[\]]*=[ \t]*", self.source[begin:place]) is not None

    def _docstring(self, node: ast.Constant, value: str) -> Iterator[Passage]:
        start, _ = self._span(node)
        margin = re.search(r"[ \t]*\Z", self.source[:start])
        whole = self._literal(node, (value,), margin[0] if margin is not None and margin[0] else "    ")
        yield whole
        yield from parts_of_docstring(whole, value, self.source[whole.start : whole.end])

    def _sum(self, node: ast.BinOp) -> Passage | None:
        summands = _summands(node)
        if not any(_text_of(part) is not None for part in summands):
            return None
        sums = [part for part in ast.walk(node) if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Add)]
        self._take(*sums[1:])
        for part in summands:
            if isinstance(part, ast.Constant | ast.JoinedStr):
                self._take(*ast.walk(part))
        return self._layout(*self._span(node), summands, " + ")

    def _layout(self, start: int, end: int, operands: Sequence[ast.expr], between: str, mark: str = "") -> Passage:
        """Return a text of several operands."""
        segments = list[Segment]()
        for operand in operands:
            parts = compact(part for one in _summands(operand) for part in self._parts_of_summand(one))
            segments.append(Segment(*self._with_brackets(*self._span(operand), start, end), parts))
        layout = Layout(self.source, start, end, tuple(segments), between, mark, breaks=self.breaks)
        joined = [part for n, one in enumerate(segments) for part in ([mark] if n else []) + [*one.parts]]

        def write(new: Sequence[Part]) -> str:
            written = layout.write(new, _write_element if mark else write_words)
            try:
                ast.parse(f"({written})")
            except SyntaxError:  # brackets around some of the operands
                written = "(" + self.newline.join(" + ".join(write_words(new, 10_000)).splitlines()) + ")"
            return written

        return Passage(start, end, compact(joined), write)

    def _with_brackets(self, start: int, end: int, first: int, last: int) -> tuple[int, int]:
        """Return the span of an operand with the brackets around it."""
        while True:
            before, behind = self.source[first:start].rstrip(), self.source[end:last]
            space = len(behind) - len(behind.lstrip())
            if not (before.endswith("(") and behind.lstrip().startswith(")")):
                return start, end
            start, end = first + len(before) - 1, end + space + 1

    def _parts_of_summand(self, node: ast.expr) -> Iterator[Part]:
        if (text := _text_of(node)) is not None:
            yield text
        elif isinstance(node, ast.JoinedStr):
            yield from parts_of_f_string(node)
        else:
            yield Field(self._operand(node))

    def _operand(self, node: ast.expr) -> str:
        words = ast.get_source_segment(self.source.removeprefix("\ufeff"), node) or ast.unparse(node)
        simple = isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call)
        return words if simple else f"({words})"

    def _join(self, node: ast.Call) -> Passage | None:
        """Read `"\\n".join([...])` of texts and other values."""
        if not (isinstance(node.func, ast.Attribute) and node.func.attr == "join" and len(node.args) == 1):
            return None
        mark, given = _text_of(node.func.value), node.args[0]
        if mark is None or not isinstance(given, ast.List | ast.Tuple) or not given.elts:
            return None
        self._take(given)
        return self._list(given, mark)

    def _list(self, given: ast.List | ast.Tuple, mark: str) -> Passage | None:
        """Read a list as the text of its joined elements. mark: joins them; lines, if the list is joined elsewhere."""
        if any(isinstance(element, ast.Starred) for element in given.elts):
            return None
        if not any(_text_of(one) or isinstance(one, ast.JoinedStr) for each in given.elts for one in _summands(each)):
            return None
        passage = self._layout(*self._span(given), given.elts, ", ", mark)
        return replace(passage, write=lambda new: _as_several(passage.write(new)))


def _as_several(written: str) -> str:
    """Return a list or tuple as a sequence: a tuple of one element needs a comma."""
    is_one = not isinstance(ast.parse(written, mode="eval").body, ast.Tuple | ast.List)
    return f"{written[:-1].rstrip()},)" if is_one else written


def _write_element(parts: Sequence[Part], width: int, step: str) -> list[str]:
    """Return an element of a list, in brackets if it takes several lines."""
    words = write_words(parts, width)
    if len(words) == 1:
        return words
    plus = "+ " if any(isinstance(part, Field) and part.level != "f-string" for part in parts) else ""
    lead = f"{step} {plus}"
    return [f"({lead.join(words)})"]


def _text_of(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _holds_text(node: ast.expr) -> bool:
    return any(_text_of(one) is not None or isinstance(one, ast.JoinedStr) for one in _summands(node))


def _summands(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_summands(node.left), *_summands(node.right)]
    return [node]
