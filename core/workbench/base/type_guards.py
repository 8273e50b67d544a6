"""Type guards for values read from YAML or JSON, and functions to walk, copy and change them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard, cast


def is_dict(value: object) -> TypeGuard[dict[str, Any]]:
    """Return True if a value is a mapping. YAML and JSON have only texts as keys."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Return True if a value is a list."""
    return isinstance(value, list)


def dicts_in(value: object) -> Iterator[dict[str, Any]]:
    """Return the mappings among the values of a list; empty for anything else."""
    return filter(is_dict, value if is_list(value) else ())


def walk(value: Any) -> Iterator[Any]:
    """Yield a value and each value inside it at any depth, without keys, in no particular order."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        yield part
        if isinstance(part, Mapping):
            waiting += part.values()
        elif isinstance(part, list | tuple):
            waiting += part


def copied(value: Any) -> Any:
    """Return a copy of a value with new lists and dicts at every depth, so that its receiver may change them."""
    kind = cast("Any", type(value))
    if kind is dict:
        return {name: copied(one) if type(one) in _HOLDERS else one for name, one in value.items()}
    if kind is list or kind is tuple:
        made: list[Any] = [copied(one) if type(one) in _HOLDERS else one for one in value]
        return made if kind is list else tuple(made)
    return value


_HOLDERS = (dict, list, tuple)


def change_at(value: Any, at: Sequence[str | int], change: Callable[[Any], Any]) -> Any:
    """Return a copy of a value with the part at a path changed; the value itself if there is no such part."""
    if not at:
        return change(value)
    key: Any = at[0]
    if is_dict(value) and key in value:
        return {**value, key: change_at(value[key], at[1:], change)}
    if is_list(value) and isinstance(key, int) and key < len(value):
        return [*value[:key], change_at(value[key], at[1:], change), *value[key + 1 :]]
    return value
