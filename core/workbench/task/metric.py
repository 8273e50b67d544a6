"""Metrics: how good is a prediction for an example?"""

from __future__ import annotations

import ast
import inspect
import re
import sysconfig
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from workbench.errors import SpecError
from workbench.task.dataset import Example, Score
from workbench.user_code import PREFIX

#: Files that the author of a metric does not know: ours, and Python's.
_NOT_THEIRS = (str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"), "<")


class Metric(Protocol):
    """A callable (example, prediction, trace) -> Score | float | bool, which may be a coroutine function.

    Scores lie in [0, 1], higher is better. A metric raises only for faults of its own. One with `needs_lm = True` is
    also given `lm=`, a coroutine function (messages, **settings) -> Response whose calls are paid under the role
    `judge`. One with `user_code = True` is called in a thread, one row at a time, with a deadline.

    Args:
        example: the whole row, labels included.
        prediction: every field that the workflow's nodes wrote.
        trace: `workbench.workflow.Trace`.
    """

    def __call__(self, example: Example, prediction: Mapping[str, Any], trace: Any) -> Any: ...


def as_score(value: Any) -> Score:
    """A metric's return value as a Score. Raises ValueError if it is not a number in [0, 1]."""
    try:
        score = value if isinstance(value, Score) else Score(float(value))
        usable = 0.0 <= score.value <= 1.0  # never true of NaN
    except (TypeError, ValueError):
        raise ValueError(f"a metric must return a number in [0, 1], not {value!r:.100}") from None
    if not usable:
        raise ValueError(f"a metric must return a number in [0, 1], not {score.value!r}")
    return score


class MetricFaults:
    """Counts what a metric raised, and on how many of the rows it was given. A row may be given several times."""

    #: A run ends if the metric fails on each of the first rows, this many.
    FIRST_ROWS: ClassVar[int] = 5

    def __init__(self, metric: Any):
        self.metric = metric
        self._given, self._worked = set[str](), False
        self._raised: dict[str, set[str]] = {}

    def scored(self, row: str) -> None:
        self._given.add(row)
        self._worked = True

    def raised(self, row: str, error: BaseException) -> str:
        """Count an error of the metric on a row. Returns what it raised and where, in words."""
        text = f"{type(error).__name__}: {error}{_place(error, self.metric)}"
        self._given.add(row)
        self._raised.setdefault(text, set()).add(row)
        return text

    def check(self, rows: int) -> None:
        """Raise SpecError if the metric failed on each of the first rows: it would fail on the others, too, and these
        cost calls. rows: how many it will be given, if fewer than FIRST_ROWS."""
        if not self._worked and len(self._given) >= min(self.FIRST_ROWS, rows) and self._raised:
            text = max(self._raised, key=lambda t: len(self._raised[t]))
            raise SpecError(
                f"the metric failed on each of the first {len(self._given)} rows: {text}",
                path=("metric",),
                hint="Correct the metric, or what it reads of the rows, and start again.",
            )

    def lines(self) -> list[str]:
        """A line for each of the three most frequent errors."""
        by_count = sorted(self._raised.items(), key=lambda item: -len(item[1]))
        return [
            f"the metric failed on {len(rows)} of the {len(self._given)} rows that it was given, e.g. {min(rows)}: "
            f"{text}"
            for text, rows in by_count[:3]
        ]


def _place(error: BaseException, metric: Any) -> str:
    """The file and line of the metric's own code at which an error was raised."""
    frames = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    own = [f for f in frames if not f[0].startswith(_NOT_THEIRS) and "site-packages" not in f[0]]
    code = getattr(getattr(metric, "function", None), "__code__", None)
    if code is not None and code.co_filename not in {name for name, _ in own}:
        own = [(code.co_filename, code.co_firstlineno)]  # its return value is wrong
    return f" ({own[-1][0]}, line {own[-1][1]})" if own else ""


def parse_call(text: str) -> tuple[str, list[Any], dict[str, Any]]:
    """`f1(answer, target=labels.text)` as ("f1", ["answer"], {"target": "labels.text"}).

    Arguments are names (also dotted), which stand for field names, or literals. Raises SpecError.
    """
    if text.startswith(PREFIX):
        return text, [], {}
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SpecError(f"cannot read the metric '{text[:80]}'", hint="Write e.g. exact_match(label).") from error
    if isinstance(tree, ast.Name):
        return tree.id, [], {}
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        raise SpecError(f"cannot read the metric '{text[:80]}'", hint="Write e.g. exact_match(label).")
    args = [_argument(node) for node in tree.args]
    return tree.func.id, args, {k.arg: _argument(k.value) for k in tree.keywords if k.arg}


def find_missing_arguments(factory: Any, args: Sequence[Any], options: Mapping[str, Any]) -> list[str]:
    """The parameters of a metric that have no default and are not given."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return []
    ordinary = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    left = [p for p in ordinary if p.kind == p.KEYWORD_ONLY]
    left += [p for p in ordinary if p.kind != p.KEYWORD_ONLY][len(args) :]
    return [p.name for p in left if p.default is p.empty and p.name not in options]


def _argument(node: ast.expr) -> Any:
    if isinstance(node, ast.Name | ast.Attribute):
        return ast.unparse(node)
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise SpecError(
            f"cannot read the metric's argument '{ast.unparse(node)}'",
            hint="Write a field's name, a number or a quoted text.",
        ) from error


def without_method(error: Exception) -> str:
    """The message of a call that failed, without the method of ours that it names."""
    told = str(error).partition("__init__() ")[2] or str(error)
    taken = re.fullmatch(r"takes (?:from \d+ to )?(\d+) positional arguments? but (\d+) (?:was|were) given", told)
    if taken:  # Python counts `self`
        return f"it takes at most {int(taken[1]) - 1} without a name, and {int(taken[2]) - 1} are given"
    told = told.replace("missing 1 required positional argument:", "it needs")
    return told.replace("got an unexpected keyword argument", "it knows no")
