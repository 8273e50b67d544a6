"""`metric: python:...`: a user's function as the metric."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workbench.errors import SpecError
from workbench.spec import Code, read_user_code
from workbench.task import Example, Score

#: Parameter names that a function may use; gold and pred are DSPy's.
_NAMES = {"example": 0, "gold": 0, "row": 0, "prediction": 1, "pred": 1, "trace": 2}


def load_function(address: str, base: Path | None = None, code: Code = "loaded") -> FunctionMetric:
    """Load `file.py:function`, `module:function` or `module.function` as a metric (`workbench.spec`).

    code: unless it is `loaded`, the metric is built from an outline and cannot be called. Raises SpecError if the
    function does not exist, or its parameters do not fit.
    """
    return FunctionMetric(read_user_code(address, base or Path.cwd(), code), address)


class FunctionMetric:
    """Calls a function with example, prediction and trace, by parameter name if it uses these names, else by position.

    It may be a coroutine function. It returns a number, a bool, a Score, (number, feedback), or {"score": number,
    "feedback": text}.
    """

    user_code = True

    def __init__(self, function: Callable[..., Any], address: str):
        self.function, self.address = function, address
        self.highest: Any = getattr(function, "highest", 1.0)
        self.floor: Any = getattr(function, "floor", None)
        if isinstance(self.highest, bool) or not isinstance(self.highest, int | float) or not 0 < self.highest <= 1:
            told = f"the highest score of '{address}' is {self.highest!r:.40}, which is not a number above 0, at most 1"
            raise SpecError(told, hint="Write e.g. highest = 0.8 on the function, or nothing.")
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except ValueError:  # some functions written in C have no signature
            parameters = []
        else:
            if not parameters:
                hint = "Write def metric(example, prediction, trace)."
                raise SpecError(f"'{address}' takes no arguments, but a metric receives 3", hint=hint)
        required = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        by_name = bool(parameters) and all(p.name in _NAMES and p.kind != p.POSITIONAL_ONLY for p in required)
        named = {p.name: _NAMES[p.name] for p in parameters if p.name in _NAMES}
        self.named = named if by_name and named else None
        if any(p.kind is p.KEYWORD_ONLY for p in required) and self.named is None:
            raise SpecError(
                f"'{address}' has parameters that a metric does not receive",
                hint="Name them example, prediction and trace.",
            )
        self.count = len(required) if required else 3
        if self.named is None and self.count > 3:
            raise SpecError(
                f"'{address}' needs {self.count} arguments, but a metric receives 3",
                hint="Write def metric(example, prediction, trace).",
            )

    def __call__(self, example: Example, prediction: Mapping[str, Any], trace: Any = None) -> Any:
        given = (example, prediction, trace)
        if self.named is not None:
            value = self.function(**{name: given[index] for name, index in self.named.items()})
        else:
            value = self.function(*given[: self.count])
        return self._later(value) if inspect.isawaitable(value) else to_score(value)

    async def _later(self, value: Any) -> Score:
        return to_score(await value)


def to_score(value: Any) -> Score:
    """Convert a function's result to a Score. Raises TypeError for an unsupported one."""
    if isinstance(value, Score):
        return value
    if isinstance(value, Mapping) and "score" in value:
        return Score(float(value["score"]), value.get("feedback"))
    if isinstance(value, tuple) and len(value) == 2:
        return Score(float(value[0]), None if value[1] is None else str(value[1]))
    if isinstance(value, Mapping | tuple):
        raise TypeError("a metric must return a mapping with the key 'score', or a tuple (number, feedback)")
    score, feedback = getattr(value, "score", None), getattr(value, "feedback", None)
    if score is not None:  # DSPy's Prediction(score=..., feedback=...)
        return Score(float(score), feedback)
    if hasattr(value, "__float__"):  # also numpy's numbers
        return Score(float(value))
    raise TypeError(f"a metric must return a number, a bool, (number, feedback) or a Score, not {type(value).__name__}")
