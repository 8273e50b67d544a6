"""Texts in files that are read as they are: Markdown, plain text and templates; whole, or a section of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from workbench.base.text import one_line
from workbench_external.sources.passages import CannotWrite, Part, Passage, check_kept, newline_of, only_text

#: What parts a file: headings, lines of dashes, names in brackets, fences, roles, and lines of marks of Jinja.
_BORDER = re.compile(
    r"^(?:#{1,6}[ \t].*|[-=*_~]{3,}[ \t]*\w*[ \t]*|\[[\w .-]+\][ \t]*|`{3,}.*|<\/?[\w-]+>[ \t]*"
    r"|(?:system|developer|user|assistant):[ \t]*|[ \t]*(?:\{[%#](?:(?![%#]\}).)*[%#]\}[ \t]*)+)\r?$",
    re.MULTILINE,
)
_PARAGRAPH = re.compile(r"(?:[^\r\n]*\S[^\r\n]*(?:\r?\n|\Z))+")
_HEAD = re.compile(r"\A---[ \t]*\r?\n.*?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
#: A text of more sections is read whole, and by its paragraphs no more.
_MOST = 400


def read_prose(dialects: tuple[str, ...] | None, source: str) -> Iterator[Passage]:
    """The whole file, what stands below its head of YAML, its sections, and its paragraphs.

    dialects: the forms of templates that such a file has.
    """
    spans = {(0, len(source)): ""}
    if (head := _HEAD.match(source)) is not None:
        spans[head.end(), len(source)] = ""
    borders = [*_BORDER.finditer(source)]
    for number, border in enumerate(borders):
        further = borders[number + 1 :]
        for own in (further, [other for other in further if _parts(other[0], border[0])]):
            end = own[0].start() if own else len(source)
            spans.setdefault((border.end(), end), border[0])
    for border in borders:  # what stands before the first of its kind
        spans.setdefault((0, border.start()), border[0])
    spans |= {found.span(): "" for found in _PARAGRAPH.finditer(source) if found.span() not in spans}
    for (start, end), border in [*spans.items()][:_MOST]:
        text = source[start:end]
        if text.strip():
            start += len(text) - len(text.lstrip())
            end -= len(text) - len(text.rstrip())
            yield _passage(source, start, end, dialects, border)


def _parts(line: str, border: str) -> bool:
    """Return True if a line ends a part of a file that a border begins: one of its kind; a heading as high, too."""
    level, own = (len(one) - len(one.lstrip("#")) for one in (line, border))
    if level or own:
        return 0 < level <= own
    return line.strip()[:1] == border.strip()[:1] or (line[:1].isalpha() and border[:1].isalpha())


def read_whole(source: str) -> Iterator[Passage]:
    """The whole file alone: of a file without a suffix nothing tells what a part of it is."""
    if text := source.strip():
        start = source.index(text)
        yield _passage(source, start, start + len(text), None, "")


def _passage(source: str, start: int, end: int, dialects: tuple[str, ...] | None, border: str) -> Passage:
    """border: the line that begins this part of the file, if any does."""
    newline = newline_of(source)

    def write(new: Sequence[Part]) -> str:
        text = only_text(new, "a file of words")
        check_kept(text)
        for line in _BORDER.finditer(text) if border else ():
            if _parts(line[0], border):
                raise CannotWrite(f"its line {one_line(line[0])!r} would begin another part of the file")
        return text.replace("\n", newline)

    return Passage(start, end, (source[start:end].replace("\r\n", "\n"),), write, "", dialects)
