"""Nothing as one value: texts that spell nothing, such as NULL, become None if the type of the value allows None."""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping
from typing import Any, Literal, Union, get_args, get_origin

from workbench.base.text import spells_nothing
from workbench.base.type_guards import is_dict, is_list


def may_be_none(kind: Any) -> bool:
    """Return True if None is a value of a type."""
    return kind is Any or kind is type(None) or (_is_union(kind) and any(map(may_be_none, get_args(kind))))


def may_hold_none(kind: Any, depth: int = 0) -> bool:
    """Return True if a value of this type, or a part of one, may be None."""
    if kind is not Any and may_be_none(kind):
        return True
    inner = [*get_args(kind), *_fields_of(kind).values()] if depth < 10 and get_origin(kind) is not Literal else []
    return any(may_hold_none(one, depth + 1) for one in inner)


def read_nothing(value: Any, kind: Any) -> Any:
    """Return a value with None in place of each text that spells nothing, if its type allows None there.

    In a list whose type is not a list, each item is read as that type (a list of accepted values).
    """
    if isinstance(value, str):
        return None if _is_union(kind) and says_nothing(value, get_args(kind)) else value
    kinds = get_args(kind) if _is_union(kind) else (kind,)
    if is_list(value):
        items = [get_args(one)[0] for one in kinds if get_origin(one) is list and get_args(one)]
        return [read_nothing(one, items[0] if items else kind) for one in value]
    if is_dict(value):
        of = next((get_args(one)[1] for one in kinds if get_origin(one) is dict and len(get_args(one)) == 2), None)
        known = {name: inner for one in kinds for name, inner in _fields_of(one).items()}
        return {name: read_nothing(one, known.get(name, of)) for name, one in value.items()}
    return value


def says_nothing(text: str, kinds: Collection[Any]) -> bool:
    """Return True if a text stands for None in a union of types. If the union allows texts, words such as unknown are
    texts; so are the values of a Literal."""
    listed = [value for kind in kinds if get_origin(kind) is Literal for value in get_args(kind)]
    is_text = str in kinds or Any in kinds
    return any(map(may_be_none, kinds)) and text.strip() not in listed and spells_nothing(text, or_unknown=not is_text)


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


def _fields_of(kind: Any) -> Mapping[str, Any]:
    """Return the types of an object's fields, by name."""
    models = getattr(kind, "model_fields", None)
    if isinstance(kind, type) and is_dict(models):
        return {name: field.annotation for name, field in models.items()}
    return getattr(kind, "__annotations__", {}) if isinstance(kind, type) else {}
