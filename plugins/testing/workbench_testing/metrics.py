"""Checks of a metric's contract. Each scores predictions for one row and raises AssertionError with a remedy."""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from workbench.errors import NodeError
from workbench.lm import Response
from workbench.runtime import open_sandbox
from workbench.task import Example, as_score
from workbench_testing.case import (
    assert_documented,
    checks_in,
    name_of,
    run_all,
    seeded,
    through_doors,
    unchanged,
)

#: What a model may write into any field.
ODD_VALUES = (
    "",
    " \n",
    "?",
    "\x00",
    "ß漢字🙂",
    "NaN",
    "1e999",
    "-",
    "[]",
    "{",
    "x" * 10_000,
    None,
    True,
    0,
    1.5,
    [],
    {},
)


@dataclass(frozen=True)
class MetricCase:
    """A metric, one row, and a right and a wrong prediction for it.

    Args:
        metric: as a workflow file makes it: `ExactMatch("label")`.
        row: with the label.
        right, wrong: predictions, by field; the right one must score more.
        judge: for a metric with `needs_lm`: the model's answer to its messages.
        free_fields: the fields of the prediction that a model may fill with anything; default: all.
    """

    metric: Any
    row: Mapping[str, Any]
    right: Mapping[str, Any]
    wrong: Mapping[str, Any]
    judge: Callable[[Sequence[Mapping[str, Any]]], str] | None = None
    free_fields: tuple[str, ...] | None = None

    def result(self, prediction: Mapping[str, Any]) -> Any:
        """Call the metric with copies of the row and of a prediction. Raises what it raises."""
        return self.call(copy.deepcopy(self.row), copy.deepcopy(prediction))

    def call(self, row: Mapping[str, Any], prediction: Mapping[str, Any]) -> Any:
        """The same for these objects themselves."""
        example = Example("row", row)
        more: dict[str, Any] = {"lm": self._ask} if getattr(self.metric, "needs_lm", False) else {}
        if getattr(self.metric, "needs_sandbox", False):
            more["sandbox"] = self._call
        found = self.metric(example, prediction, None, **more)
        return asyncio.run(_awaited(found)) if inspect.isawaitable(found) else found

    async def _ask(self, messages: Sequence[Mapping[str, Any]], **settings: Any) -> Response:
        assert self.judge is not None, "the metric asks a model: give the case a `judge`"
        return Response(self.judge(messages), "stop", 5, 5, 0.0)

    async def _call(self, source: str, function: str, arguments: Mapping[str, Any], **settings: Any) -> Any:
        async with aclosing(await open_sandbox()) as sandbox:
            return await sandbox.call(source, function, arguments, **settings)

    def odd_predictions(self) -> list[dict[str, Any]]:
        """Predictions with odd values in one field each."""
        names = self.right if self.free_fields is None else self.free_fields
        return [{**self.right, name: value} for name in names for value in ODD_VALUES]


async def _awaited(value: Any) -> Any:
    return await value


def check_metric(
    metric: Any, row: Mapping[str, Any], right: Mapping[str, Any], wrong: Mapping[str, Any], **more: Any
) -> None:
    """Run all checks on a metric; the arguments are those of MetricCase. Raises AssertionError that says what to
    fix."""
    run_all(metric_checks(), MetricCase(metric, row, right, wrong, **more))


def metric_checks() -> list[Callable[[MetricCase], None]]:
    """All checks, for `pytest.mark.parametrize`."""
    return checks_in(__name__)


def check_metric_is_documented(case: MetricCase) -> None:
    """It says what it measures."""
    assert_documented(case.metric, name_of(case.metric))


def check_metric_passes_doors(case: MetricCase) -> None:
    """Nothing acts for a file that nobody was asked about."""
    with through_doors(name_of(case.metric)):
        case.result(case.right)


def check_metric_prefers_the_right_prediction(case: MetricCase) -> None:
    """The right prediction scores more than the wrong one."""
    try:
        right, wrong = as_score(case.result(case.right)).value, as_score(case.result(case.wrong)).value
    except ValueError as error:
        raise AssertionError(f"{name_of(case.metric)} cannot score the case's predictions: {error}") from error
    assert right > wrong, (
        f"{name_of(case.metric)} gives the right prediction {right:g} and the wrong one {wrong:g}: higher is better"
    )


def check_metric_takes_any_prediction(case: MetricCase) -> None:
    """Whatever a model writes is scored: an unusable answer scores 0, and only faults of the row or the metric are
    raised."""
    for prediction in case.odd_predictions():
        try:
            case.result(prediction)
        except NodeError:
            pass  # a judge that gave no grade
        except Exception as error:
            raise AssertionError(
                f"{name_of(case.metric)} raised {type(error).__name__} for the prediction {_short(prediction)}: "
                f"{error}. Return 0 for an answer that cannot be used, with words that say why"
            ) from error


def check_metric_stays_between_0_and_1(case: MetricCase) -> None:
    """Every result is a number from 0 to 1, with feedback that is a text or None."""
    for prediction in (case.right, case.wrong, *case.odd_predictions()):
        try:
            found = case.result(prediction)
        except Exception:
            continue  # what it raises is the subject of another check
        try:
            score = as_score(found)
        except ValueError as error:
            raise AssertionError(f"{name_of(case.metric)}, for the prediction {_short(prediction)}: {error}") from error
        assert score.feedback is None or isinstance(score.feedback, str), (
            f"{name_of(case.metric)}: feedback must be a text or None, not {score.feedback!r:.100}"
        )


def check_metric_leaves_the_prediction_unchanged(case: MetricCase) -> None:
    """A prediction is stored after it was scored. Rows are copies: a change of one is seen by nobody."""
    for prediction in (case.right, case.wrong):
        given = copy.deepcopy(dict(prediction))
        with unchanged("copy it before you change it", the_prediction=given):
            case.call(copy.deepcopy(dict(case.row)), given)


def check_metric_is_deterministic(case: MetricCase) -> None:
    """The same prediction gets the same score, whatever was scored before and whatever the global random states are."""
    found = []
    for seed in (1, 2, 3):
        with seeded(seed):
            found.append((case.result(case.right), case.result(case.wrong)))
    assert found[0] == found[1] == found[2], (
        f"{name_of(case.metric)} gives other scores when it is asked again: keep no state between rows, and no "
        "randomness but of random.Random(seed)"
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
