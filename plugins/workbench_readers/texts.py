"""The text of a file, in the encoding that its user or the mark at its beginning names."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from typing import Any

from workbench.errors import SpecError
from workbench_readers.common import fault, read_bytes

#: Marks at the beginning of a file, and the encodings that they name. UTF-32's begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
#: What files of another kind begin with, where text was to be, and what to do about them.
_OTHERS = {
    b"PK\x03\x04": ("a book of a spreadsheet, or a zip archive", "Name it .xlsx, or unpack it."),
    b"PAR1": ("a parquet file", "Name it .parquet."),
    b"\xd0\xcf\x11\xe0": ("a book of an old Excel", "Save it as .xlsx or .csv."),
    b"%PDF": ("a PDF", "Save its table as .csv or .jsonl."),
    b"version https://git-lfs": ("a pointer of Git LFS, without the data", "Run: git lfs pull"),
    b"<!doctype html": ("a page of HTML", "Download the file itself, not the page that shows it."),
    b"<html": ("a page of HTML", "Download the file itself, not the page that shows it."),
}
#: Bytes of a file that tell UTF-16 without a mark.
_LOOKED_AT = 1000
#: Letters in cp1252, control characters in latin-1.
_WINDOWS = re.compile(rb"[\x80-\x9f]")


def read_text(location: str, options: Mapping[str, Any]) -> str:
    """The text of a file: by the mark at its beginning, else in the option `encoding`, else in UTF-8. Raises
    SpecError."""
    data, told = read_bytes(location), options.get("encoding")
    marked = next((name for mark, name in _MARKS if data.startswith(mark)), None)
    encoding = marked or str(told or "utf-8")
    try:
        codecs.lookup(str(told or encoding))
        if told is None and marked is None:
            _check_kind(data, location)
        return data.decode(encoding).lstrip("\ufeff")
    except UnicodeDecodeError as error:
        raise _undecodable(data, error, encoding, marked, told, location) from None
    except (LookupError, ValueError):
        hint = "Write e.g. data: {options: {encoding: latin-1}}."
        raise fault(f"there is no encoding '{told}'", location, hint) from None


def _check_kind(data: bytes, location: str) -> None:
    """Refuse files of another kind, and UTF-16 without a mark, which can be read as UTF-8: every other byte is null.
    Raises SpecError."""
    head = data[:_LOOKED_AT]
    begin = head.lstrip()
    for mark, (what, hint) in _OTHERS.items():
        whole = mark != b"PAR1" or data.endswith(mark)  # which a column may be called, too
        if whole and mark in (begin[: len(mark)], begin[: len(mark)].lower()):
            raise fault(f"the file is {what}", location, hint, 1)
    nulls = [part.count(0) / max(1, len(part)) for part in (head[0::2], head[1::2])]
    if len(head) > 3 and max(nulls) > 0.7 and min(nulls) < 0.1:
        name = "utf-16-le" if nulls[1] > nulls[0] else "utf-16-be"
        hint = f"Save it as UTF-8, or write data: {{options: {{encoding: {name}}}}}."
        raise fault("the file is UTF-16 without a mark at its beginning", location, hint, 1)


def _undecodable(
    data: bytes, error: UnicodeDecodeError, encoding: str, marked: str | None, told: Any, location: str
) -> SpecError:
    before = error.object[: error.start].decode(encoding, "replace")
    first, second = ("cp1252", "latin-1") if _WINDOWS.search(data) else ("latin-1", "cp1252")
    shown = encoding.upper().removesuffix("-SIG")
    message, hint = f"the file is not {encoding}", "Name the encoding that it was saved in."
    if marked is not None:
        message, hint = f"the file begins with the mark of {shown} and is not {shown}", "Save it again as UTF-8."
    elif told is None:
        message = f"the file is not {shown}"
        windows = "for Windows"
        hint = f"Save it as UTF-8, or name its encoding: data: {{options: {{encoding: {first}}}}}"
        hint += f" {windows}, or {second}." if first == "cp1252" else f", or {second} {windows}."
    return fault(message, location, hint, before.count("\n") + 1, len(before) - before.rfind("\n"))
