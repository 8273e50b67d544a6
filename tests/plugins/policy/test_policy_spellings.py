"""No spelling of a denied value passes: cases of a security review, and spellings that hypothesis makes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, strategies as st
from tests.helpers.policies import policy


def verdict(condition: Any, value: Any, *, name: str = "it", kind: str = "deny") -> str:
    rules = {"rules": [{kind: "pay", "when": {name: condition}}], "default": "deny" if kind == "allow" else "allow"}
    return policy(rules).verdict("pay", value if isinstance(value, dict) and name != "it" else {"it": value})[0]


def test_another_spelling_of_a_denied_value_is_denied(subtests: pytest.Subtests) -> None:
    for condition, value in [
        (5, 5.0),
        (5, "5.0"),
        (5, "5e0"),
        (5, " 5 "),
        (5, "0x5"),
        (5, "５"),
        (5, "five"),  # a tool may read words
        (5, [5]),
        ({"one_of": [100]}, 100.0),
        ({"one_of": [100]}, "1_00"),
        (True, "true"),
        (True, 1),
        (True, "Yes"),
        (False, "0"),
        ("true", True),
        ("5", 5.0),
        ("admin", ["admin"]),
        ("admin", "ADMIN"),
        ("admin", "\u200badmin"),
        ("admin", "ａｄｍｉｎ"),
        ("admin", '"admin"'),
        (None, "null"),
        (None, ""),
        ("null", None),
        ([1, 2], "[1, 2.0]"),
        ({"one_of": [{"a": 1}]}, '{"a": "1"}'),
        (5, "٥"),
        (5, "⑤"),
        (5, "50e-1"),
        ("admin", "%61dmin"),
        ("admin", '["admin"]'),
        ("admin", '{"name": "admin"}'),
        ("admin", '"\\u0061dmin"'),
        ("admin", "admin\0x"),
        ("admin", "adm\u0131n"),  # whose capital is an I
        ("admin", "ADM\u0130N"),
        ("admin", "ad\u115fmin"),
        ("admin", "ad\u3164min"),
        ("admin", "ad\u2800min"),
        ({"matches": "https://evil\\.org/.*"}, "https://evil%2eorg/x"),
        ({"matches": "rm .*"}, "rm -rf\0 harmless"),
        ({"one_of": [{"k": 1}]}, '{"k": 1, "k": 2}'),
        ({"one_of": [{"k": 1}]}, '{"k": 2, "k": 1}'),
        ({"matches": "rm .*"}, "r\u200bm -rf"),
        ({"matches": "rm .*"}, " RM -rf /\n"),
        ({"one_of": [{"user": "admin"}]}, {"user": "admin", "x": 1}),
        ([1], [1, 1]),
        ("admin", "&#97;dmin"),  # these: security 15
        ("admin", "&#x61;dmin"),
        ("admin", "\\u0061dmin"),
        ("admin", "\\x61dmin"),
        ("admin", "\\u{61}dmin"),
        ("a<b", "a&lt;b"),
        ({"matches": "rm .*"}, "rm\t-rf /"),
        ({"matches": "rm .*"}, "rm\u00a0-rf /"),
        ({"matches": "rm -rf .*"}, "rm\n-rf\r\t/"),
        ({"matches": "drop table .*"}, "drop&#32;table users"),
        ({"min": 1}, float("inf")),
        ({"max_length": 3}, {"text": "x" * 200}),
        ({"min": 100}, 10**400),
        ({"max": 100}, -(10**400)),
    ]:
        with subtests.test(condition=condition, value=value):
            assert verdict(condition, value) == "deny"


def test_what_is_surely_another_value_is_not_denied(subtests: pytest.Subtests) -> None:
    for condition, value in [
        (5, 5.5),
        (5, "6"),
        (5, 6),
        ("admin", "guest"),
        ("admin", 5),
        ("5", 6),
        (True, False),
        (True, "no"),
        (None, "x"),
        (None, 0),
        ([1, 2], [1, 3]),
        ({"max": 100}, 10**400),
        ({"matches": "rm .*"}, "ls"),
    ]:
        with subtests.test(condition=condition, value=value):
            assert verdict(condition, value) == "allow"


def test_a_nested_argument_is_found_in_texts_and_lists_and_doubt_denies(subtests: pytest.Subtests) -> None:
    for arguments in [
        {"opts": {"to": "evil"}},
        {"opts": json.dumps({"to": "evil"})},
        {"opts": [{"to": "ann"}, {"to": "evil"}]},
        {"opts": json.dumps([{"to": "evil"}])},
        {"opts": [json.dumps({"to": "EVIL"})]},
        {"opts": "to=evil"},
        {"opts": ["to=evil"]},
        {"opts": [{"to": "ann"}, 7]},
        {"opts": 7},
        {"opts.to": "evil"},
        {"opts": '{"to": "evil", "to": "ann"}'},
        {"opts": '{"to": "ann", "to": "evil"}'},
        {"opts": json.dumps(json.dumps({"to": "evil"}))},
        {"opts": "\ufeff" + json.dumps({"to": "evil"})},
        {"opts": "{'to': 'evil'}"},
        {"opts": "{" + '"a": {' * 2000},
    ]:
        with subtests.test(arguments=arguments):
            assert verdict("evil", arguments, name="opts.to") == "deny"


@pytest.mark.parametrize(
    "arguments", [{"opts": {"to": "ann"}}, {"opts": {}}, {"opts": None}, {}, {"opts": json.dumps({"to": "ann"})}]
)
def test_a_nested_argument_that_is_another_or_not_there_is_not_denied(arguments: dict[str, Any]) -> None:
    assert verdict("evil", arguments, name="opts.to") == "allow"


@pytest.mark.parametrize("opts", ['{"to": "ann"}', [{"to": "ann"}], "ann", 1])
def test_a_permission_is_given_for_an_object_alone(opts: Any) -> None:
    assert verdict("ann", {"opts": opts}, name="opts.to", kind="allow") == "deny"
    assert verdict("ann", {"opts": {"to": "ann"}}, name="opts.to", kind="allow") == "allow"


scalars = st.integers(-(10**6), 10**6) | st.booleans() | st.text("abcXYZ019", min_size=1, max_size=6) | st.none()


def spellings(value: Any) -> st.SearchStrategy[Any]:
    texts = st.sampled_from(
        [str(value), f" {value} ", str(value).upper(), str(value).lower(), f'"{value}"', f"{value}\u200d"]
    )
    ways = [texts, st.just([value]), st.just({"v": value}), st.just(value)]
    if isinstance(value, int):
        ways.append(st.sampled_from([float(value), f"{value}.0", f"{value}e0", f"{value}.000", hex(value)]))
    if isinstance(value, bool):
        ways.append(st.sampled_from([int(value), str(int(value)), json.dumps(value)]))
    if value is None:
        ways = [st.sampled_from([None, "null", "None", "", " NULL ", [None]])]
    return st.one_of(ways)


@given(st.data(), scalars)
def test_no_spelling_passes_a_deny(data: st.DataObject, wanted: Any) -> None:
    spelled = data.draw(spellings(wanted))
    assert verdict({"one_of": [wanted]}, spelled) == "deny"
    assert verdict({"one_of": ["zzz", wanted]}, spelled) == "deny"


@given(scalars, scalars)
@example(1, True)
@example(False, 0)
def test_a_permission_is_never_given_by_another_spelling(wanted: Any, value: Any) -> None:
    allowed = verdict({"one_of": [wanted]}, value, kind="allow") == "allow"
    assert allowed == (type(wanted) is type(value) and wanted == value)


def test_a_permission_by_a_pattern_is_for_one_line() -> None:
    assert verdict({"matches": "/tmp/.*"}, "/tmp/a", kind="allow") == "allow"
    assert verdict({"matches": "/tmp/.*"}, "/tmp/a\n/etc", kind="allow") == "deny"
    assert verdict({"matches": "/tmp/.*"}, "/TMP/a", kind="allow") == "deny"


@pytest.mark.parametrize(
    ("condition", "value"),
    [({"min": 1}, float("inf")), ({"max": 1}, float("-inf")), ({"max_length": 3}, {"text": "x" * 200})],
)
def test_a_permission_is_for_numbers_and_for_texts_and_lists(condition: Any, value: Any) -> None:
    """security 15: what a reader of the rule would not expect to be allowed."""
    assert verdict(condition, value, kind="allow") == "deny"
    assert verdict(condition, [1] if "max_length" in condition else 1, kind="allow") == "allow"


@pytest.mark.parametrize("value", ["%2561dmin", "admin/", "YWRtaW4=", "a.dmin", "&amp;#97;dmin"])
def test_what_is_encoded_twice_or_named_otherwise_is_another_value(value: str) -> None:
    """As docs/security.md says: a rule that must hold for these, too, names what is allowed."""
    assert verdict("admin", value) == "allow" and verdict("admin", value, kind="allow") == "deny"
