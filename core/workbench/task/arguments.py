"""Checks of a metric's arguments in a workflow file against its declared parameters."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, get_type_hints

from pydantic import ConfigDict, PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError

from workbench.errors import SpecError


def find_missing_arguments(factory: Any, args: Sequence[Any], options: Mapping[str, Any]) -> list[str]:
    """Return the metric's parameters that have no default and are not given."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return []
    ordinary = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    left = [p for p in ordinary if p.kind == p.KEYWORD_ONLY]
    left += [p for p in ordinary if p.kind != p.KEYWORD_ONLY][len(args) :]
    return [p.name for p in left if p.default is p.empty and p.name not in options]


def check_types(factory: Any, args: Sequence[Any], options: Mapping[str, Any]) -> None:
    """Raise SpecError for an argument of the wrong type: it would fail in a row, or silently give wrong scores.

    A parameter whose type cannot be read accepts anything.
    """
    made = factory.__init__ if inspect.isclass(factory) else factory
    try:
        hints = get_type_hints(made)
        given = inspect.signature(factory).bind(*args, **options).arguments
    except (TypeError, ValueError, NameError):
        return  # the call reports arguments that do not fit
    for name, value in given.items():
        try:
            adapter = TypeAdapter(hints.get(name, Any), config=ConfigDict(arbitrary_types_allowed=True))
        except (PydanticSchemaGenerationError, PydanticUserError):
            continue
        try:
            fitted = adapter.validate_python(value)
        except ValidationError as error:
            why = error.errors(include_url=False)[0]["msg"].removeprefix("Input ")
            raise SpecError(f"the metric's '{name}' {why}, not {value!r:.80}") from None
        if isinstance(value, str) and isinstance(fitted, int | float):  # 'no' would count as true
            raise SpecError(f"the metric's '{name}' should be {fitted}, not the text {value!r:.80}")
