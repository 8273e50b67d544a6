"""Scores that users reported as wrong, by the numbers of their report (C1 to C10)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from workbench.errors import NodeError
from workbench.lm import Response
from workbench.task import Example
from workbench_metrics.judge import Judge
from workbench_metrics.numbers import Numeric
from workbench_metrics.structured import JsonMatch, ToolCallMatch
from workbench_metrics.text import F1, Contains, ExactMatch, NormalizedMatch

CALL = [{"name": "f", "arguments": {"x": 1}}]

#: Number, metric, answer, value of the row, score.
SCORED: list[tuple[str, Any, Any, Any, float]] = [
    ("C1", ExactMatch, "9007199254740993", 9007199254740992, 0),
    ("C1", ExactMatch, "007", 7, 0),
    ("C2", NormalizedMatch, "1.5", "15", 0),
    ("C2", NormalizedMatch, "-5", "5", 0),
    ("C2", NormalizedMatch, "C++", "C", 0),
    ("C2", F1, "1.5", "15", 0),
    ("C3", NormalizedMatch, "巴黎。", "巴黎", 1),
    ("C4", F1, "巴黎是法国的首都", "巴黎", 0.4),
    ("C5", Contains, "-5", "5", 0),
    ("C5", Contains, "New\nYork", "New York", 1),
    ("C6", ToolCallMatch, "I will not call a tool.", [], 1),
    ("C6", ToolCallMatch, "", [], 1),
    ("C6", ToolCallMatch, '{"name": "f", "input": {"x": 1}}', CALL, 1),
    ("C6", ToolCallMatch, '{"name": "f", "parameters": {"x": 1}}', CALL, 1),
    ("C7", JsonMatch, 'Here: {"a":1}', {"a": 1}, 1),
    ("C7", JsonMatch, '```json\n{"a":1}\n``` Done.', {"a": 1}, 1),
    ("C7", JsonMatch, '<think>x</think>{"a":1}', {"a": 1}, 1),
    ("C7", JsonMatch, "{'a':1}", {"a": 1}, 1),
    ("C7", JsonMatch, '{"a":1,}', {"a": 1}, 1),
    ("N1", Numeric, "1.234,56", "1234.56", 1),
    ("N2", Numeric, "Answer: 7 (page 3)", "7", 1),
]


def test_a_reported_answer_has_its_right_score(subtests: pytest.Subtests) -> None:
    for number, metric, answer, label, right in SCORED:
        with subtests.test(number=number):
            found = metric("a")(Example("1", {"a": label}), {"a": answer}).value
            assert found == pytest.approx(right), (number, answer)


@pytest.mark.parametrize(
    ("answer", "finish", "grade"),
    [
        pytest.param("score: 3/5", "stop", 0.6, id="C8"),
        pytest.param('{"reasoning": "ok", "score": 8}', "stop", 0.8, id="C9"),
        pytest.param("score: 1", "length", None, id="C10"),
        pytest.param("<think>maybe score: 3", "length", None, id="C10-thoughts"),
    ],
)
def test_a_judges_answer_is_its_grade_or_a_failure(answer: str, finish: str, grade: float | None) -> None:
    async def lm(messages: Any, **settings: Any) -> Response:
        return Response(answer, finish).without_thoughts()

    asked = Judge("a")(Example("1", {}), {"a": "two"}, None, lm=lm)
    if grade is None:
        with pytest.raises(NodeError, match="no grade"):
            asyncio.run(asked)
    else:
        assert asyncio.run(asked).value == grade
