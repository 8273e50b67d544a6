"""Texts in programs of a shell: words in quotes, and here-documents. As POSIX and bash read them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from workbench_external.sources.passages import CannotWrite, Field, Part, Passage, check_kept, compact, only_text

_NAME = re.compile(r"\w+")
_ASSIGNED = re.compile(r"(?:[A-Za-z_]\w*\+?=|--?[\w-]+=)")
_DELIMITER = re.compile(r"<<(-?)[ \t]*(?:'([^'\n]+)'|\"([^\"\n$`\\]+)\"|\\?([\w.-]+))")
#: A quote with escapes of its own, such as that of IFS, that ends in the same place for a shell that has none.
_ESCAPES = re.compile(r"\$'(?:[^'\\]|\\[^'])*'")
#: Characters that a backslash escapes in double quotes, and in a here-document.
_IN_QUOTES, _IN_DOCUMENT = '"\\$`', "\\$`"


def read_shell(source: str) -> Iterator[Passage]:
    """The texts of a program of a shell. Raises ValueError for what is not understood to its end."""
    if "\r" in source or "\0" in source:
        raise ValueError("it has line ends of another system")
    reader = _Reader(source)
    if reader.commands(0, "") != len(source) or reader.waiting:
        raise ValueError("a quote or a here-document is not closed")
    yield from sorted(reader.found, key=lambda one: one.start)


@dataclass
class _Word:
    """A word so far: its parts, whether it has fields, and the quote that it is written in."""

    start: int
    parts: list[Part] = field(default_factory=list[Part])
    quote: str = ""
    is_known: bool = True


class _Reader:
    """Reads commands, whose words and here-documents are collected in `found`."""

    def __init__(self, source: str):
        self.source, self.found, self.waiting = source, list[Passage](), list[tuple[bool, bool, str]]()

    def commands(self, at: int, closing: str) -> int:
        """Read commands up to a mark that closes them. Returns the place behind it, or the end."""
        source, word = self.source, None
        while at < len(source):
            char = source[at]
            if char in " \t\n;|&<>()":
                word = self._end_word(word, at)
                if char == closing:
                    return at + 1
                if char == "(":
                    at = self.commands(at + 1, ")")
                elif char == ")":
                    raise ValueError("a bracket closes nothing")  # as those of `case`
                elif source.startswith("<<", at) and not source.startswith("<<<", at):
                    at = self._begin_document(at)
                else:
                    at = self._documents(at + 1) if char == "\n" else at + (3 if source.startswith("<<<", at) else 1)
                continue
            if char == "#" and word is None:
                at = (source + "\n").index("\n", at)
                continue
            word = word or _Word(at)
            at = self._piece(word, at)
        self._end_word(word, at)
        if closing:
            raise ValueError("a bracket is not closed")
        return at

    def _piece(self, word: _Word, at: int) -> int:
        """Read a piece of a word. Returns the place behind it."""
        source, char = self.source, self.source[at]
        if char == "'":
            end = source.index("'", at + 1)
            word.parts.append(source[at + 1 : end])
            word.quote = word.quote or "'"
            return end + 1
        if char == '"':
            parts, end = self._expanded(at + 1, '"', _IN_QUOTES)
            word.parts += parts
            word.quote = '"'
            return end
        if source.startswith(("$'", '$"'), at):
            if (quoted := _ESCAPES.match(source, at)) is None:
                raise ValueError("it has quotes with escapes of their own")
            word.is_known = False
            return quoted.end()
        if (end := self._end_of_field(at)) is not None:
            word.parts.append(Field(source[at:end], "shell"))
            word.quote, word.is_known = '"', False  # without quotes it may be several words
            return end
        if char == "\\":
            if source.startswith("\n", at + 1):
                return at + 2
            word.parts.append(source[at + 1 : at + 2])
            return at + 2
        word.parts.append(char)
        return at + 1

    def _expanded(self, at: int, closing: str, escaped: str, end: int | None = None) -> tuple[list[Part], int]:
        """(parts, the place behind) of a text in which fields are filled, up to a mark, or a place."""
        source, parts = self.source, list[Part]()
        while at != end:
            if at >= len(source):
                raise ValueError("a quote is not closed")
            if closing and source.startswith(closing, at):
                return parts, at + 1
            if source[at] == "\\" and at + 1 < len(source) and source[at + 1] in f"{escaped}\n":
                parts.append(source[at + 1].strip("\n"))
                at += 2
            elif (behind := self._end_of_field(at)) is not None:
                parts.append(Field(source[at:behind], "shell"))
                at = behind
            else:
                parts.append(source[at])
                at += 1
        return parts, at

    def _end_of_field(self, at: int) -> int | None:
        """Behind `$NAME`, `${...}`, `$(...)` or a text in backticks; None for what is none."""
        source = self.source
        if source[at] == "`":
            closed = re.compile(r"`(?:[^`\\]|\\.)*`", re.DOTALL).match(source, at)
            if closed is None:
                raise ValueError("a backtick is not closed")
            return closed.end()
        if source[at] != "$":
            return None
        if source.startswith("$((", at):
            return source.index("))", at) + 2
        if source.startswith("$(", at):
            return self.commands(at + 2, ")")
        if source.startswith("${", at):
            return self._expanded(at + 2, "}", _IN_QUOTES)[1]
        name = _NAME.match(source, at + 1)
        if name is not None:
            return name.end() if not name[0][0].isdigit() else at + 2
        return at + 2 if source[at + 1 : at + 2] in [*"@*#?$!-"] else None

    def _end_word(self, word: _Word | None, end: int) -> None:
        """Collect a word in quotes, without the name that it is set to."""
        if word is None or not word.quote or not word.is_known:
            return
        start, parts = word.start, compact(word.parts)
        name = _ASSIGNED.match(self.source, start)
        if name is not None and parts and isinstance(parts[0], str) and parts[0].startswith(name[0]):
            start, parts = name.end(), compact([parts[0][len(name[0]) :], *parts[1:]])
        quote = word.quote
        self.found.append(Passage(start, end, parts, lambda new: write_word(new, quote)))

    def _begin_document(self, at: int) -> int:
        found = _DELIMITER.match(self.source, at)
        if found is None:
            raise ValueError("a here-document begins with no name")
        name = found[2] or found[3] or found[4]
        self.waiting.append((found[1] == "-", found[4] is None or "\\" in found[0], name))
        return found.end()

    def _documents(self, at: int) -> int:
        """Read the here-documents that begin at a line. Returns the place behind them."""
        for is_cut, is_plain, name in self.waiting:
            tabs = r"\t*" if is_cut else ""
            end = re.compile(rf"^{tabs}{re.escape(name)}(?:\n|\Z)", re.MULTILINE).search(self.source, at)
            if end is None:
                raise ValueError("a here-document is not closed")
            parts = [self.source[at : end.start()]]
            if not is_plain:
                parts = self._expanded(at, "", _IN_DOCUMENT, end.start())[0]
            begun = re.match(r"\t*", self.source[at:])
            tabs = begun[0] if is_cut and begun is not None else ""
            parts = [re.sub(r"^\t+", "", p, flags=re.M) if is_cut and isinstance(p, str) else p for p in parts]
            self.found.append(Passage(at, end.start(), compact(parts), _Document(name, is_plain, is_cut, tabs).write))
            at = end.end()
        self.waiting = []
        return at


@dataclass(frozen=True)
class _Document:
    """A here-document. is_plain: its fields are not filled. is_cut: tabs that begin its lines are dropped."""

    name: str
    is_plain: bool
    is_cut: bool
    tabs: str

    def write(self, new: Sequence[Part]) -> str:
        if self.is_plain:
            only_text(new, "a here-document in quotes")
        text = "".join(
            part.source if isinstance(part, Field) else part if self.is_plain else _escaped(part, _IN_DOCUMENT)
            for part in new
        )
        check_kept(text)
        text += "" if text.endswith("\n") else "\n"
        if any(line.strip("\t") == self.name for line in text.split("\n")):
            raise CannotWrite(f"a line of it would end the here-document {self.name}")
        if self.is_cut and "\t" in {line[:1] for line in text.split("\n")}:
            raise CannotWrite("this here-document drops the tabs that begin a line")
        return re.sub(r"^(?=.)", self.tabs, text, flags=re.MULTILINE)


def write_word(parts: Sequence[Part], quote: str) -> str:
    """A word in quotes: those given, but in double ones where it has fields. Raises CannotWrite."""
    if quote == "'" and not any(isinstance(part, Field) for part in parts):
        text = only_text(parts, "a word in single quotes")
        check_kept(text)
        return "'" + text.replace("'", "'\\''") + "'"
    text = "".join(part.source if isinstance(part, Field) else _escaped(part, _IN_QUOTES) for part in parts)
    check_kept(text)
    return f'"{text}"'


def _escaped(text: str, marks: str) -> str:
    return re.sub(f"[{re.escape(marks)}]", lambda mark: f"\\{mark[0]}", text)
