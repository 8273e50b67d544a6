"""The bytes of data files: unpacked if packed, counted, and never more than a limit at once.

All readers of rows, traces and imports use this module. A file that is small on disk may be large in memory. Rows are
read one at a time, so the size of a file with many rows does not matter.
"""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path
from typing import BinaryIO, cast

from workbench.errors import SpecError

#: Most bytes or characters of one text, of one row or line, and of a file that must be read as a whole.
MAX_TEXT, MAX_ROW, MAX_FILE = 32 << 20, 64 << 20, 256 << 20

#: Most bytes in a packed file, which is read a row at a time.
MAX_UNPACKED = 32 << 30

_GZIP = b"\x1f\x8b"


def too_large(what: str, most: int, location: str, line: int | None = None, hint: str = "") -> SpecError:
    """Make the error for a text, a row or a file above a limit in bytes."""
    bound = f"{most >> 20} MB" if most >= 1 << 20 else f"{most:,} bytes"
    hint = hint or "Shorten it, or leave it out of the file."
    return SpecError(f"{what} is larger than {bound}", file=location, line=line, hint=hint)


def open_data(path: str | Path, most: int | None = None) -> BinaryIO:
    """Open a file to read its bytes, unpacked if it is gzip. Reading more than `most` bytes, or a broken file, raises
    SpecError. Raises OSError if it cannot be opened."""
    raw = Path(path).open("rb")  # noqa: SIM115 (closed with what is returned)
    packed = raw.read(2) == _GZIP
    raw.seek(0)
    bound = most if most is not None else MAX_UNPACKED if packed else None
    source = cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if packed else raw
    return io.BufferedReader(_Counted(source, raw, str(path), bound), 1 << 16)


def read_data(path: str | Path, most: int | None = None, hint: str = "") -> bytes:
    """Return the bytes of a file that must be read as a whole. Raises SpecError, and OSError if it cannot be opened."""
    most = MAX_FILE if most is None else most
    with open_data(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise too_large("the file, unpacked," if _is_packed(path) else "the file", most, str(path), None, hint)
    return data


def _is_packed(path: str | Path) -> bool:
    with Path(path).open("rb") as file:
        return file.read(2) == _GZIP


class _Counted(io.RawIOBase):
    """The bytes of a source, counted."""

    def __init__(self, source: BinaryIO, raw: BinaryIO, location: str, most: int | None):
        self._source, self._raw, self._location, self._most = source, raw, location, most
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        try:
            data = self._source.read(len(buffer))
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            message = f"this is not a complete gzip file: {error}"
            raise SpecError(message, file=self._location, hint="Pack it again.") from None
        self._count += len(data)
        if self._most is not None and self._count > self._most:
            raise too_large("the file, unpacked,", self._most, self._location)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._source.close()
            self._raw.close()
        super().close()
