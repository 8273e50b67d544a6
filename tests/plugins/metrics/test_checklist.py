"""The metric `checklist` over checks as strangers write them. What it computes: whole/test_gallery_benchmarks.py."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from workbench.errors import NodeError
from workbench.runtime import SandboxResult
from workbench.task import Example
from workbench.workflow import Span, Trace
from workbench_metrics.checklist import Checklist

SLOW = r"(a|a)+$"


async def no_sandbox(source: str, function: str, arguments: Any) -> SandboxResult:
    return SandboxResult("error", message="it raised")


def score(*checks: Any, answer: str = "well done", trace: Trace | None = None, **options: Any) -> float:
    row = Example("1", {"checks": [*checks]})
    return asyncio.run(Checklist("answer", **options)(row, {"answer": answer}, trace, sandbox=no_sandbox)).value


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ({"contains": "a", "regex": "b"}, r"\[1\].*here are regex and contains"),
        ({"contain": "a"}, "unknown key 'contain' .*'contains'"),
        ("a", "must be a mapping"),
        (5, "must be a mapping"),
        ({}, "here are none"),
        ({"code": None}, "here are none"),
        ({"regex": "("}, "is not a regular expression"),
        ({"regex": 5}, "regex: must be text"),
        ({"contains": ""}, "at least 1 character"),
        ({"code": "def f(a) return 1"}, "code: this is no Python"),
        ({"code": "x = 1"}, "no function of the answer"),
        ({"contains": "a", "weight": "2"}, "weight: must be a number"),
        ({"contains": "a", "weight": -1}, "greater than 0"),
        ({"contains": "a", "weight": float("nan")}, "finite"),
        ({"contains": "a", "not": "false"}, "not: must be true or false"),
        ({"contains": "a", "if": "b"}, "if: must be a mapping"),
        ({"contains": "a", "if": {"contain": "b"}}, "unknown key"),
        ({"contains": "a", "say": ["b"]}, "say: must be text"),
        ({"contains": "a", "arguments": {"b": 1}}, "arguments belong to called"),
        ({"called": "t", "arguments": ["b"]}, "arguments: must be a mapping"),
        ({"ask": "Is it?"}, "write checklist.FIELD, ask=true"),
        ({"contains": "a", "if": {"contains": "b", "extract": "c"}}, "asks a model"),
    ],
)
def test_a_check_of_another_form_is_told_with_its_place(check: Any, said: str) -> None:
    with pytest.raises(NodeError, match=said) as told:
        score({"contains": "well"}, check)
    assert told.value.kind == "data" and "the row's 'checks' cannot be read: [1]" in str(told.value)


def test_a_list_of_checks_may_be_json_as_csv_holds_it() -> None:
    row = Example("1", {"checks": '[{"contains": "well"}, {"contains": "ill"}]', "wrong": "contains: well"})
    found = asyncio.run(Checklist("answer")(row, {"answer": "well"}, None, sandbox=no_sandbox))
    assert found.value == 0.5
    with pytest.raises(NodeError, match="'wrong' cannot be read: it must be a list of checks, not 'contains: well'"):
        asyncio.run(Checklist("answer", checks="wrong")(row, {"answer": "well"}, None, sandbox=no_sandbox))


def test_all_checks_are_read_before_one_is_paid_for() -> None:
    asked = list[Any]()

    async def judge(messages: Any, **settings: Any) -> Any:
        asked.append(messages)

    row = Example("1", {"checks": [{"ask": "Is it?"}, {"regex": "("}]})
    with pytest.raises(NodeError, match="regular expression"):
        asyncio.run(Checklist("answer", ask=True)(row, {"answer": "a"}, None, sandbox=no_sandbox, lm=judge))
    assert not asked


def test_a_pattern_that_never_ends_is_stopped() -> None:
    begun = time.process_time()
    with pytest.raises(ValueError, match="took more than"):
        score({"regex": SLOW}, answer="a" * 40 + "!")
    assert time.process_time() - begun < 5


def test_conditions_of_conditions_and_weights_count() -> None:
    nested = {"contains": "none", "if": {"contains": "well", "if": {"contains": "never"}}}
    assert score(nested) == 1.0, "it does not apply"
    assert score({**nested, "if": {"contains": "well", "if": {"contains": "done"}}}) == 0.0
    assert score({"contains": "well", "weight": 3}, {"contains": "none"}) == 0.75
    assert score({"contains": "none", "not": True}, {"code": "def f(a): return True"}) == 0.5
    assert score({"contains": "well"}, {"contains": "none"}, whole=True) == 0.0


@pytest.mark.parametrize(
    ("check", "holds"),
    [
        ({"called": "send"}, 1.0),
        ({"called": "send", "arguments": {"to": "bo"}}, 1.0),
        ({"called": "send", "arguments": {"to": ["al", "bo"]}}, 1.0),
        ({"called": "send", "arguments": {"to": "al"}}, 0.0),
        ({"called": "send", "arguments": {"from": None}}, 1.0),
        ({"called": "read"}, 0.0),
        ({"called": "lost"}, 0.0),
        ({"called": "lost", "not": True}, 1.0),
    ],
)
def test_a_call_counts_with_its_arguments_and_if_something_came_of_it(check: Any, holds: float) -> None:
    calls = [("send", {"to": "bo"}, "sent"), ("lost", {}, "error: there is no such tool")]
    trace, span = Trace("1"), Span("n", "agent", {})
    span.notes["tools"] = [{"name": name, "arguments": given, "result": told} for name, given, told in calls]
    trace.spans.append(span)
    assert score(check, trace=trace) == holds
