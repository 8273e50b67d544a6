"""The scorers and the baselines."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.helpers.planted_logs import diagnose, oracle, planted

from workbench_attribute.attribute import attribute
from workbench_attribute.diagnosis import Diagnosis
from workbench_attribute.score import TOLERANCES, expect_random, is_step, official_step, score
from workbench_attribute.settings import Judging
from workbench_kit.logs import Log, LogStep


def log(agent: str | None = "Ann", step: int | None = 1, steps: int = 22) -> Log:
    made = tuple(LogStep("Ann" if n % 2 else "Bob", "fine") for n in range(steps))
    return Log(f"{agent}-{step}", made, gold_agent=agent, gold_step=step)


def found(agent: str | None, step: int | None) -> Diagnosis:
    return Diagnosis(agent, step, 1.0, "", 1, 0.0, "m", None if agent else "unparsed")


@pytest.mark.parametrize(
    ("gold", "predicted", "exact", "official"),
    [
        (1, 1, True, True),
        (1, 10, False, True),
        (1, 21, False, True),
        (10, 1, False, False),
        (0, 20, False, True),
        (12, 12, True, True),
        (2, 3, False, False),
        (1, None, False, False),
    ],
)
def test_integers_are_compared_as_integers_and_the_published_scorer_is_not_ours(
    gold: int, predicted: int | None, exact: bool, official: bool
) -> None:
    truth, said = log(step=gold), found("Ann" if predicted is not None else None, predicted)
    assert (is_step(said, truth), official_step(said, truth)) == (exact, official)


def test_two_cases_that_the_published_scorer_calls_perfect_are_half_right() -> None:
    """Issue 14 of the published code."""
    a = score([found("Ann", 10), found("Ann", 2)], [log(step=1), log(step=2)])
    assert a is not None and (a.step, a.official_step) == (0.5, 1.0)


def test_names_are_equal_whatever_their_case_and_a_longer_name_is_another_one() -> None:
    for name, ours, theirs in (("ann", 1.0, 0.0), ("Ann_Expert", 0.0, 1.0), ("Ann", 1.0, 1.0)):
        a = score([found(name, 1)], [log()])
        assert a is not None and (a.agent, a.official_agent) == (ours, theirs)


def test_a_log_without_a_prediction_counts_as_wrong_and_one_without_truth_is_left_out() -> None:
    a = score([found("Ann", 1), found(None, None), found("Bob", 4)], [log(), log(), log(None, None)])
    assert a is not None and (a.n, a.agent, a.step) == (2, 0.5, 0.5)
    assert a.step95[0] < 0.5 < a.step95[1]
    assert score([found("Ann", 1)], [log(None, None)]) is None


def test_the_curve_of_tolerance_rises() -> None:
    truths = [log(step=n) for n in range(12)]
    a = score([found("Ann", (5 * n) % 12 if n % 2 else n + 1) for n in range(12)], truths)
    assert a is not None and tuple(a.within) == TOLERANCES
    shares = list(a.within.values())
    assert shares == sorted(shares) and shares[0] == a.step < shares[-1]
    near = score([found("Ann", 5)], [log(step=7)])
    assert near is not None and near.within == {0: 0.0, 1: 0.0, 2: 1.0, 3: 1.0, 5: 1.0}


# Baselines


def test_random_is_drawn_by_the_seed_and_hits_as_often_as_expected() -> None:
    truth = planted(5, 2)
    drawn = [diagnose(truth, "random", oracle(), seed=seed) for seed in range(600)]
    expected = expect_random([truth])
    assert expected == (1 / len(truth.agents), 1 / 5)
    assert abs(sum(d.step == 2 for d in drawn) / 600 - 0.2) < 0.06
    assert abs(sum(d.agent == truth.gold_agent for d in drawn) / 600 - expected[0]) < 0.08
    assert drawn[7] == diagnose(truth, "random", oracle(), seed=7)


def test_majority_is_the_busiest_agent() -> None:
    truth = Log("x", (LogStep("A", ""), LogStep("B", ""), LogStep("B", "")))
    said = diagnose(truth, "majority", oracle())
    assert (said.agent, said.step, said.calls) == ("B", 1, 0)


def test_majority_looks_at_other_logs_and_never_at_the_label_of_its_own() -> None:
    """Whatever the mistake of a log is said to be, its diagnosis stays the same."""
    logs = [log(step=step, steps=6) for step in (0, 1, 2, 3, 3)]
    logs = [replace(one, id=f"log{n}") for n, one in enumerate(logs)]
    expected = diagnose(logs[0], "majority", oracle(), logs=logs)
    assert expected.step == 3 and "2 of 4 other logs" in expected.evidence
    for step in (0, 1, 2, 4, None):
        own = replace(logs[0], gold_step=step)
        assert diagnose(own, "majority", oracle(), logs=[own, *logs[1:]]) == expected
    for step in (1, 2):  # as often as the other, were it counted
        own = replace(logs[4], gold_step=step)
        assert diagnose(own, "majority", oracle(), logs=[*logs[:4], own]).step == 0, "a tie of four, the earliest"


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([("A", "find the error"), ("B", "done"), ("C", "Traceback (most recent call last)")], 2),
        ([("A", "task"), ("B", "run this"), ("Computer_terminal", "exitcode: 1 (execution failed)")], 1),
        ([("A", "task"), ("B", "all fine")], 0),
    ],
)
def test_lexical_names_the_first_step_that_speaks_of_trouble(steps: list[tuple[str, str]], expected: int) -> None:
    said = diagnose(Log("x", tuple(LogStep(*one) for one in steps)), "lexical", oracle())
    assert (said.agent, said.step) == (steps[expected][0], expected)


def test_lexical_passes_over_what_all_logs_say() -> None:
    """The questions of a system's ledger, in which errors are named."""
    ledger = LogStep("Orchestrator", "Is there an error?\nIs the fact incorrect?")

    def log(number: int) -> Log:
        own = [
            LogStep("A", f"An exception in line {number}" if number == at else f"Row {at} is fine") for at in range(4)
        ]
        return Log(f"x{number}", (ledger, ledger, *own))

    logs = [log(number) for number in range(4)]
    found = attribute(logs, Judging(method="lexical"), None).found
    assert [one.step for one in found] == [2, 3, 4, 5]
    assert [one.step for one in attribute(logs[:2], Judging(method="lexical"), None).found] == [1, 1], "too few to tell"


def test_lexical_takes_a_recorded_error_before_words() -> None:
    said = diagnose(
        Log("x", (LogStep("A", "fine", error="timeout"), LogStep("B", "an exception"))), "lexical", oracle()
    )
    assert (said.step, said.evidence) == (0, "timeout")
