"""Texts in files that set variables: `.env`, and makefiles."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from workbench_external.sources.passages import CannotWrite, Field, Part, Passage, check_kept, compact, only_text
from workbench_external.sources.shell import read_shell, write_word

_SET = re.compile(
    r"^[ \t]*(?:export[ \t]+)?[\w.-]+[ \t]*=[ \t]*"
    r"(?P<text>'[^']*'(?:\\''[^']*')*|\"(?:[^\"\\]|\\.)*\"|[^\s'\"#][^\n]*)",
    re.MULTILINE | re.DOTALL,
)
#: Marks that a backslash escapes in double quotes: in a shell, in `shlex` and in dotenv.
_ESCAPED = ('"\\$`', '"\\', '"\\n')
_VARIABLE = re.compile(
    r"^(?:(?:export|override)[ \t]+)*(?P<name>[\w.-]+)[ \t]*(?:::?:?|\?|\+)?=[ \t]*(?P<text>\S.*?)[ \t]*$", re.M
)
_DEFINED = re.compile(
    r"^(?:(?:export|override)[ \t]+)*define[ \t]+(?P<name>[\w.-]+)[ \t]*(?:::?:?|\?|\+)?=?[ \t]*\n"
    r"(?P<text>.*?)\nendef\b",
    re.MULTILINE | re.DOTALL,
)
_RECIPE = re.compile(r"^\t[@+-]*(?P<text>.*[^\\\n])$", re.MULTILINE)
#: Characters that are special to a shell: outside of quotes, in single ones, and in double ones.
_SHELL = {"": r"[^\w%+,./:@= -]", "'": r"['\n]", '"': r"[\"$`\\\n]"}
#: Code that make runs in a file of variables that a makefile includes.
_MAKE = re.compile(r"\$[({]\s*(?:shell|file|guile|eval)\b")
_REFERENCE = re.compile(r"\$\$|(?P<field>\$\([^()]*\)|\$\{[^{}]*\}|\$[^\s$])")


def read_env(source: str) -> Iterator[Passage]:
    """Yield the values of a file of variables, in all readings of their quotes by programs."""
    if "\r" in source:
        raise ValueError("it has line ends of another system")
    for found in _SET.finditer(source):
        text, span = found["text"].rstrip(), (found.start("text"), found.start("text") + len(found["text"].rstrip()))
        mark = text[0] if text[0] in "'\"" else ""
        inner = text[1:-1] if mark else text
        may_be_sourced = bool(mark) or not re.search(r"\s", text)  # a shell sets only the first of several bare words
        if not mark:
            yield Passage(*span, (text,), partial(_write_bare, may_be_sourced))
        if mark != '"':
            yield Passage(*span, (inner.replace("'\\''", "'"),), _write_single)
        for marks in _ESCAPED:
            value = _unescaped(inner, marks) if mark == '"' else inner
            yield Passage(*span, (value,), partial(_write_double, marks, may_be_sourced))
        if mark == '"':
            yield Passage(*span, (_unescaped(inner, _ESCAPED[0]),), _write_single)


def _value(new: Sequence[Part]) -> str:
    if _MAKE.search(text := only_text(new, "a value")):
        raise CannotWrite("make would run a part of it, where a makefile includes the file")
    return text


def _write_bare(may_be_sourced: bool, new: Sequence[Part]) -> str:
    text = _value(new)
    if may_be_sourced and not re.fullmatch(r"[\w%+,./:@=-]*", text):
        raise CannotWrite("a shell would run a part of it")
    if not text.isprintable() or text != text.strip() or text[:1] in "'\"#" or " #" in text:
        raise CannotWrite("a value without quotes has one line, and no comment")
    return text


def _write_single(new: Sequence[Part]) -> str:
    return write_word((_value(new),), "'")


def _write_double(marks: str, may_be_sourced: bool, new: Sequence[Part]) -> str:
    """Write a value in double quotes. may_be_sourced: a shell may read the file, so text that it runs is refused."""
    text = _value(new)
    check_kept(text)
    if may_be_sourced and "$" not in marks and re.search(r"[$`]", text):
        raise CannotWrite("a shell would run a part of it")
    escaped = re.sub(f"[{re.escape(marks.replace('n', ''))}]", lambda mark: f"\\{mark[0]}", text)
    return f'"{escaped.replace(chr(10), chr(92) + "n") if "n" in marks else escaped}"'


def _unescaped(text: str, marks: str) -> str:
    return re.sub(rf"\\([{re.escape(marks)}])", lambda mark: "\n" if mark[1] == "n" else mark[1], text)


def read_makefile(source: str) -> Iterator[Passage]:
    """Yield the variables of a makefile, and the quoted words of its commands."""
    if "\r" in source:
        raise ValueError("it has line ends of another system")
    defined = [found.span() for found in _DEFINED.finditer(source)]
    for found in _DEFINED.finditer(source):
        write = partial(_write_references, _check_defined, _marks_of(found["name"], source))
        yield Passage(*found.span("text"), _read_references(found["text"]), write)
    for pattern, read in ((_VARIABLE, _variable), (_RECIPE, _recipe)):
        for found in pattern.finditer(source):
            inside = any(start <= found.start() < end for start, end in defined)
            if not inside and not source[: found.start()].endswith("\\\n"):
                yield from read(found)


def _marks_of(name: str, source: str) -> str:
    """Return a pattern of text that a shell would interpret where make fills in a variable. "": the variable is
    exported and filled in nowhere, so programs get it as a value."""
    own = re.escape(name)
    held = rf"[({{](?:value[ \t]+)?{own}(?::[^(){{}}]*)?[)}}]|{own}\b"
    place = re.compile(rf"(?P<quote>[\"']?)(?<!\$)(?:\$\$)*\$(?:{held})(?P<end>[\"']?)")
    exported = re.compile(rf"[ \t]*export\b(?:[ \t]*|.*(?<![\w.-]){own}(?![\w.-]).*)")
    lines = source.split("\n")
    quotes = set[str]()
    for line in lines:
        for found in place.finditer(line):
            is_within = found["quote"] == found["end"] and len({*line} & {*"'\""}) == 1
            quotes.add(found["quote"] if is_within else "")
    if not quotes and not any(exported.fullmatch(line) for line in lines):
        quotes.add("")  # another file may fill it in
    return "|".join(_SHELL[quote] for quote in sorted(quotes))


def _variable(found: re.Match[str]) -> Iterator[Passage]:
    if not found["text"].endswith("\\") and not re.search(r"(?<!\\)#|\\\\#", found["text"]):
        parts = _read_references(found["text"].replace("\\#", "#"))
        write = partial(_write_references, _check_line, _marks_of(found["name"], found.string))
        yield Passage(*found.span("text"), parts, write)


def _recipe(found: re.Match[str]) -> Iterator[Passage]:
    """Yield the words of a command, with `$$` as a dollar."""
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


def _write_references(check: Callable[[str], str], marks: str, new: Sequence[Part]) -> str:
    """Write a value. marks: a pattern of text that a shell would interpret in a recipe where make fills this in."""
    if marks and any(re.search(marks, part) for part in new if isinstance(part, str)):
        raise CannotWrite("a shell would read a part of it as its own where make fills it in: `export` the variable")
    text = "".join(part.source if isinstance(part, Field) else part.replace("$", "$$") for part in new)
    check_kept(text)
    return check(text)


def _check_line(text: str) -> str:
    if "\n" in text or text.endswith("\\"):
        raise CannotWrite("a variable that is set by = has one line: `define` takes several")
    if text != text.strip() or "\\#" in text:
        raise CannotWrite("make would drop a space at its ends, or a backslash before its #")
    return text.replace("#", "\\#")


def _check_defined(text: str) -> str:
    if re.search(r"^[ \t]*(?:endef|define)\b|\\$", text, re.MULTILINE):
        raise CannotWrite("a line of it would end the definition, or join the next one")
    return text
