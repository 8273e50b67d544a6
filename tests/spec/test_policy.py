"""Rules over tool calls: what decides, where, and that no patch gets around them."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from tests.helpers.policies import LIMITED, policy

from workbench.spec.policy import Condition


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
    assert whole.may_hold(value) == all(one.may_hold(value) for one in each)
    assert whole.may_hold(value) or not whole.surely_holds(value)


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
    found = rule.when["to"].impossible()
    assert (found is None) if why is None else (found is not None and why in found)
