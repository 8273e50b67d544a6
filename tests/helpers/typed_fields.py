"""Values for the types of a client's package: of TypedDicts and pydantic models, with every field and every member of
every union in one of them at least."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel
from typing_extensions import get_type_hints, is_typeddict

#: Deeper, types hold themselves.
DEEPEST = 7
#: Values of one type: those of its parts are dealt out over as many.
MAX = 400


def values_of(kind: Any, depth: int = 0, name: str = "x") -> list[Any]:
    """Values of a type, as JSON. Empty where it goes deeper than is asked for."""
    if depth > DEEPEST:
        return []
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated or str(origin).endswith("Required"):
        return values_of(args[0], depth, name)
    if origin is Literal:
        return [*args]
    if origin in (Union, types.UnionType):
        return [value for arg in args for value in values_of(arg, depth, name)]
    if kind is type(None):
        return []
    if is_typeddict(kind):
        return objects({n: values_of(t, depth + 1, n) for n, t in get_type_hints(kind, include_extras=True).items()})
    if inspect.isclass(kind) and issubclass(kind, BaseModel):
        fields = {(f.alias or n): values_of(f.annotation, depth + 1, n) for n, f in kind.model_fields.items()}
        return objects(fields)
    if origin is not None and inspect.isclass(origin) and issubclass(origin, Mapping):
        inner = values_of(args[1], depth + 1, name) or ["x"]
        return [{"k": inner[0]}]
    if origin is not None and inspect.isclass(origin) and issubclass(origin, Iterable):
        inner = values_of(args[0], depth + 1, name)
        return [[value] for value in inner] if inner else [[]]
    plain = {
        str: name,
        int: 3,
        float: 0.5,
        bool: True,
        object: {"k": 1},
        Any: {"k": 1},
        datetime: "2026-01-01T00:00:00Z",
    }
    if isinstance(kind, TypeVar) or kind not in plain:
        return [name]
    return [plain[kind]]


def objects(fields: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Objects that together have each value of each field."""
    known = {name: values for name, values in fields.items() if values}
    count = min(MAX, max((len(values) for values in known.values()), default=1))
    return [{name: values[k % len(values)] for name, values in known.items()} for k in range(count)]


def count_fields(value: Any, place: str = "") -> set[str]:
    """The places of fields in a value, numbers of lists left out."""
    if isinstance(value, list):
        return {found for one in value for found in count_fields(one, place)}
    if not isinstance(value, dict):
        return set()
    own = {f"{place}.{name}" for name in value}
    return own | {found for name, one in value.items() for found in count_fields(one, f"{place}.{name}")}


def covering(values: Iterable[Any]) -> list[Any]:
    """Of the values those that together have every field of all."""
    seen, found = set[str](), list[Any]()
    for value in values:
        if new := count_fields(value) - seen:
            seen |= new
            found.append(value)
    return found
