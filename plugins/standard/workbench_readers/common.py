"""Shared code of all readers."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from workbench.base.distribution import pip_install
from workbench.errors import SpecError, suggest

Row = dict[str, Any]


def fault(message: str, location: str, hint: str, line: int | None = None, column: int = 1) -> SpecError:
    """Return the error for a file, or for a place in it if the line is known."""
    return SpecError(message, file=location, line=line, column=None if line is None else column, hint=hint)


def check_file(location: str) -> None:
    """Raise SpecError unless the file exists and may be read."""
    path = Path(location)
    if path.is_file():
        try:
            path.open("rb").close()
            return
        except OSError as error:
            raise fault(f"cannot read the file: {error.strerror}", location, "Check its permissions.") from None
    if path.is_dir():
        raise fault(
            "this is a folder, not a file", location, "Name a file, or the folder without a reader's name before it."
        )
    near = [p.name for p in path.parent.iterdir() if p.is_file()] if path.parent.is_dir() else []
    hint = suggest(path.name, near) if near else f"The folder {path.parent} has no files."
    raise fault("there is no such file", location, hint)


def known_options(options: Mapping[str, Any], names: tuple[str, ...], location: str) -> None:
    """Raise SpecError for an option that the reader does not have."""
    for name in options:
        if name not in names:
            hint = suggest(str(name), names) if names else "It has no options."
            raise fault(f"this reader has no option '{name}'", location, hint)


def import_extra(module: str, extra: str, location: str) -> Any:
    """Import a module that a reader needs. Raise SpecError with the name of its extra if it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        raise SpecError(
            f"reading {location} needs an extra", hint=f"Run: {pip_install(f'standard[{extra}]')}"
        ) from None
