"""Formulas about the past: against their definition, and what is wrong with one that cannot be read."""

from __future__ import annotations

import random
from typing import Any

import pytest

from workbench.spec import PolicySpec
from workbench_policy.past import names_in, parse_formula

NAMES = ("a", "b", "c")


def draw(rng: random.Random, depth: int) -> tuple[str, Any]:
    """A random formula as text and as a tree."""
    kind = rng.choice(("name", "!", "H", "O", "Y", "&", "|", "->", "S")) if depth else "name"
    if kind == "name":
        name = rng.choice(NAMES)
        return name, ("name", name)
    left = draw(rng, depth - 1)
    if kind in "!HOY":
        return f"{kind}({left[0]})", (kind, left[1])
    right = draw(rng, depth - 1)
    return f"({left[0]}) {kind} ({right[0]})", (kind, left[1], right[1])


def holds(tree: Any, calls: list[str], at: int) -> bool:
    """The textbook's definition, position by position; at: from 0."""
    kind = tree[0]
    if kind == "name":
        return calls[at] == tree[1]
    if kind == "!":
        return not holds(tree[1], calls, at)
    if kind == "H":
        return all(holds(tree[1], calls, k) for k in range(at + 1))
    if kind == "O":
        return any(holds(tree[1], calls, k) for k in range(at + 1))
    if kind == "Y":
        return at > 0 and holds(tree[1], calls, at - 1)
    left, right = tree[1:]
    if kind == "S":
        return any(
            holds(right, calls, k) and all(holds(left, calls, j) for j in range(k + 1, at + 1)) for k in range(at + 1)
        )
    one, two = holds(left, calls, at), holds(right, calls, at)
    return {"&": one and two, "|": one or two, "->": not one or two}[kind]


def test_a_formula_means_what_its_definition_says() -> None:
    rng = random.Random(1)
    for _ in range(400):
        text, tree = draw(rng, 3)
        calls = [rng.choice(NAMES) for _ in range(rng.randrange(1, 7))]
        assert parse_formula(text)(calls) == holds(tree, calls, len(calls) - 1), (text, calls)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("a -> b -> c", "a -> (b -> c)"),
        ("a | b & c", "a | (b & c)"),
        ("!a S b", "(!a) S b"),
        ("H a -> b", "(H a) -> b"),
        ("a & b S c", "a & (b S c)"),
    ],
)
def test_what_binds_first(text: str, same: str) -> None:
    rng = random.Random(2)
    for _ in range(60):
        calls = [rng.choice(NAMES) for _ in range(rng.randrange(1, 6))]
        assert parse_formula(text)(calls) == parse_formula(same)(calls), calls


def test_names_may_be_patterns() -> None:
    assert parse_formula("H(send_* -> O(login))")(["login", "send_mail"])
    assert not parse_formula("H(send_* -> O(login))")(["send_mail"])
    assert names_in("H(send_* -> O(log-in))") == ["send_*", "log-in"]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"formula": "H(a -> "}, "it breaks off"),
        ({"formula": "H(a -> O(b)"}, "a parenthesis is not closed"),
        ({"formula": "a b"}, "'b' stands where the formula should have ended"),
        ({"formula": "a $ b"}, "is no part of a formula"),
        ({"formula": "-> a"}, "a tool's name is missing before '->'"),
        ({"formula": "(" * 60 + "a" + ")" * 60}, "nested at most 50 deep"),
        ({"formula": "a", "after": "b"}, "a formula stands alone"),
        ({"formula": "a", "deny": "b"}, "exactly one of allow, deny, ask, formula"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said(rule: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PolicySpec.model_validate({"rules": [rule]})
