"""Rules over tool calls: what decides, where, and that no patch gets around them."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from tests.helpers.policies import LIMITED, policy


@pytest.mark.parametrize(
    ("tool", "arguments", "verdict"),
    [
        ("send_money", {"to": "ann", "amount": 100}, "allow"),
        ("send_money", {"to": "ann", "amount": 101}, "ask"),
        ("send_money", {"to": "ann", "amount": 1001}, "deny"),
        ("send_money", {"to": "mallory", "amount": 1}, "deny"),
        ("send_money", {"to": "ann; rm", "amount": 1}, "ask"),  # the text as a whole must match
        ("send_money", {"amount": 1}, "ask"),  # an argument that is not there meets no condition
        ("send_money", {"to": "ann", "amount": "1"}, "ask"),  # text is no number: surely none that is allowed
        ("send_money", {"to": "ann", "amount": True}, "ask"),
        ("read", {"file": {"path": "/tmp/a"}}, "allow"),
        ("read", {"file": {"path": "/tmp/b"}}, "deny"),
        ("read", {"file": "/tmp/a"}, "deny"),
        ("Send_money", {"to": "ann", "amount": 1}, "deny"),  # names are told apart by case
    ],
)
def test_the_first_rule_that_counts_decides(tool: str, arguments: dict, verdict: str) -> None:
    assert policy(LIMITED).verdict(tool, arguments)[0] == verdict


@pytest.mark.parametrize(
    ("rule", "arguments"),
    [
        ({"amount": {"max": 10}}, {"amount": "1"}),
        ({"amount": {"max": 10}}, {"amount": float("nan")}),
        ({"amount": {"max": 10}}, {"amount": True}),
        ({"to.amount": {"max": 10}}, {"to.amount": 1, "to": {"amount": 1000}}),
        ({"to": 5}, {"to": "5"}),
        ({"to": 1}, {"to": True}),
        ({"to": {"matches": "[a-z]+"}}, {"to": "ann\n"}),
        ({"to": 5}, {}),
    ],
)
def test_a_permission_must_hold_surely(rule: dict, arguments: dict) -> None:
    given = policy({"default": "deny", "rules": [{"allow": "x", "when": rule}]})
    assert given.verdict("x", arguments)[0] == "deny"


@pytest.mark.parametrize(
    ("condition", "inside", "outside"),
    [
        ({"min": 2}, 2, 1.9),
        ({"max": 2}, 2.0, 2.1),
        ({"max_length": 3}, "abc", "abcd"),
        ({"max_length": 1}, [1], [1, 2]),
    ],
)
def test_a_bound_is_itself_allowed(condition: dict, inside: object, outside: object) -> None:
    given = policy({"default": "deny", "rules": [{"allow": "x", "when": {"it": condition}}]})
    assert given.verdict("x", {"it": inside})[0] == "allow" and given.verdict("x", {"it": outside})[0] == "deny"


@given(st.text(max_size=8), st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3))
def test_without_rules_all_is_allowed_and_a_rule_for_everything_hides_what_follows(tool: str, arguments: dict) -> None:
    assert policy({}).verdict(tool, arguments) == ("allow", "")
    assert policy({"rules": [{"deny": "*", "why": "w"}, {"allow": "*"}]}).verdict(tool, arguments) == ("deny", "w")
