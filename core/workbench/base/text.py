"""Text for people: shortened, and safe for a terminal."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any

#: Characters that Python calls printable but that are invisible: fillers, joiners, variation selectors.
_BLANK = (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x2800, 0x3164, 0xFFA0, 0x16FE4)
_SELECTORS = (range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))


#: A line end in a file or a stream. `str.splitlines` splits at more characters, which JSON may contain.
LINE_END = re.compile(r"\r\n|\n|\r")


#: Characters that begin a formula in a spreadsheet, with their full-width forms in Japanese ones.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def begins_formula(text: str) -> bool:
    """Return True if a spreadsheet may run the text of a cell as a formula."""
    return text.lstrip()[:1] in _FORMULA


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, with columns as wide as their widest cells."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def short(value: Any, most: int) -> str:
    """Return a value as JSON, cut to a number of characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= most else text[: most - 1] + "…"


#: Invisible characters: format characters, variation selectors, fillers.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
#: Spellings of a missing value in tables; and such words that may also be labels.
_NOTHING = frozenset("|null|none|nan|na|n/a|n.a|n.a.|#n/a|<na>|nil|(null)|(none)|<null>|#null!|\\n".split("|"))
_UNKNOWN = frozenset("unknown|undefined|not given|not available|-|--|\u2013|\u2014".split("|"))


def without_unseen(text: str) -> str:
    """Return a text without invisible characters."""
    return text if text.isascii() else _UNSEEN.sub("", text)


def spells_nothing(text: str, or_unknown: bool = False) -> bool:
    """Return True for a word that marks a missing value, such as NULL, None, NaN or N/A, and for a blank.

    or_unknown: also for words that may be labels, such as unknown; for values that are not texts.
    """
    word = without_unseen(text).strip().casefold()
    return word in _NOTHING or (or_unknown and word in _UNKNOWN)


class _Escapes(dict[int, str]):
    """The visible form of each character, for `str.translate`. Filled on demand."""

    def __missing__(self, code: int) -> str:
        hidden = not chr(code).isprintable() or code in _BLANK or any(code in found for found in _SELECTORS)
        escape = f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
        shown = self[code] = escape if hidden else chr(code)
        return shown


_ESCAPES = _Escapes({ord("\n"): "\n", ord("\t"): "\t"})


def visible(text: Any) -> str:
    """Escape what a terminal would obey or hide in text from data or models: `\\x1b`, `\\u202e`.

    These are control characters, bidi controls, invisible characters, odd spaces, lone surrogates and unassigned code
    points. Newlines and tabs stay. YAML reads the escapes in double quotes.
    """
    text = str(text)
    return text if text.isprintable() and text.isascii() else text.translate(_ESCAPES)


def one_line(value: Any) -> str:
    """Escape a value for use in a line: like `visible`, but also newlines and tabs, so that it cannot forge lines."""
    return visible(value).replace("\n", "\\n").replace("\t", "\\t")


def indented(text: Any) -> str:
    """Indent the later lines of a text, so that they cannot pass for lines of ours."""
    return str(text).replace("\n", "\n    ")


def alert(line: str) -> None:
    """Print a line on stderr where no command can: in a timer, or just before the process ends."""
    sys.stderr.write(visible(line) + "\n")
    sys.stderr.flush()


def visible_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON for people, on one line unless indented. Letters of all scripts stay; characters that
    `visible` escapes become JSON escapes."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    return text if visible(text) == text else "".join(c if visible(c) == c else json.dumps(c)[1:-1] for c in text)
