"""Conditions of rules over tool calls: a denial holds in doubt, and what nothing meets is found."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from tests.helpers.policies import policy

from workbench.spec import Condition
from workbench_policy.rules import may_hold


@pytest.mark.parametrize(
    ("rule", "arguments"),
    [
        ({"cmd": {"matches": "rm .*"}}, {"cmd": "rm -rf /\n"}),
        ({"cmd": {"matches": "rm .*"}}, {"cmd": ["rm -rf /"]}),
        ({"amount": {"min": 100}}, {"amount": "500"}),
        ({"amount": {"min": 100}}, {"amount": float("nan")}),
        ({"amount": {"min": 100}}, {"amount": 100}),
        ({"to": "5"}, {"to": 5}),
        ({"to": {"one_of": ["mallory"]}}, {"to": " mallory "}),
        ({"to.name": "mallory"}, {"to.name": "ann", "to": {"name": "mallory"}}),
        ({"text": {"max_length": 3}}, {"text": 7}),
    ],
)
def test_a_denial_is_not_got_round_by_another_type(rule: dict, arguments: dict) -> None:
    assert policy({"rules": [{"deny": "x", "when": rule}]}).verdict("x", arguments)[0] == "deny"


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["a", "A", "5", '"a"', "", "b"])
VALUES |= st.lists(VALUES, max_size=2) | st.dictionaries(st.sampled_from("ab"), VALUES, max_size=2)
PARTS = {
    "one_of": st.lists(VALUES, max_size=3),
    "matches": st.sampled_from(["a", "[0-9]+", ".*", ""]),
    "min": st.integers(-3, 6),
    "max": st.integers(-3, 6),
    "max_length": st.integers(0, 2),
}


@given(st.fixed_dictionaries({}, optional=PARTS).filter(bool), VALUES)
def test_what_surely_holds_may_hold_and_all_parts_must(parts: dict[str, object], value: object) -> None:
    whole, each = Condition(**parts), [Condition(**{name: part}) for name, part in parts.items()]
    assert whole.surely_holds(value) == all(one.surely_holds(value) for one in each)
    assert may_hold(whole, value) == all(may_hold(one, value) for one in each)
    assert may_hold(whole, value) or not whole.surely_holds(value)


#: No engine is fast on it where the text has small letters alone.
SLOW = "(([a-z])+.)+[A-Z]([a-z])+"


def test_a_search_that_takes_too_long_denies_and_allows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """security 4: in doubt the rule that denies applies, and the one that allows does not."""
    monkeypatch.setattr("workbench.spec.patterns.SECONDS", 0.05)
    for verdict, text, expected in (
        ("deny", "a" * 4000, "deny"),
        ("allow", "a" * 4000, "ask"),
        ("deny", "abcXyz", "deny"),
        ("allow", "abcXyz", "allow"),
    ):
        rules = {"default": "ask", "rules": [{verdict: "pay", "when": {"to": {"matches": SLOW}}}]}
        assert policy(rules).verdict("pay", {"to": text})[0] == expected


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ({"min": 3, "max": 2}, "no number is at least 3 and at most 2"),
        ({"min": 3, "max": 3}, None),
        ({"one_of": []}, "`one_of` lists nothing"),
        ({"matches": "a$b"}, "nothing matches 'a$b'"),
        ({"matches": "a{3,}", "max_length": 2}, "longer than a max_length of 2"),
        ({"matches": "a{3,}", "max_length": 3}, None),
        ({"matches": "[0-9]+", "one_of": ["all"]}, "'all' does not match '[0-9]+'"),
        ({"matches": "[0-9]+", "one_of": ["all", 3]}, None),
        ({"matches": SLOW, "one_of": ["a" * 4000]}, None),  # takes too long to say
    ],
)
def test_a_condition_that_nothing_meets_is_known(condition: dict[str, object], why: str | None) -> None:
    rule = policy({"rules": [{"deny": "pay", "when": {"to": condition}}]}).rules[0]
    found = dict(rule.impossible()).get("to")
    assert (found is None) if why is None else (found is not None and why in found)
