"""`metric: python:...`: a function of your own."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
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
    path = (base / place).resolve()
    if not place.endswith(".py"):  # a module beside the workflow file comes before an installed one
        path = base.joinpath(*place.split(".")).with_suffix(".py").resolve()
    try:
        if not place.endswith(".py") and not path.is_file():
            return importlib.import_module(place)
        return _load_file(path)
    except SpecError:
        raise
    except SyntaxError as error:
        raise SpecError(
            f"{error.filename}:{error.lineno}:{error.offset}: {error.msg}", hint="Correct the file."
        ) from None
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        inside = [f for f in frames if "importlib" not in f.filename and f.filename != __file__]
        where = f"{inside[-1].filename}:{inside[-1].lineno}: " if inside else ""
        hint = "Correct the file." if inside else "Write python:metrics.py:function, relative to the workflow file."
        raise SpecError(f"{where}'{place}' cannot be imported: {type(error).__name__}: {error}", hint=hint) from error


def _load_file(path: Path) -> Any:
    if not path.is_file():
        near = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise SpecError(f"there is no file {path}", hint=suggest(path.name, near))
    name = f"_workbench_metric_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


class FunctionMetric:
    """Calls a function with those of example, prediction and trace that it names; else by position.

    It may return a number, a bool, a Score, (number, words), or {"score": number, "feedback": words}, and it may be a
    coroutine function.
    """

    def __init__(self, function: Callable[..., Any], address: str):
        self.function, self.address = function, address
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except ValueError:  # some functions written in C do not tell
            parameters = []
        required = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        by_name = bool(parameters) and all(p.name in _NAMES and p.kind != p.POSITIONAL_ONLY for p in required)
        named = {p.name: _NAMES[p.name] for p in parameters if p.name in _NAMES}
        self.named = named if by_name and named else None
        if any(p.kind is p.KEYWORD_ONLY for p in required) and self.named is None:
            raise SpecError(f"'{address}' asks for arguments that a metric does not get",
                            hint="Name them example, prediction and trace.")  # fmt: skip
        self.count = len(required) if required else 3
        if self.named is None and self.count > 3:
            raise SpecError(f"'{address}' needs {self.count} arguments, a metric gets 3",
                            hint="Write def metric(example, prediction, trace).")  # fmt: skip

    def __call__(self, example: Example, prediction: Mapping[str, Any], trace: Any = None) -> Any:
        given = (example, prediction, trace)
        if self.named is not None:
            value = self.function(**{name: given[index] for name, index in self.named.items()})
        else:
            value = self.function(*given[: self.count])
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
    if isinstance(value, Mapping | tuple):
        raise TypeError("a metric that returns a mapping needs a 'score' in it, a tuple is (number, words)")
    score, feedback = getattr(value, "score", None), getattr(value, "feedback", None)
    if score is not None:  # DSPy's Prediction(score=..., feedback=...)
        return Score(float(score), feedback)
    if hasattr(value, "__float__"):  # also numpy's numbers
        return Score(float(value))
    raise TypeError(f"a metric must return a number, a bool, (number, words) or a Score, not {type(value).__name__}")
