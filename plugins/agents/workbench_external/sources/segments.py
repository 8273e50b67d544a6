"""Texts of several literals. Literals that a new text does not change keep their source, and new ones are inserted
between them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workbench_external.sources.passages import Field, Part, compact, newline_of, split_at

#: Maximum characters of a line, in a file without longer ones, and in one with longer ones.
_LINE, _LONGEST, _ENDLESS = 79, 120, 1_000_000
_COMMENT = re.compile(r"[ \t]*(?:#|//)[^\r\n]*|[ \t]*/\*.*?\*/", re.DOTALL)
#: Writes some parts as literals of a maximum length. Third argument: the text between two lines.
Words = Callable[[Sequence[Part], int, str], list[str]]


@dataclass(frozen=True)
class Segment:
    """A literal, or another operand, of a text. start, end: its source, with brackets around it."""

    start: int
    end: int
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Layout:
    """A text of some segments in a file.

    Args:
        start: the beginning of its source, brackets of a list included.
        end: the end of its source.
        between: the source between two segments: " + ", ", ", or a space.
        mark: the text between two segments, such as the separator of a joined list.
        step: indentation of further lines.
        breaks: whether the text may be broken into more lines than it has.
    """

    source: str
    start: int
    end: int
    segments: tuple[Segment, ...]
    between: str = " "
    mark: str = ""
    step: str = "    "
    breaks: bool = True

    def write(self, new: Sequence[Part], words_of: Words) -> str:
        """Return the source of a new text."""
        kept, inside, tail = self._keep(new)
        first = self.segments[kept - 1].end if kept else self.segments[0].start
        last = self.segments[len(self.segments) - tail].start if tail else self.segments[-1].end
        separator, is_broken = self._separator()
        width = self.width - len(separator.rpartition("\n")[2]) - 2 if is_broken else self.width
        step = newline_of(self.source) + self.indent
        words = [word for parts in inside for word in words_of(parts, width, step)]
        if not words and not (kept and tail):
            written = self.source[self.start : first] + self.source[last : self.end]
        else:
            left, right = self.source[self.start : first], self.source[last : self.end]
            if kept:  # with the comment after it
                left += separator if kept == len(self.segments) else self.source[first : self.segments[kept].start]
            written = left + separator.join([*words, *([right] if tail else [])]) + ("" if tail else right)
        if is_broken or self._fits(written):
            return written
        return self._broken(kept, inside, tail, words_of)

    def _keep(self, new: Sequence[Part]) -> tuple[int, Sequence[tuple[Part, ...]], int]:
        """Return (segments kept at the start, the new texts, segments kept at the end)."""
        elements = self._elements(new)
        olds = [self._elements(one.parts) for one in self.segments]
        start, end, kept, tail = 0, len(elements), 0, 0
        while kept < len(olds) and elements[start : start + len(olds[kept])] == olds[kept]:
            start, kept = start + len(olds[kept]), kept + 1
        while kept + tail < len(olds):
            old = olds[-1 - tail]
            if end - len(old) < start or elements[end - len(old) : end] != old:
                break
            end, tail = end - len(old), tail + 1
        inside = elements[start:end]
        if inside and not self.mark.strip(" "):  # words and letters are not elements
            inside = [compact(part for n, one in enumerate(inside) for part in ([self.mark] if n else []) + [*one])]
        first = inside[0][0] if inside and inside[0] and not self.mark else None
        if isinstance(first, str) and first.startswith("\n"):  # it begins no literal, and is none
            if kept and has_text(before := self.segments[kept - 1].parts):
                kept, inside = kept - 1, [compact([*before, *inside[0]])]
            elif tail and not first.strip("\n") and has_text(behind := self.segments[-tail].parts):
                tail, inside = tail - 1, [compact([*inside[0], *behind])]
        return kept, inside, tail

    def _elements(self, parts: Sequence[Part]) -> list[tuple[Part, ...]]:
        """Return the texts that a mark joins; without a mark, the letters and fields."""
        if self.mark:
            return split_at(parts, self.mark)
        return [(unit,) for part in parts for unit in (part if isinstance(part, str) else (part,))]

    @property
    def width(self) -> int:
        if not self.breaks:
            return _ENDLESS
        return max(_LINE, min(max(map(len, self.source.splitlines()), default=0), _LONGEST))

    @property
    def indent(self) -> str:
        """Return the indentation of the segments' lines, except the first."""
        line = self.source[self.source.rfind("\n", 0, self.segments[-1].start) + 1 : self.segments[-1].start]
        return line[: len(line) - len(line.lstrip())]

    def _separator(self) -> tuple[str, bool]:
        """Return the source between two segments, and True if it has a line break."""
        pairs = zip(self.segments, self.segments[1:], strict=False)
        found = [self.source[one.end : other.start] for one, other in pairs]
        broken = sorted((one for one in found if "\n" in one), key=lambda one: bool(_COMMENT.search(one)))
        return (_COMMENT.sub("", broken[0]), True) if broken else (self.between, False)

    def _fits(self, written: str) -> bool:
        begin, end = self.source.rfind("\n", 0, self.start) + 1, self.source.find("\n", self.end)
        behind = self.source[self.end : end if end >= 0 else len(self.source)].rstrip()
        lines = f"{self.source[begin : self.start]}{written}{behind}".splitlines()
        return all(len(line) <= self.width for line in lines)

    def _broken(self, kept: int, inside: Sequence[Sequence[Part]], tail: int, words_of: Words) -> str:
        """Return the text with one literal per line, in brackets."""
        newline, line = newline_of(self.source), self.source[self.source.rfind("\n", 0, self.start) + 1 : self.start]
        indent = line[: len(line) - len(line.lstrip())]
        step = newline + indent + self.step
        width = self.width - len(step) - len(self.between)
        own = [self.source[one.start : one.end] for one in self.segments]
        new = [word for parts in inside for word in words_of(parts, width, step)]
        words = [*own[:kept], *new, *own[len(own) - tail :]]
        if self.between == ", ":
            return f"[{step}{f',{step}'.join(words)},{newline}{indent}]"
        if len(words) == 1:
            return words[0]
        joined = f"{step}{f'{step}{self.between.lstrip()}'.join(words)}{newline}{indent}"
        around = self.source[: self.start].rstrip()[-1:] + self.source[self.end :].lstrip()[:1]
        return joined if around == "()" else f"({joined})"


def has_text(parts: Sequence[Part]) -> bool:
    """Return True if a text is not only fields."""
    return any(isinstance(part, str) for part in parts)


def break_words(parts: Sequence[Part], width: int, write: Callable[[Sequence[Part]], str]) -> list[str]:
    """Break a text into literals of one line each. write: returns the literal of some parts."""
    lines: list[list[Part]] = [[]]
    for part in parts:
        for word in (part,) if isinstance(part, Field) else re.findall(r"\n+|\S+[^\S\n]*\n*|[^\S\n]+", part):
            last = lines[-1][-1] if lines[-1] else None
            ended = isinstance(last, str) and last.endswith("\n") and (len(lines[-1]) > 1 or last.strip("\n") != "")
            is_over = ended or (last is not None and len(write(compact([*lines[-1], word]))) > width)
            if is_over and not (isinstance(word, str) and word.startswith("\n")):
                lines.append([])
            lines[-1].append(word)
    return [write(compact(line)) for line in lines if line]
