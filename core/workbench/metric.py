"""Metrics: how good is a prediction for an example?"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from typing import Any, Protocol

from workbench.data import Example, Score
from workbench.errors import SpecError
from workbench.user_code import PREFIX


class Metric(Protocol):
    """A callable (example, prediction, trace) -> Score | float | bool, which may be a coroutine function.

    example: the full row, labels included. prediction: every field that the workflow's nodes gave. trace:
    `workbench.trace.Trace`. Values lie in [0, 1], higher is better. Raise only for faults of the metric itself.
    A metric with `needs_lm = True` also gets `lm=`, a coroutine function (messages, **settings) -> Response that
    is paid for under the role `judge`.
    """

    def __call__(self, example: Example, prediction: Mapping[str, Any], trace: Any) -> Any: ...


def as_score(value: Any) -> Score:
    """A metric's return value as a Score. Raises ValueError if it is no number in [0, 1]."""
    score = value if isinstance(value, Score) else Score(float(value))
    if math.isnan(score.value) or not 0.0 <= score.value <= 1.0:
        raise ValueError(f"a metric must return a number in [0, 1], not {score.value!r}")
    return score


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
