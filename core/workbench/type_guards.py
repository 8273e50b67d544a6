"""Type guards for values read from YAML or JSON, and a walk through them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard


def is_dict(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether a value is a mapping; YAML and JSON have only texts as keys."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether a value is a list."""
    return isinstance(value, list)


def walk(value: Any) -> Iterator[Any]:
    """A value and each value inside it at any depth, in no order that means anything; keys are not among them."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        yield part
        if isinstance(part, Mapping):
            waiting += part.values()
        elif isinstance(part, list | tuple):
            waiting += part
