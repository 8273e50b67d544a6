"""Texts in files without quoting: Markdown, plain text and templates; whole, or a section."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from workbench.base.text import one_line
from workbench_external.sources.passages import CannotWrite, Part, Passage, check_kept, newline_of, only_text

#: Lines that divide a file: headings, lines of dashes, names in brackets, fences, roles, and lines of Jinja marks.
_BORDER = re.compile(
    r"^(?:#{1,6}[ \t].*|[-=*_~]{3,}[ \t]*\w*[ \t]*|\[[\w .-]+\][ \t]*|`{3,}.*|<\/?[\w-]+>[ \t]*"
    r"|(?:system|developer|user|assistant):[ \t]*|[ \t]*(?:\{[%#](?:(?![%#]\}).)*[%#]\}[ \t]*)+)\r?$",
    re.MULTILINE,
)
_FENCE = re.compile(r"`{3,}(?=[^`]*\Z)|~{3,}")
_PARAGRAPH = re.compile(r"(?:[^\r\n]*\S[^\r\n]*(?:\r?\n|\Z))+")
_HEAD = re.compile(r"\A---[ \t]*\r?\n.*?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
#: Maximum parts of a file to read; paragraphs are the last ones.
_MAX = 400


def read_prose(dialects: tuple[str, ...] | None, source: str) -> Iterator[Passage]:
    """Yield the whole file, the part below its YAML header, its sections, and its paragraphs.

    dialects: the forms of templates in such a file.
    """
    yield from _behind_mark(source, partial(_read_parts, dialects))


def read_whole(source: str) -> Iterator[Passage]:
    """Yield only the whole file: without a suffix, its parts are unknown."""
    yield from _behind_mark(source, lambda text: _passages(text, 0, len(text), None, ""))


def _behind_mark(source: str, read: Callable[[str], Iterable[Passage]]) -> Iterator[Passage]:
    """Yield the texts of a file after its byte order mark, and the whole with it, for a program that keeps it."""
    text = source.removeprefix("\ufeff")
    if (shift := len(source) - len(text)) and text.strip():
        yield from _passages(source, 0, len(source), None, "")
    for one in read(text):
        yield replace(one, start=one.start + shift, end=one.end + shift)


def _read_parts(dialects: tuple[str, ...] | None, source: str) -> Iterator[Passage]:
    spans = {(0, len(source)): ""}
    if (head := _HEAD.match(source)) is not None:
        spans[head.end(), len(source)] = ""
    borders = _borders(source)
    for number, border in enumerate(borders):
        further = borders[number + 1 :]
        for own in (further, [other for other in further if _parts(other[0], border[0])]):
            end = own[0].start() if own else len(source)
            spans.setdefault((border.end(), end), border[0])
    for border in borders:  # text before the first of its kind
        spans.setdefault((0, border.start()), border[0])
    spans |= {found.span(): "" for found in _PARAGRAPH.finditer(source) if found.span() not in spans}
    for (start, end), border in [*spans.items()][:_MAX]:
        yield from _passages(source, start, end, dialects, border)


def _borders(source: str) -> list[re.Match[str]]:
    """Return the lines that divide a file. In a fenced part only those of Jinja do."""
    found, fenced, fence = list[re.Match[str]](), list[re.Match[str]](), ""
    for border in _BORDER.finditer(source):
        line = border[0].strip()
        if fence and len(line) >= len(fence) and not line.strip(fence[0]):
            fence = ""
            fenced.clear()
        elif fence and line[0] != "{":
            fenced.append(border)
            continue
        elif not fence and (opening := _FENCE.match(line)) is not None:
            fence = opening[0]
        found.append(border)
    return sorted([*found, *fenced], key=lambda border: border.start())  # the last fence may never be closed


def _parts(line: str, border: str) -> bool:
    """Return True if a line ends the part of a file that a border begins: one of its kind, or a heading as high."""
    level, own = (len(one) - len(one.lstrip("#")) for one in (line, border))
    if level or own:
        return 0 < level <= own
    return line.strip()[:1] == border.strip()[:1] or (line[:1].isalpha() and border[:1].isalpha())


def _passages(source: str, start: int, end: int, dialects: tuple[str, ...] | None, border: str) -> Iterator[Passage]:
    """Yield a part of a file as a text, stripped; also with Windows line ends, if it has some.

    border: the line that begins this part of the file, if any.
    """
    if text := source[start:end].strip():
        start = source.index(text, start)
        whole = Passage(start, start + len(text), (text,), partial(_write, border, ""), "", dialects, is_raw=True)
        write = partial(_write, border, newline_of(source))
        yield replace(whole, parts=(text.replace("\r\n", "\n"),), write=write, is_raw=False)
        yield from [whole] if "\r\n" in text else ()


def _write(border: str, newline: str, new: Sequence[Part]) -> str:
    """Write a new text. newline: that of the file; "" for a text that has its own."""
    text = only_text(new, "a file of words")
    check_kept(text if newline else text.replace("\r\n", "\n"))
    for line in _borders(text) if border else ():
        if _parts(line[0], border):
            raise CannotWrite(f"its line {one_line(line[0])!r} would begin another part of the file")
    return text.replace("\n", newline) if newline else text
