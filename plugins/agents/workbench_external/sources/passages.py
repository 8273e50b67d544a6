"""A text in a source file, by what the program reads there: constants and fields, and how another one is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass


class CannotWrite(Exception):
    """A text that cannot be written at a place. The message says why, as the end of a sentence."""


@dataclass(frozen=True)
class Field:
    """A field that is filled in when the program runs.

    source: in the words of the file. level: of which form of texts it is, as of f-strings or templates. ordered: it is
    filled by its place, as `%s`, so that it can neither move nor go.
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
        end: behind the last one.
        parts: what the program reads there; no two constants meet.
        write: the source of another text in its place. Raises CannotWrite.
        margin: what further lines of it begin with, as those of a docstring.
        dialects: the forms of templates that it may have, "" for none; None: any.
        inner: of a message among others in a text: its letters there. The source is that of the whole text.
        is_piece: it is no message, but stands between tags of Jinja; a text that is none may look as if it had some.
        is_raw: its line ends are those of the file. Its messages are those of the same text with others.
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
    """Parts without empty constants, those that meet joined."""
    found: list[Part] = []
    for part in parts:
        if isinstance(part, str) and found and isinstance(found[-1], str):
            found[-1] += part
        elif part != "":
            found.append(part)
    return tuple(found)


def split(parts: Sequence[Part]) -> tuple[list[str], list[tuple[Field, ...]]]:
    """The constants of a text, and the fields between them: (["To ", "."], [(name,)]). Fields that meet are together,
    as nothing tells where one ends."""
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
    """The texts which, joined by a mark, are a text; all of it where the mark is nothing."""
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
    """Raise CannotWrite for a text that a file does not keep. lost: characters, besides lone surrogates."""
    if any(char in lost or 0xD800 <= ord(char) < 0xE000 for char in text):
        raise CannotWrite("the new text has a character that such a file does not keep")


def only_text(parts: Sequence[Part], what: str) -> str:
    """The text of parts without fields. Raises CannotWrite. what: of which the text is."""
    if any(isinstance(part, Field) for part in parts):
        raise CannotWrite(f"{what} has no fields")
    return "".join(part for part in parts if isinstance(part, str))
