"""The text of a file, in the encoding that the user or the byte order mark names."""

from __future__ import annotations

import codecs
import io
import os
import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from workbench.base.data_files import MAX_FILE, MAX_ROW, open_data, too_large
from workbench.errors import SpecError
from workbench_readers.common import check_file, fault

#: Byte order marks and their encodings. UTF-32's begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
#: First bytes of other kinds of files, with the kind and a remedy.
_OTHERS = {
    b"PK\x03\x04": ("a book of a spreadsheet, or a zip archive", "Name it .xlsx, or unpack it."),
    b"PAR1": ("a parquet file", "Name it .parquet."),
    b"\xd0\xcf\x11\xe0": ("a book of an old Excel", "Save it as .xlsx or .csv."),
    b"%PDF": ("a PDF", "Save its table as .csv or .jsonl."),
    b"version https://git-lfs": ("a pointer of Git LFS, without the data", "Run: git lfs pull"),
    b"<!doctype html": ("a page of HTML", "Download the file itself, not the page that shows it."),
    b"<html": ("a page of HTML", "Download the file itself, not the page that shows it."),
}
#: Number of bytes that are tested for UTF-16 without a mark.
_LOOKED_AT = 1000
#: Size in bytes of the blocks that are tested for decoding errors.
_BLOCK = 1 << 20
#: Bytes that are letters in cp1252, and control characters in latin-1.
_WINDOWS = re.compile(rb"[\x80-\x9f]")


@contextmanager
def open_text(location: str, options: Mapping[str, Any], newline: str = "") -> Generator[TextIO]:
    """Open a file as text: by its byte order mark, else in the option `encoding`, else in UTF-8.

    Raises SpecError, also while the text is read. newline: as for `open`.
    """
    check_file(location)
    head, told = _head(location), options.get("encoding")
    marked = next((name for mark, name in _MARKS if head.startswith(mark)), None)
    encoding = marked or str(told or "utf-8")
    try:
        codecs.lookup(str(told or encoding))
        io.TextIOWrapper(io.BytesIO(), encoding)
    except (LookupError, ValueError):
        hint = "Write e.g. data: {options: {encoding: latin-1}}."
        raise fault(f"there is no encoding '{told}'", location, hint) from None
    if told is None and marked is None:
        _check_kind(head, location)
    with open_data(location) as file:
        file.read(_further_marks(head))
        with io.TextIOWrapper(file, encoding, newline=newline) as text:
            try:
                yield text
            except UnicodeError:
                raise _undecodable(encoding, marked, told, location) from None


def read_text(location: str, options: Mapping[str, Any], hint: str = "") -> str:
    """Return the text of a file that can only be read as a whole. Raise SpecError."""
    with open_text(location, options) as file:
        text = file.read(MAX_FILE + 1)
    if len(text) > MAX_FILE:
        raise too_large("the file, unpacked,", MAX_FILE, location, None, hint)
    return text


def text_lines(file: TextIO, location: str) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of each line. Raise SpecError for a line longer than a row may be."""
    for number, line in enumerate(iter(lambda: file.readline(MAX_ROW + 1), ""), 1):
        if len(line) > MAX_ROW:
            raise too_large("the line", MAX_ROW, location, number)
        yield number, line


def _head(location: str) -> bytes:
    with open_data(location) as file:
        return file.read(_LOOKED_AT)


def _further_marks(head: bytes) -> int:
    """Count the bytes of all marks but the last at the beginning: some programs add one each time."""
    mark = next((mark for mark, _ in _MARKS if head.startswith(mark)), b"")
    count = 0
    while mark and head.startswith(mark, (count + 1) * len(mark)):
        count += 1
    return count * len(mark)


def _check_kind(head: bytes, location: str) -> None:
    """Raise SpecError for files of another kind, and for UTF-16 without a mark.

    UTF-16 can be read as UTF-8: every other byte is null.
    """
    begin = head.lstrip()
    for mark, (what, hint) in _OTHERS.items():
        whole = mark != b"PAR1" or _ends_with(location, mark)  # a column may have this name, too
        if whole and mark in (begin[: len(mark)], begin[: len(mark)].lower()):
            raise fault(f"the file is {what}", location, hint, 1)
    nulls = [part.count(0) / max(1, len(part)) for part in (head[0::2], head[1::2])]
    if len(head) > 3 and max(nulls) > 0.7 and min(nulls) < 0.1:
        name = "utf-16-le" if nulls[1] > nulls[0] else "utf-16-be"
        hint = f"Save it as UTF-8, or write data: {{options: {{encoding: {name}}}}}."
        raise fault("the file is UTF-16 without a mark at its beginning", location, hint, 1)


def _ends_with(location: str, mark: bytes) -> bool:
    with Path(location).open("rb") as file:
        file.seek(-min(len(mark), Path(location).stat().st_size), os.SEEK_END)
        return file.read() == mark


def _undecodable(encoding: str, marked: str | None, told: Any, location: str) -> SpecError:
    line, column, windows = _find_undecodable(encoding, location)
    first, second = ("cp1252", "latin-1") if windows else ("latin-1", "cp1252")
    shown = encoding.upper().removesuffix("-SIG")
    message, hint = f"the file is not {encoding}", "Name the encoding that it was saved in."
    if marked is not None:
        message, hint = f"the file begins with the mark of {shown} and is not {shown}", "Save it again as UTF-8."
    elif told is None:
        message = f"the file is not {shown}"
        windows = "for Windows"
        hint = f"Save it as UTF-8, or name its encoding: data: {{options: {{encoding: {first}}}}}"
        hint += f" {windows}, or {second}." if first == "cp1252" else f", or {second} {windows}."
    return fault(message, location, hint, line, column)


def _find_undecodable(encoding: str, location: str) -> tuple[int, int, bool]:
    """Return (line, column) of the first bytes invalid in an encoding, and whether there are Windows letters."""
    decoder = codecs.getincrementaldecoder(encoding)()
    line, column, windows, found = 1, 1, False, False
    with open_data(location) as file:
        for block in iter(lambda: file.read(_BLOCK), b""):
            windows = windows or _WINDOWS.search(block) is not None
            if not found:
                try:
                    text = decoder.decode(block)
                except UnicodeDecodeError as error:
                    found, text = True, error.object[: error.start].decode(encoding, "replace")
                newlines = text.count("\n")
                line, column = line + newlines, len(text) - text.rfind("\n") + (0 if newlines else column - 1)
            if found and windows:
                break
    return line, column, windows
