"""Writes texts that were found for an agent back into its source, where they stand there literally."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

from workbench_external.config import Slot
from workbench_external.slots.files import content_of, is_as_found
from workbench_external.slots.template import HOLE, Template

_SKIPPED = {".git", ".venv", "venv", "node_modules", "__pycache__", "dist", "build"}
#: Bytes; larger files are data.
_LARGEST = 1 << 20
#: Characters; a shorter description may be a name elsewhere, as `query`.
_SHORTEST = 12
#: Files that are read as they are.
_PROSE = {"", ".md", ".txt", ".prompt", ".jinja", ".j2", ".tmpl", ".rst"}
_FORMAT = re.compile(r"\{\w*\}")


@dataclass(frozen=True)
class Place:
    """A text of an agent in a file: from and to which character, and what takes its place."""

    path: Path
    start: int
    end: int
    new: str


def find_places(slot: Slot, folder: Path) -> list[Place]:
    """Where the text of a slot stands in the files of a folder, literally. An empty list if nowhere.

    Workflow files are passed over: they hold the text to find it by.
    """
    if slot.text is None or slot.text == slot.match:
        return []
    if slot.in_ == "file":
        path = (folder / slot.name).resolve()
        inside = path.is_relative_to(folder.resolve()) and path.is_file()
        held = _read(path) if inside and is_as_found(path, slot) else None
        if held is None:
            return []
        new = content_of(slot)
        return [Place(path, 0, len(held), new.replace("\n", "\r\n") if "\r\n" in held else new)]
    if slot.in_ in ("tool", "parameter", "field") and len(slot.match) < _SHORTEST:
        return []
    return [place for path in _files(folder) for place in _places_in(path, slot.match, slot.text)]


def write_places(places: Sequence[Place]) -> dict[Path, str]:
    """The new content of each file. Of places that overlap, as two slots with one text have, the first holds."""
    found: dict[Path, str] = {}
    for path in dict.fromkeys(place.path for place in places):
        text, end = _read(path) or "", None
        for place in sorted((p for p in places if p.path == path), key=lambda p: -p.start):
            if end is None or place.end <= end:
                text, end = text[: place.start] + place.new + text[place.end :], place.start
        found[path] = text
    return found


def describe_changes(changed: dict[Path, str], folder: Path) -> str:
    """A diff, as `git apply` reads it."""
    lines: list[str] = []
    for path, text in changed.items():
        name = path.relative_to(folder).as_posix()
        before = (_read(path) or "").splitlines(keepends=True)
        lines += unified_diff(before, text.splitlines(keepends=True), f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).parts
        if not _SKIPPED & {*inside} and path.is_file() and not path.is_symlink() and path.stat().st_size <= _LARGEST:
            yield path


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")  # newlines as they are
    except (OSError, UnicodeDecodeError):
        return None


def _places_in(path: Path, match: str, new: str) -> list[Place]:
    text = _read(path)
    if text is None or (path.suffix in (".yaml", ".yml") and "external:" in text):
        return []
    if path.suffix == ".py":
        return [Place(path, *found) for found in _in_python(text, match, new)]
    if HOLE.search(match):
        return []
    if path.suffix in _PROSE:
        return [*_found(path, text, match, new)]
    # In code and data only a whole literal counts, and only where the new text needs no other one.
    found = [*_found(path, text, json.dumps(match), json.dumps(new))]
    if path.suffix != ".json" and not found and not set("\"'`\\\n${}") & {*new, *match}:
        found = [place for mark in "'`" for place in _found(path, text, f"{mark}{match}{mark}", f"{mark}{new}{mark}")]
    return found


def _found(path: Path, text: str, old: str, new: str) -> Iterator[Place]:
    for found in re.finditer(re.escape(old), text):
        yield Place(path, *found.span(), new)


def _in_python(source: str, match: str, new: str) -> Iterator[tuple[int, int, str]]:
    """(start, end, source) of the strings that are the text: plain, f"{...}", with {} for str.format, or a sum."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    lines = source.encode().splitlines(keepends=True)
    begins = [sum(len(line) for line in lines[:number]) for number in range(len(lines))]

    def span(node: ast.expr) -> tuple[int, int]:
        ends = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
        first, last = (begins[line - 1] + column for line, column in ends)
        raw = source.encode()
        return len(raw[:first].decode()), len(raw[:last].decode())

    within = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    sums: set[int] = set()  # within greater ones
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            sums |= {id(part) for part in (node.left, node.right)}
            if id(node) not in sums and (written := _as_sum(node, source, match, new)) is not None:
                yield (*span(node), written)
        elif isinstance(node, ast.JoinedStr):
            if (literal := _as_f_string(node, source, match, new)) is not None:
                yield (*span(node), literal)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in within:
            if (literal := _as_string(node.value, match, new)) is not None:
                yield (*span(node), literal)


def _as_string(value: str, match: str, new: str) -> str | None:
    """The literal in place of a plain one; None if it is another text."""
    if value == match or inspect.cleandoc(value) == match:
        return None if HOLE.search(match) else _literal(new)
    constants, fields = _FORMAT.split(value), _FORMAT.findall(value)
    template = Template(match)
    if not fields or len(set(fields)) < len(fields) or constants != template.constants:
        return None
    named = dict(zip(template.names, fields, strict=True))
    used = HOLE.findall(new)
    if any(name not in named for name in used) or ("{}" in fields and used != template.names):
        return None
    parts = HOLE.split(new)
    escaped = [p.replace("{", "{{").replace("}", "}}") if i % 2 == 0 else named[p] for i, p in enumerate(parts)]
    return _literal("".join(escaped))


def _as_f_string(node: ast.JoinedStr, source: str, match: str, new: str) -> str | None:
    """The literal in place of an f-string whose constants are those of the template."""
    constants, fields = [""], list[str]()
    for part in node.values:
        if isinstance(part, ast.Constant):
            constants[-1] += str(part.value)
        elif isinstance(part, ast.FormattedValue):
            fields.append(_field(part))
            constants.append("")
    template = Template(match)
    if constants != template.constants:
        return None
    named = dict(zip(template.names, fields, strict=True))
    parts = HOLE.split(new)
    # The new literal has quotes of the kind ", which older versions of Python take in no field.
    if any(name not in named for name in parts[1::2]) or not all(re.fullmatch(r"\{[^\\\"]*\}", f) for f in fields):
        return None
    escaped = [p.replace("{", "{{").replace("}", "}}") if i % 2 == 0 else named[p] for i, p in enumerate(parts)]
    return "f" + _literal("".join(escaped))


def _as_sum(node: ast.BinOp, source: str, match: str, new: str) -> str | None:
    """The sum in place of one of strings and other values, as "To " + name + "."; None if it is another text."""
    constants, fields = [""], list[str]()
    for part in _summands(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            constants[-1] += part.value
        elif isinstance(part, ast.JoinedStr) or (field := ast.get_source_segment(source, part)) is None:
            return None
        else:
            simple = isinstance(part, ast.Name | ast.Attribute | ast.Subscript | ast.Call)
            fields.append(field if simple else f"({field})")
            constants.append("")
    template = Template(match)
    if not fields or constants != template.constants:
        return None
    named = dict(zip(template.names, fields, strict=True))
    parts = HOLE.split(new)
    if any(name not in named for name in parts[1::2]):
        return None
    words = [named[part] if place % 2 else _literal(part) for place, part in enumerate(parts) if place % 2 or part]
    return " + ".join(words)


def _summands(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_summands(node.left), *_summands(node.right)]
    return [node]


def _field(part: ast.FormattedValue) -> str:
    """A field of an f-string, in its source's words as `ast` writes them."""
    return ast.unparse(ast.JoinedStr([part]))[2:-1]


def _literal(text: str) -> str:
    """A Python literal for a text, over several lines where it has several."""
    if (
        "\n" in text
        and '"""' not in text
        and "\\" not in text
        and not text.endswith('"')
        and text.isprintable() is False
    ):
        return f'"""{text}"""'
    return json.dumps(text, ensure_ascii=False)
