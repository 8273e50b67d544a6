"""Type guards for values read from YAML or JSON."""

from __future__ import annotations

from typing import Any, TypeGuard


def is_dict(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether a value is a mapping; YAML and JSON have only texts as keys."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether a value is a list."""
    return isinstance(value, list)
