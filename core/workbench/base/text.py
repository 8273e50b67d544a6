"""Text for people: shortened, and safe for a terminal."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any

#: Characters that Python calls printable and that are drawn as nothing: fillers, joiners, variation selectors.
_BLANK = (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x2800, 0x3164, 0xFFA0, 0x16FE4)
_SELECTORS = (range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))


#: The end of a line of a file or a stream. `str.splitlines` knows others, which JSON holds as they are.
LINE_END = re.compile(r"\r\n|\n|\r")


#: Begin a formula of a spreadsheet, those of full width in Japanese ones.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def begins_formula(text: str) -> bool:
    """Return True if a spreadsheet may run the text of a cell as a formula."""
    return text.lstrip()[:1] in _FORMULA


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table: cells of a column are as wide as the widest of it."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def short(value: Any, most: int) -> str:
    """A value as JSON, cut to a number of characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= most else text[: most - 1] + "…"


#: What nobody sees: format characters, variation selectors, fillers.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
#: How tables spell that there is no value; and words for it that may be labels.
_NOTHING = frozenset("|null|none|nan|na|n/a|n.a|n.a.|#n/a|<na>|nil|(null)|(none)|<null>|#null!|\\n".split("|"))
_UNKNOWN = frozenset("unknown|undefined|not given|not available|-|--|\u2013|\u2014".split("|"))


def without_unseen(text: str) -> str:
    """A text without characters that nobody sees."""
    return text if text.isascii() else _UNSEEN.sub("", text)


def spells_nothing(text: str, or_unknown: bool = False) -> bool:
    """Return True for a word that stands where there is no value, such as NULL, None, NaN or N/A, and for a blank.

    or_unknown: also for one that may be a label, such as unknown: for a value that is no text.
    """
    word = without_unseen(text).strip().casefold()
    return word in _NOTHING or (or_unknown and word in _UNKNOWN)


class _Escapes(dict[int, str]):
    """The visible form of each character, for `str.translate`. Filled as characters occur."""

    def __missing__(self, code: int) -> str:
        hidden = not chr(code).isprintable() or code in _BLANK or any(code in found for found in _SELECTORS)
        escape = f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
        shown = self[code] = escape if hidden else chr(code)
        return shown


_ESCAPES = _Escapes({ord("\n"): "\n", ord("\t"): "\t"})


def visible(text: Any) -> str:
    """Text from data or models with what a terminal obeys or does not show as escapes: `\\x1b`, `\\u202e`.

    These are control characters, bidi controls, invisible characters, odd spaces, lone surrogates and code points that
    mean nothing. Newlines and tabs stay. YAML reads the escapes in double quotes.
    """
    text = str(text)
    return text if text.isprintable() and text.isascii() else text.translate(_ESCAPES)


def one_line(value: Any) -> str:
    """A value within a line: as `visible`, with newlines and tabs as escapes, too, so that it cannot forge lines."""
    return visible(value).replace("\n", "\\n").replace("\t", "\\t")


def indented(text: Any) -> str:
    """Text of several lines whose later lines are indented, so that they cannot pass for lines of ours."""
    return str(text).replace("\n", "\n    ")


def alert(line: str) -> None:
    """Print a line on stderr from where no command can: a timer, or the moment before the process ends."""
    sys.stderr.write(visible(line) + "\n")
    sys.stderr.flush()


def visible_json(value: Any, indent: int | None = None) -> str:
    """A value as JSON for people, in one line without an indent: letters of all scripts stay, what `visible` escapes is
    a JSON escape."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    return text if visible(text) == text else "".join(c if visible(c) == c else json.dumps(c)[1:-1] for c in text)
