"""The JSON of DSPy's `program.save`: a state for each predictor of a program; or that of one predictor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from workbench.base.type_guards import is_dict


def read_states(value: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the state of each predictor; empty for any other value."""
    states = {name: one for name, one in value.items() if is_dict(one) and is_dict(one.get("signature"))}
    return states or ({"self": dict(value)} if is_dict(value.get("signature")) else {})


def default_adapter(value: Mapping[str, Any] | None) -> str:
    """Return the default adapter of the DSPy version that wrote a state, so that the prompt stays the same."""
    told: Any = value
    for key in ("metadata", "dependency_versions", "dspy"):
        told = told.get(key) if is_dict(told) else None
    numbers = re.match(r"(\d+)\.(\d+)", str(told))
    return "xml" if numbers and (int(numbers[1]), int(numbers[2])) >= (3, 5) else "chat"
