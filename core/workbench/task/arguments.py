"""The arguments of a metric in a workflow file, against the parameters that it declares."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, get_type_hints

from pydantic import ConfigDict, PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError

from workbench.errors import SpecError


def find_missing_arguments(factory: Any, args: Sequence[Any], options: Mapping[str, Any]) -> list[str]:
    """The parameters of a metric that have no default and are not given."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return []
    ordinary = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    left = [p for p in ordinary if p.kind == p.KEYWORD_ONLY]
    left += [p for p in ordinary if p.kind != p.KEYWORD_ONLY][len(args) :]
    return [p.name for p in left if p.default is p.empty and p.name not in options]


def check_types(factory: Any, args: Sequence[Any], options: Mapping[str, Any]) -> None:
    """Raise SpecError for an argument that is not of the declared type: it would fail in a row, or score in silence.

    A parameter whose type cannot be read takes anything.
    """
    made = factory.__init__ if inspect.isclass(factory) else factory
    try:
        hints = get_type_hints(made)
        given = inspect.signature(factory).bind(*args, **options).arguments
    except (TypeError, ValueError, NameError):
        return  # arguments that do not fit are told by the call
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
        if isinstance(value, str) and isinstance(fitted, int | float):  # 'no' would be taken for true
            raise SpecError(f"the metric's '{name}' should be {fitted}, not the text {value!r:.80}")
