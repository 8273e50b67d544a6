"""Texts in files that set variables: `.env`, and makefiles."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from workbench_external.sources.passages import CannotWrite, Field, Part, Passage, compact, only_text
from workbench_external.sources.shell import read_shell, write_word

_SET = re.compile(
    r"^[ \t]*(?:export[ \t]+)?[\w.-]+[ \t]*=[ \t]*"
    r"(?P<text>'[^']*'(?:\\''[^']*')*|\"(?:[^\"\\]|\\.)*\"|[^\s'\"#][^\n]*)",
    re.MULTILINE | re.DOTALL,
)
#: Marks that a backslash escapes in double quotes: as a shell, `shlex` and dotenv read them.
_ESCAPED = ('"\\$`', '"\\', '"\\n')
_VARIABLE = re.compile(
    r"^(?:(?:export|override)[ \t]+)*[\w.-]+[ \t]*(?:::?:?|\?|\+)?=[ \t]*(?P<text>\S.*?)[ \t]*$", re.M
)
_DEFINED = re.compile(
    r"^(?:(?:export|override)[ \t]+)*define[ \t]+[\w.-]+[ \t]*(?:::?:?|\?|\+)?=?[ \t]*\n(?P<text>.*?)\nendef\b",
    re.MULTILINE | re.DOTALL,
)
_RECIPE = re.compile(r"^\t[@+-]*(?P<text>.*[^\\\n])$", re.MULTILINE)
_REFERENCE = re.compile(r"\$\$|(?P<field>\$\([^()]*\)|\$\{[^{}]*\}|\$[^\s$])")


def read_env(source: str) -> Iterator[Passage]:
    """The values of a file of variables, in all the ways in which programs read their quotes."""
    if "\r" in source:
        raise ValueError("it has line ends of another system")
    for found in _SET.finditer(source):
        text, span = found["text"].rstrip(), (found.start("text"), found.start("text") + len(found["text"].rstrip()))
        mark = text[0] if text[0] in "'\"" else ""
        inner = text[1:-1] if mark else text
        if not mark:
            yield Passage(*span, (text,), _write_bare)
        if mark != '"':
            yield Passage(*span, (inner.replace("'\\''", "'"),), _write_single)
        for marks in _ESCAPED:
            value = _unescaped(inner, marks) if mark == '"' else inner
            yield Passage(*span, (value,), partial(_write_double, marks, bool(mark)))
        if mark == '"':
            yield Passage(*span, (_unescaped(inner, _ESCAPED[0]),), _write_single)


def _write_bare(new: Sequence[Part]) -> str:
    text = only_text(new, "a value")
    if not text.isprintable() or text != text.strip() or text[:1] in "'\"#" or " #" in text:
        raise CannotWrite("a value without quotes has one line, and no comment")
    return text


def _write_single(new: Sequence[Part]) -> str:
    return write_word((only_text(new, "a value"),), "'")


def _write_double(marks: str, may_be_sourced: bool, new: Sequence[Part]) -> str:
    """may_be_sourced: a shell may read the file, so that nothing is written that it would run."""
    text = only_text(new, "a value")
    write_word((text,), "'")  # raises where a character cannot stand in such a file
    if may_be_sourced and "$" not in marks and re.search(r"[$`]", text):
        raise CannotWrite("a shell would run a part of it")
    escaped = re.sub(f"[{re.escape(marks.replace('n', ''))}]", lambda mark: f"\\{mark[0]}", text)
    return f'"{escaped.replace(chr(10), chr(92) + "n") if "n" in marks else escaped}"'


def _unescaped(text: str, marks: str) -> str:
    return re.sub(rf"\\([{re.escape(marks)}])", lambda mark: "\n" if mark[1] == "n" else mark[1], text)


def read_makefile(source: str) -> Iterator[Passage]:
    """The variables of a makefile, and the words in quotes of its commands."""
    if "\r" in source:
        raise ValueError("it has line ends of another system")
    defined = [found.span() for found in _DEFINED.finditer(source)]
    for found in _DEFINED.finditer(source):
        yield Passage(*found.span("text"), _read_references(found["text"]), partial(_write_references, _check_defined))
    for pattern, read in ((_VARIABLE, _variable), (_RECIPE, _recipe)):
        for found in pattern.finditer(source):
            inside = any(start <= found.start() < end for start, end in defined)
            if not inside and not source[: found.start()].endswith("\\\n"):
                yield from read(found)


def _variable(found: re.Match[str]) -> Iterator[Passage]:
    if not found["text"].endswith("\\") and not re.search(r"(?<!\\)#", found["text"]):
        parts = _read_references(found["text"].replace("\\#", "#"))
        yield Passage(*found.span("text"), parts, partial(_write_references, _check_line))


def _recipe(found: re.Match[str]) -> Iterator[Passage]:
    """The words of a command, in which a dollar stands twice."""
    try:
        words = [*read_shell(found["text"].replace("$$", "\1\1"))]
    except ValueError:
        return
    for word in words:
        parts = [part for part in word.parts if isinstance(part, str)]
        if len(parts) == len(word.parts) and "$" not in "".join(parts):
            start, end = found.start("text") + word.start, found.start("text") + word.end
            plain = tuple(part.replace("\1\1", "$") for part in parts)
            yield replace(word, start=start, end=end, parts=plain, write=partial(_write_word, word.write))


def _write_word(write: Callable[[Sequence[Part]], str], new: Sequence[Part]) -> str:
    if "\n" in (text := only_text(new, "a word of a command")):
        raise CannotWrite("a command of a makefile is one line")
    return write((text.replace("$", "$$"),))


def _read_references(text: str) -> tuple[Part, ...]:
    parts, at = list[Part](), 0
    for token in _REFERENCE.finditer(text):
        parts += [text[at : token.start()], Field(token[0], "make") if token["field"] else "$"]
        at = token.end()
    return compact([*parts, text[at:]])


def _write_references(check: Callable[[str], str], new: Sequence[Part]) -> str:
    text = "".join(part.source if isinstance(part, Field) else part.replace("$", "$$") for part in new)
    write_word((text,), "'")  # raises where a character cannot stand in such a file
    return check(text)


def _check_line(text: str) -> str:
    if "\n" in text or text.endswith("\\"):
        raise CannotWrite("a variable that is set by = has one line: `define` takes several")
    return text.replace("#", "\\#")


def _check_defined(text: str) -> str:
    if re.search(r"^[ \t]*(?:endef|define)\b|\\$", text, re.MULTILINE):
        raise CannotWrite("a line of it would end the definition, or join the next one")
    return text
