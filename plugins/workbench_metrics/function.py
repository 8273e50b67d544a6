"""`metric: python:...`: a function of your own."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workbench.data import Example, Score
from workbench.errors import SpecError, suggest

#: Names under which a function may ask for its arguments; gold, pred are DSPy's.
_NAMES = {"example": 0, "gold": 0, "row": 0, "prediction": 1, "pred": 1, "trace": 2}


def load_function(address: str, base: Path | None = None) -> FunctionMetric:
    """`file.py:function` (relative to the workflow file) or `module:function` as a metric. Raises SpecError."""
    place, colon, name = address.rpartition(":")
    if not colon or not name:
        raise SpecError(
            f"'{address}' names no function", hint="Write python:metrics.py:function or python:module:function."
        )
    module = _module(place, base or Path.cwd())
    function = getattr(module, name, None)
    if not callable(function):
        known = [n for n, f in vars(module).items() if inspect.isfunction(f) and not n.startswith("_")]
        raise SpecError(f"{place} has no function '{name}'", hint=suggest(name, known))
    return FunctionMetric(function, address)


def _module(place: str, base: Path) -> Any:
    try:
        if not place.endswith(".py"):
            return importlib.import_module(place)
        path = (base / place).resolve()
        if not path.is_file():
            near = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
            raise SpecError(f"there is no file {path}", hint=suggest(path.name, near))
        spec = importlib.util.spec_from_file_location(f"_workbench_metric_{path.stem}", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    except SpecError:
        raise
    except SyntaxError as error:
        raise SpecError(
            f"{error.filename}:{error.lineno}:{error.offset}: {error.msg}", hint="Correct the file."
        ) from None
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        line = next((f.lineno for f in reversed(frames) if f.filename.endswith(place)), None)
        where = f"{place}:{line}" if line else place
        raise SpecError(
            f"{where} cannot be imported: {type(error).__name__}: {error}", hint="Correct the file."
        ) from error


class FunctionMetric:
    """Calls a function with those of example, prediction and trace that it names; else by position.

    It may return a number, a bool, a Score, (number, words), or {"score": number, "feedback": words}, and it may be a
    coroutine function.
    """

    def __init__(self, function: Callable[..., Any], address: str):
        self.function, self.address = function, address
        parameters = [
            p for p in inspect.signature(function).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and (p.default is p.empty or p.name in _NAMES)
        ]  # fmt: skip
        names = [p.name for p in parameters]
        self.order = [_NAMES[n] for n in names] if all(n in _NAMES for n in names) else list(range(min(3, len(names))))

    def __call__(self, example: Example, prediction: Mapping[str, Any], trace: Any = None) -> Any:
        given = (example, prediction, trace)
        value = self.function(*(given[i] for i in self.order))
        return self._later(value) if inspect.isawaitable(value) else as_score(value)

    async def _later(self, value: Any) -> Score:
        return as_score(await value)


def as_score(value: Any) -> Score:
    """What a function returned, as a Score. Raises TypeError that says what to return."""
    if isinstance(value, Score):
        return value
    if isinstance(value, Mapping) and "score" in value:
        return Score(float(value["score"]), value.get("feedback"))
    if isinstance(value, tuple) and len(value) == 2:
        return Score(float(value[0]), None if value[1] is None else str(value[1]))
    score, feedback = getattr(value, "score", None), getattr(value, "feedback", None)
    if score is not None:  # DSPy's Prediction(score=..., feedback=...)
        return Score(float(score), feedback)
    if isinstance(value, bool | int | float):
        return Score(float(value))
    raise TypeError(f"a metric must return a number, a bool, (number, words) or a Score, not {type(value).__name__}")
