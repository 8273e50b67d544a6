"""Siblings of the inputs of metrics that users reported (C): other labels, other forms of calls."""

from __future__ import annotations

import pytest

from workbench.task import Example
from workbench_metrics.numbers import Numeric
from workbench_metrics.structured import JsonMatch, ToolCallMatch
from workbench_metrics.text import Contains, ExactMatch, NormalizedMatch

CALL = [{"name": "f", "arguments": {"x": 1}}]


def test_a_sibling_is_scored_as_it_is_meant(subtests: pytest.Subtests) -> None:
    for metric, answer, label, right in [
        (ExactMatch, "caf\u00e9", "cafe\u0301", 1),
        (ExactMatch, "a\r\nb", "a\nb", 1),
        (NormalizedMatch, "3,14", "314", 0),
        (NormalizedMatch, "1,000", "1000", 1),
        (NormalizedMatch, "1/2", "12", 0),
        (NormalizedMatch, "10:30", "1030", 0),
        (NormalizedMatch, "5\u20137", "57", 0),
        (NormalizedMatch, "5\u20137", "5-7", 1),
        (NormalizedMatch, "\u20135", "5", 0),
        (NormalizedMatch, "<5", ">5", 0),
        (NormalizedMatch, "O-", "O", 0),
        (Contains, "파리입니다", "파리", 1),
        (Contains, "straße", "STRASSE", 1),
        (Contains, "don\u2019t", "don't", 1),
        (Contains, "5/7", "5", 0),
        (Contains, "\u20135", "5", 0),
        (Numeric, "1 000", "1000", 1),
        (JsonMatch, "{a:1}", {"a": 1}, 1),
        (JsonMatch, '"{\\"a\\":1}"', {"a": 1}, 1),
        (JsonMatch, 'Sure. See [1]. {"a":1}', {"a": 1}, 1),
        (JsonMatch, '{"a":1 /* c */}', {"a": 1}, 1),
        (ToolCallMatch, None, [], 1),
        (ToolCallMatch, "See [1].", [], 1),
        (ToolCallMatch, '{"tool_calls": null, "content": "hi"}', [], 1),
        (ToolCallMatch, "[f(x=1)]", CALL, 1),
        (ToolCallMatch, "[f(x=1), f(x=1)]", CALL * 2, 1),
        (ToolCallMatch, "f(x=1)\nf(x=1)", CALL * 2, 1),
        (ToolCallMatch, "f(x=1)", CALL * 2, 0),
        (ToolCallMatch, "f(x=1)", [], 0),
        (ExactMatch, ["a", "b"], '["a", "b"]', 1),
        (ExactMatch, ["a", "b"], "['b', 'a']", 0),
        (ExactMatch, {"a": 1}, '{"a": 1}', 1),
        (ExactMatch, ["a"], "a", 0),
        (NormalizedMatch, "2^3", "23", 0),
        (NormalizedMatch, "x<y", "xy", 0),
        (Contains, "C++", "C", 0),
        (Contains, "It is C#.", "C", 0),
        (Contains, "It is C.", "C", 1),
        (ToolCallMatch, '<tool_call>{"name":"f","arguments":{"x":1}}</tool_call>' * 2, CALL * 2, 1),
        (ToolCallMatch, 'call: {"tool":"f","arguments":{"x":1}}', CALL, 1),
        (ToolCallMatch, '{"functionCall":{"name":"f","args":{"x":1}}}', CALL, 1),
        (ToolCallMatch, '{"function":"f","arguments":{"x":1}}', CALL, 1),
        (ToolCallMatch, '{"action":"f","action_input":{"x":1}}', CALL, 1),
        (ToolCallMatch, '{"name":"functions.f","arguments":{"x":1}}', CALL, 1),
        (ToolCallMatch, "<function=f>\n<parameter=x>\n1\n</parameter>\n</function>", CALL, 1),
    ]:
        with subtests.test(metric=metric):
            assert metric("a")(Example("1", {"a": label}), {"a": answer}).value == right
