"""Texts in shell programs: quoted words and here-documents, as POSIX and bash read them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from workbench_external.sources.passages import CannotWrite, Field, Part, Passage, check_kept, compact, only_text

_NAME = re.compile(r"\w+")
_ASSIGNED = re.compile(r"(?:[A-Za-z_]\w*\+?=|--?[\w-]+=)")
_DELIMITER = re.compile(r"<<(-?)[ \t]*(?:'([^'\n]+)'|\"([^\"\n$`\\]+)\"|\\?([\w.-]+))")
#: A quote with its own escapes, such as that of IFS, that ends in the same place in a shell that has no such quotes.
_ESCAPES = re.compile(r"\$'((?:[^'\\]|\\[^'])*)'")
_LETTERS = {"\\n": "\n", "\\t": "\t", "\\\\": "\\", "\\047": "'"}
#: The default of a variable, used if it is not set.
_DEFAULT = re.compile(r"\$\{\w+:?[-=]")
#: Words after which a command begins, as it does after a mark.
_OPENING = ("!", "{", "do", "elif", "else", "if", "then", "time", "until", "while")
#: Text between the branches of `case`, and around its word.
_BETWEEN = re.compile(r"[ \t;&]|\\?\n|#[^\n]*")
_IN, _ESAC = re.compile(r"in(?![^\s])"), re.compile(r"esac(?![^\s;|&<>()])")
#: A single quote in a field in double quotes: bash requires pairs of them, other shells do not.
_QUOTE = '"\'"'
#: Characters that a backslash escapes in double quotes, in a field there, and in a here-document.
_IN_QUOTES, _IN_FIELD, _IN_DOCUMENT = '"\\$`', '"\\$`}', "\\$`"


def read_shell(source: str) -> Iterator[Passage]:
    """Yield the texts of a shell program. Raises ValueError if it cannot be parsed to its end."""
    if "\r" in source or "\0" in source:
        raise ValueError("it has line ends of another system")
    reader = _Reader(source)
    if reader.commands(0, "") != len(source) or reader.waiting:
        raise ValueError("a quote or a here-document is not closed")
    yield from sorted(reader.found, key=lambda one: one.start)


@dataclass
class _Word:
    """A word so far: its parts, its quote, and whether its text is known."""

    start: int
    parts: list[Part] = field(default_factory=list[Part])
    quote: str = ""
    is_known: bool = True


class _Reader:
    """Reads commands, and collects their words and here-documents in `found`."""

    def __init__(self, source: str):
        self.source, self.found, self.waiting = source, list[Passage](), list[tuple[bool, bool, str]]()

    def commands(self, at: int, closing: str) -> int:
        """Read commands up to a closing mark. Returns the place after it, or the end.

        closing: "esac" in a branch of `case`, which ends before `;;` or `esac`.
        """
        source, word, begins = self.source, None, True
        while at <= len(source):
            char = source[at : at + 1]
            if char in " \t\n;|&<>()":
                start, said = at, ""
                if word is not None:
                    start, said, begins = word.start, source[word.start : at] if begins else "", False
                word = self._end_word(word, at)
                if closing == "esac" and (said == closing or source.startswith((";;", ";&"), at)):
                    return start if said == closing else at
                if char and char == closing:
                    return at + 1
                if said == "case":
                    at = self._case(at)
                    continue
                if not char:
                    break
                begins = said in _OPENING or char in "\n;|&()" or (begins and not said)
                if char == "(":
                    at = self.commands(at + 1, ")")
                elif char == ")":
                    raise ValueError("a bracket closes nothing")
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
        if closing:
            raise ValueError("a bracket, or `case`, is not closed")
        return at

    def _case(self, at: int) -> int:
        """Read a `case`, starting after that word. Its patterns are not texts. Returns the place after its end."""
        source, subject = self.source, self._between(at)
        at = subject
        while at < len(source) and source[at] not in " \t\n;|&<>()":
            at = self._piece(_Word(at), at)
        at = self._between(at)
        if at == subject or not _IN.match(source, at):
            raise ValueError("`case` has no branches")
        at = self._between(at + 2)
        while not _ESAC.match(source, at):
            at, depth = at + source.startswith("(", at), 1
            while depth:
                if at >= len(source):
                    raise ValueError("a pattern of `case` is not closed")
                depth += {"(": 1, ")": -1}.get(source[at], 0)
                at = at + 1 if source[at] in "()" else self._piece(_Word(at), at)
            at = self._between(self.commands(at, "esac"))
        return at + 4

    def _between(self, at: int) -> int:
        """Return the place after space, comments, the ends of branches, and here-documents."""
        while (found := _BETWEEN.match(self.source, at)) is not None:
            at = self._documents(found.end()) if found[0] == "\n" else found.end()
        return at

    def _piece(self, word: _Word, at: int) -> int:
        """Read a piece of a word. Returns the place after it."""
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
            text = re.sub(r"\\(?:047|.)", lambda one: _LETTERS.get(one[0], "\0"), quoted[1])
            word.parts.append(text)
            word.quote, word.is_known = word.quote or "$'", word.is_known and "\0" not in text
            return quoted.end()
        if (begun := _DEFAULT.match(source, at)) is not None:
            default, end = _Word(begun.end()), begun.end()
            while not source.startswith("}", end):
                if end >= len(source):
                    raise ValueError("a field is not closed")
                end = self._piece(default, end)
            self._end_word(default, end)
            word.quote, word.is_known = '"', False
            return end + 1
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
        """Return (parts, the place after them) of a text with fields, up to a mark or a place."""
        source, parts = self.source, list[Part]()
        while at != end:
            if at >= len(source):
                raise ValueError("a quote is not closed")
            if closing and source.startswith(closing, at):
                return parts, at + 1
            if source[at] == "\\" and at + 1 < len(source) and source[at + 1] in f"{escaped}\n":
                parts.append(source[at + 1].strip("\n"))
                at += 2
            elif escaped == _IN_FIELD and source.startswith(_QUOTE, at):
                parts.append("'")
                at += len(_QUOTE)
            elif (behind := self._end_of_field(at)) is not None:
                parts.append(Field(source[at:behind], "shell"))
                if closing == '"' and (begun := _DEFAULT.match(source, at)) is not None:
                    self._end_default(begun.end(), behind - 1)
                at = behind
            else:
                parts.append(source[at])
                at += 1
        return parts, at

    def _end_of_field(self, at: int) -> int | None:
        """Return the place after `$NAME`, `${...}`, `$(...)` or a text in backticks; None if none begins here."""
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
            return self._expanded(at + 2, "}", _IN_FIELD)[1]
        name = _NAME.match(source, at + 1)
        if name is not None:
            return name.end() if not name[0][0].isdigit() else at + 2
        return at + 2 if source[at + 1 : at + 2] in [*"@*#?$!-"] else None

    def _end_word(self, word: _Word | None, end: int) -> None:
        """Collect a quoted word, without the name that it is assigned to."""
        if word is None or not word.quote or not word.is_known:
            return
        start, parts = word.start, compact(word.parts)
        name = _ASSIGNED.match(self.source, start)
        if name is not None and parts and isinstance(parts[0], str) and parts[0].startswith(name[0]):
            start, parts = name.end(), compact([parts[0][len(name[0]) :], *parts[1:]])
        quote = word.quote
        self.found.append(Passage(start, end, parts, lambda new: write_word(new, quote)))

    def _end_default(self, start: int, end: int) -> None:
        """Collect the default of a variable in double quotes, unless it has quotes of its own."""
        plain = re.sub(rf"\\.|{_QUOTE}", "", self.source[start:end])
        if '"' not in plain and plain.count("'") % 2 == 0:
            parts = compact(self._expanded(start, "", _IN_FIELD, end)[0])
            self.found.append(Passage(start, end, parts, lambda new: _write_expanded(new, _IN_FIELD)))

    def _begin_document(self, at: int) -> int:
        found = _DELIMITER.match(self.source, at)
        if found is None:
            raise ValueError("a here-document begins with no name")
        name = found[2] or found[3] or found[4]
        self.waiting.append((found[1] == "-", found[4] is None or "\\" in found[0], name))
        return found.end()

    def _documents(self, at: int) -> int:
        """Read the here-documents that begin at a line. Returns the place after them."""
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
    """Return a word in the given quotes, but in double quotes if it has fields. Raises CannotWrite."""
    if quote != '"' and not any(isinstance(part, Field) for part in parts):
        text = only_text(parts, "a word in single quotes")
        check_kept(text)
        if quote == "'":
            return "'" + text.replace("'", "'\\''") + "'"
        escapes = {letter: escape for escape, letter in _LETTERS.items()}
        return "$'" + "".join(escapes.get(letter, letter) for letter in text) + "'"
    return f'"{_write_expanded(parts, _IN_QUOTES)}"'


def _write_expanded(parts: Sequence[Part], marks: str) -> str:
    text = "".join(part.source if isinstance(part, Field) else _escaped(part, marks) for part in parts)
    check_kept(text)
    return text


def _escaped(text: str, marks: str) -> str:
    text = re.sub(f"[{re.escape(marks)}]", lambda mark: f"\\{mark[0]}", text)
    return text.replace("'", _QUOTE) if marks == _IN_FIELD else text
