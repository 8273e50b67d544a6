"""A text in a source file, as its program reads it: constants and fields, and how to write another one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass


class CannotWrite(Exception):
    """A text that cannot be written at a place. The message is the reason, as the end of a sentence."""


@dataclass(frozen=True)
class Field:
    """A field that is filled in when the program runs.

    source: as in the file. level: the form of text that it belongs to, such as f-strings or templates. ordered: filled
    by position, like `%s`, so that it can neither be moved nor removed.
    """

    source: str
    level: str = ""
    ordered: bool = False


Part = str | Field


@dataclass(frozen=True)
class Passage:
    """A text in a file.

    Args:
        start: the first character of its source, quotes included.
        end: after the last one.
        parts: as the program reads them; constants are never adjacent.
        write: returns the source of another text in its place. Raises CannotWrite.
        margin: indentation of its further lines, as in a docstring.
        dialects: possible forms of templates, "" for none; None: any.
        inner: for a message among others in a text: its range of letters. The source is that of the whole text.
        is_piece: text between tags of Jinja, not a message; a text without tags may look as if it had some.
        is_raw: its line ends are those of the file. Its messages are read from the same text with normalized line ends.
    """

    start: int
    end: int
    parts: tuple[Part, ...]
    write: Callable[[Sequence[Part]], str]
    margin: str = ""
    dialects: tuple[str, ...] | None = None
    inner: tuple[int, int] = (0, 0)
    is_piece: bool = False
    is_raw: bool = False


def compact(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Join adjacent constants, and drop empty ones."""
    found: list[Part] = []
    for part in parts:
        if isinstance(part, str) and found and isinstance(found[-1], str):
            found[-1] += part
        elif part != "":
            found.append(part)
    return tuple(found)


def split(parts: Sequence[Part]) -> tuple[list[str], list[tuple[Field, ...]]]:
    """Return the constants of a text, and the fields between them: (["To ", "."], [(name,)]). Adjacent fields are
    grouped, as it is unknown where one ends."""
    constants, fields = [""], list[tuple[Field, ...]]()
    for part in parts:
        if isinstance(part, str):
            constants[-1] += part
        elif fields and not constants[-1] and len(constants) > 1:
            fields[-1] = (*fields[-1], part)
        else:
            fields.append((part,))
            constants.append("")
    return constants, fields


def split_at(parts: Sequence[Part], mark: str) -> list[tuple[Part, ...]]:
    """Split a text at a mark; an empty mark does not split it."""
    if not mark:
        return [compact(parts)]
    found: list[list[Part]] = [[]]
    for part in parts:
        if isinstance(part, Field):
            found[-1].append(part)
            continue
        for number, words in enumerate(part.split(mark)):
            if number:
                found.append([])
            found[-1].append(words)
    return [compact(one) for one in found]


def newline_of(source: str) -> str:
    """Return the line ending of a file."""
    return "\r\n" if "\r\n" in source else "\n"


def check_kept(text: str, lost: str = "\0\r") -> None:
    """Raise CannotWrite for a text that a file would change. lost: characters, besides lone surrogates."""
    if any(char in lost or 0xD800 <= ord(char) < 0xE000 for char in text):
        raise CannotWrite("the new text has a character that such a file does not keep")


def only_text(parts: Sequence[Part], what: str) -> str:
    """Return the text of parts without fields. Raises CannotWrite. what: the name of the text in the error."""
    if any(isinstance(part, Field) for part in parts):
        raise CannotWrite(f"{what} has no fields")
    return "".join(part for part in parts if isinstance(part, str))
