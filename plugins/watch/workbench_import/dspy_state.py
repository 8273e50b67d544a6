"""The JSON that `program.save` of DSPy writes: of a program, a state for each predictor; or that of one predictor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from workbench.base.type_guards import is_dict


def read_states(value: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The state of each predictor; empty for what is no state."""
    states = {name: one for name, one in value.items() if is_dict(one) and is_dict(one.get("signature"))}
    return states or ({"self": dict(value)} if is_dict(value.get("signature")) else {})


def default_adapter(value: Mapping[str, Any] | None) -> str:
    """The adapter that the DSPy which wrote a state takes by itself, so that the prompt stays what it was."""
    told: Any = value
    for key in ("metadata", "dependency_versions", "dspy"):
        told = told.get(key) if is_dict(told) else None
    numbers = re.match(r"(\d+)\.(\d+)", str(told))
    return "xml" if numbers and (int(numbers[1]), int(numbers[2])) >= (3, 5) else "chat"
