"""Texts in files that are read as they are: Markdown, plain text and templates; whole, or a section of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from workbench_external.sources.passages import CannotWrite, Part, Passage, only_text

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
    spans = [(0, len(source))]
    if (head := _HEAD.match(source)) is not None:
        spans.append((head.end(), len(source)))
    borders = [found.span() for found in _BORDER.finditer(source)]
    edges = [0, *(place for border in borders for place in border), len(source)]
    spans += zip(edges[::2], edges[1::2], strict=True)
    spans += [found.span() for found in _PARAGRAPH.finditer(source)]
    for start, end in list(dict.fromkeys(spans))[:_MOST]:
        text = source[start:end]
        if text.strip():
            start += len(text) - len(text.lstrip())
            end -= len(text) - len(text.rstrip())
            yield _passage(source, start, end, dialects)


def read_whole(source: str) -> Iterator[Passage]:
    """The whole file alone: of a file without a suffix nothing tells what a part of it is."""
    if text := source.strip():
        start = source.index(text)
        yield _passage(source, start, start + len(text), None)


def _passage(source: str, start: int, end: int, dialects: tuple[str, ...] | None) -> Passage:
    newline = "\r\n" if "\r\n" in source else "\n"

    def write(new: Sequence[Part]) -> str:
        text = only_text(new, "a file of words")
        if "\r" in text or "\0" in text or any(0xD800 <= ord(char) < 0xE000 for char in text):
            raise CannotWrite("the new text has a character that such a file does not keep")
        return text.replace("\n", newline)

    return Passage(start, end, (source[start:end].replace("\r\n", "\n"),), write, "", dialects)
