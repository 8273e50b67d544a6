"""Shared code of all readers."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from workbench.base.distribution import pip_install
from workbench.errors import SpecError, suggest

Row = dict[str, Any]
R = TypeVar("R", bound=list[Row])


def read_bytes(location: str) -> bytes:
    """A file's bytes, unpacked if they are gzip's. Raises SpecError that names the nearest file if there is none."""
    check_file(location)
    try:
        data = Path(location).read_bytes()
        return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise SpecError(f"this is not a complete gzip file: {error}", file=location, hint="Pack it again.") from None
    except OSError as error:
        raise SpecError(
            f"cannot read the file: {error.strerror}", file=location, hint="Check its permissions."
        ) from None


def check_file(location: str) -> None:
    """Raises SpecError unless there is such a file."""
    path = Path(location)
    if path.is_file():
        return
    if path.is_dir():
        raise SpecError("this is a folder, not a file", file=location, hint="Name a file, or write hf:FOLDER.")
    near = [p.name for p in path.parent.iterdir() if p.is_file()] if path.parent.is_dir() else []
    hint = suggest(path.name, near) if near else f"The folder {path.parent} has no files."
    raise SpecError("there is no such file", file=location, hint=hint)


def known_options(options: Mapping[str, Any], names: tuple[str, ...], location: str) -> None:
    """Raises SpecError for an option that the reader does not have."""
    for name in options:
        if name not in names:
            hint = suggest(str(name), names) if names else "It has no options."
            raise SpecError(f"this reader has no option '{name}'", file=location, hint=hint)


def missing_extra(name: str, location: str) -> SpecError:
    """The error of a reader whose package is not installed."""
    return SpecError(f"reading {location} needs an extra", hint=f"Run: {pip_install(name)}")


def some_rows(rows: R, location: str) -> R:
    """The rows. Raises SpecError if there are none."""
    if not rows:
        raise SpecError(
            "there are no rows", file=location, line=1, column=1, hint="Put rows into it; optimize needs three or more."
        )
    return rows
