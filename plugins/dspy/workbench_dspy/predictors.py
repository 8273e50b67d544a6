"""The predictors of a DSPy module, and the values that they read and write."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def predictor_name(name: str) -> str:
    """Return a predictor's name as a part of an address: `answer.predict` of DSPy is `answer`."""
    name = name.removesuffix(".predict")
    return re.sub(r"\W+", "_", name).strip("_") or "predict"


def predictors_of(program: Any) -> dict[str, Any]:
    """Return the predictors of a module by their names in addresses."""
    found: dict[str, Any] = {}
    for name, predictor in program.named_predictors():
        short = predictor_name(name)
        while short in found:
            short += "_"
        found[short] = predictor
    return found


def plain(value: Any) -> Any:
    """Convert a value to JSON types: pydantic models to mappings, unknown values to text."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(v) for v in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
