"""`check_metric`: each check finds the fault that it is about, and no other check does (friction 30)."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from tests.helpers.conformance import broken

from workbench.task import Score
from workbench_testing import MetricCase, check_metric, metric_checks


def same(example: Any, prediction: Any, trace: Any = None) -> Any:
    """1 if the labels are the same."""
    return float(str(prediction["label"]) == str(example["label"]))


async def same_later(example: Any, prediction: Any, trace: Any = None) -> Any:
    """A coroutine function."""
    return Score(same(example, prediction), "words")


def undocumented(example, prediction, trace=None):
    return same(example, prediction)


def reversed_(example, prediction, trace=None):
    """Higher is worse."""
    return 1 - same(example, prediction)


def strict(example, prediction, trace=None):
    """Raises for an empty answer."""
    prediction["label"].split()[0]
    return same(example, prediction)


def in_percent(example, prediction, trace=None):
    """From 0 to 100 for long answers."""
    return 100.0 if len(str(prediction["label"])) > 1000 else same(example, prediction)


def odd_words(example, prediction, trace=None):
    """Its feedback is no text."""
    return Score(same(example, prediction), 7)  # type: ignore[arg-type]


def writes_into_the_prediction(example, prediction, trace=None):
    """Removes a field."""
    score = same(example, prediction)
    prediction.setdefault("scored", True)
    return score


def noisy(example, prediction, trace=None):
    """Adds noise."""
    return 0.5 * same(example, prediction) + 0.5 * random.random() * same(example, prediction)


class Counts:
    """Scores fall with each row."""

    def __init__(self):
        self.rows = 0

    def __call__(self, example, prediction, trace=None):
        self.rows += 1
        return same(example, prediction) / self.rows


def case(metric: Any) -> MetricCase:
    return MetricCase(metric, {"label": "a", "seen": []}, {"label": "a"}, {"label": "b"})


def starts(example, prediction, trace=None):
    """Asks a program."""
    subprocess.run(["true"])
    return same(example, prediction)


@pytest.mark.parametrize("metric", [same, same_later])
def test_a_metric_that_keeps_its_contract_passes(metric: Callable[..., Any]) -> None:
    check_metric(metric, {"label": "a"}, {"label": "a"}, {"label": "b"})


@pytest.mark.parametrize(
    ("metric", "check", "said"),
    [
        (undocumented, "is_documented", "undocumented needs a docstring"),
        (starts, "passes_doors", "starts passes no door before it acts (subprocess.Popen: 'true'"),
        (reversed_, "prefers_the_right_prediction", "higher is better"),
        (strict, "takes_any_prediction", "raised IndexError for the prediction {'label': ''}"),
        (in_percent, "stays_between_0_and_1", "a number in [0, 1], not 100.0"),
        (odd_words, "stays_between_0_and_1", "feedback must be a text or None, not 7"),
        (writes_into_the_prediction, "leaves_the_prediction_unchanged", "it changed the prediction"),
        (noisy, "is_deterministic", "other scores when it is asked again"),
        (Counts(), "is_deterministic", "keep no state between rows"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_fault_is_found_by_its_check_alone(metric: Any, check: str, said: str) -> None:
    found = broken(metric_checks(), case(metric))
    assert list(found) == [f"check_metric_{check}"], found
    assert said in found[f"check_metric_{check}"]
