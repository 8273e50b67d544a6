"""Optimizers by their names in a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from workbench.errors import suggest
from workbench.plugins import plugins
from workbench.study.study import Optimizer


def make_optimizer(value: str | Mapping[str, Any]) -> Optimizer:
    """Make an optimizer as a file names it: `random`, or `{random: {trials: 5}}`. Raises ValueError, PluginError."""
    entries: dict[str, Any] = {value: {}} if isinstance(value, str) else dict(value)
    if len(entries) != 1:
        raise ValueError(f"name one optimizer, not {len(entries)}")
    ((name, parameters),) = entries.items()
    known = plugins().names("optimizers")
    if name not in known:
        raise ValueError(f"there is no optimizer '{name}'. {suggest(name, known)}")
    try:
        return plugins().get("optimizers", name)(**(parameters or {}))
    except ValidationError as error:  # paths are relative to this optimizer, not to the setting that names it
        first = error.errors()[0]
        message, where = first["msg"].removeprefix("Value error, "), ".".join(map(str, first["loc"]))
        if not where:  # an error about several settings together
            raise ValueError(f"{name}: {message}") from None
        raise ValueError(f"{name} does not take {where}: {message}, given {first['input']!r}") from None
