"""The base of metrics that compare a field of the prediction with a field of the row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.base.text import spells_nothing
from workbench.errors import NodeError
from workbench.lm import split_thoughts
from workbench.task import Example, Score
from workbench_kit.answers import read_truth


class FieldMetric:
    """Compares a field of the prediction with the same field (or `target`) of the row.

    The row's value may be a list of accepted values; the best score counts. Subclasses implement `compare`.

    The row's value may be a list of accepted values; the best score counts. Subclasses implement `compare`.
    """

    lists_are_choices = True

    def __init__(self, field: str, target: str | None = None):
        if not isinstance(field, str) or not field:
            raise ValueError("name the field to compare, e.g. exact_match(label)")
        self.field, self.target = field, target or field

    def __call__(self, example: Example, prediction: Mapping[str, Any], trace: Any = None) -> Score:
        given, wanted = get_field(prediction, self.field, "prediction"), get_field(example, self.target, "row")
        if isinstance(given, str):
            given = split_thoughts(given)[1]
        accepted = [wanted]
        if self.lists_are_choices and isinstance(wanted, list) and wanted:
            accepted = [*wanted, wanted] if isinstance(given, list) else wanted
        return max((self._compare(given, one) for one in accepted), key=lambda s: s.value)

    def _compare(self, given: Any, wanted: Any) -> Score:
        if wanted is None or (given is None and isinstance(wanted, str) and spells_nothing(wanted)):
            return score_match(given is None, given, wanted)
        if isinstance(given, bool) and (truth := read_truth(wanted)) is not None:
            wanted = truth
        return self.compare(given, wanted)

    def compare(self, given: Any, wanted: Any) -> Score:
        raise NotImplementedError


def get_field(values: Mapping[str, Any], name: str, what: str) -> Any:
    """Return a field's value. Raise ValueError if it is missing, or NodeError("data") if the row lacks it."""
    if name not in values:
        said = f"the {what} has no field '{name}'; it has: {', '.join(values) or 'none'}"
        raise NodeError("data", said) if what == "row" else ValueError(said)
    return values[name]


def unreadable(target: str, why: str) -> NodeError:
    """Return the error for a row's value that cannot be compared with any answer. The row then has no result."""
    return NodeError("data", f"the row's '{target}' cannot be read: {why}", field=target)


def score_match(right: bool, given: Any, wanted: Any) -> Score:
    """Return a score of 1 without feedback, or 0 with the expected value as feedback."""
    return Score(1.0) if right else Score(0.0, f"expected {shorten(wanted)}, got {shorten(given)}")


def shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
