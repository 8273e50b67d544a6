"""Shared code of all readers."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from workbench.base.distribution import pip_install
from workbench.errors import SpecError, suggest

Row = dict[str, Any]
R = TypeVar("R", bound=list[Row])


def fault(message: str, location: str, hint: str, line: int | None = None, column: int = 1) -> SpecError:
    """The error of a file; of a place in it, where the line is known."""
    return SpecError(message, file=location, line=line, column=None if line is None else column, hint=hint)


def read_bytes(location: str) -> bytes:
    """A file's bytes, unpacked if they are gzip's. Raises SpecError that names the nearest file if there is none."""
    check_file(location)
    try:
        data = Path(location).read_bytes()
        return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise fault(f"this is not a complete gzip file: {error}", location, "Pack it again.") from None
    except OSError as error:
        raise fault(f"cannot read the file: {error.strerror}", location, "Check its permissions.") from None


def check_file(location: str) -> None:
    """Raises SpecError unless there is such a file."""
    path = Path(location)
    if path.is_file():
        return
    if path.is_dir():
        raise fault("this is a folder, not a file", location, "Name a file, or write hf:FOLDER.")
    near = [p.name for p in path.parent.iterdir() if p.is_file()] if path.parent.is_dir() else []
    hint = suggest(path.name, near) if near else f"The folder {path.parent} has no files."
    raise fault("there is no such file", location, hint)


def known_options(options: Mapping[str, Any], names: tuple[str, ...], location: str) -> None:
    """Raises SpecError for an option that the reader does not have."""
    for name in options:
        if name not in names:
            hint = suggest(str(name), names) if names else "It has no options."
            raise fault(f"this reader has no option '{name}'", location, hint)


def import_extra(module: str, extra: str, location: str) -> Any:
    """A module that a reader needs. Raises SpecError that names its extra where it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        raise SpecError(f"reading {location} needs an extra", hint=f"Run: {pip_install(extra)}") from None


def some_rows(rows: R, location: str) -> R:
    """The rows. Raises SpecError if there are none."""
    if not rows:
        raise fault("there are no rows", location, "Put rows into it; optimize needs three or more.", 1)
    return rows
