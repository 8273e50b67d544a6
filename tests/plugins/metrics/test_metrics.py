"""Metrics that compare fields, against references that are written here."""

from __future__ import annotations

import re
import string
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings, strategies as st

import workbench.task.metric as metric_module
from workbench.errors import NodeError
from workbench.plugins import plugins
from workbench.task import Example, Score
from workbench_metrics.numbers import Numeric


def score(call: str, given, wanted, **options) -> Score:
    """The score of a metric written as in a workflow file."""
    name, args, named = metric_module.parse_call(call)
    metric = plugins().get("metrics", name)(*(args or ["x"]), **named, **options)
    found = metric(Example("1", {"x": wanted}), {"x": given}, None)
    assert isinstance(found, Score) and 0 <= found.value <= 1
    assert (found.value == 1) == (found.feedback is None), "whatever is not right is explained"
    return found


def value(call: str, given, wanted, **options) -> float:
    return score(call, given, wanted, **options).value


FIELD_METRICS = ["exact_match", "normalized_match", "contains", "f1", "numeric", "json_match", "tool_call_match"]


def test_all_metrics_are_registered_and_documented():
    assert {*FIELD_METRICS, "judge", "python"} <= set(plugins().names("metrics"))
    for name in plugins().names("metrics"):
        assert len(plugins().get("metrics", name).__doc__) > 40


@pytest.mark.parametrize("name", FIELD_METRICS)
def test_missing_fields_are_faults_that_are_named(name):
    metric = plugins().get("metrics", name)("answer", target="labels.text")
    with pytest.raises(ValueError, match="prediction has no field 'answer'; it has: reply"):
        metric(Example("1", {"labels": {"text": "1"}}), {"reply": "1"}, None)
    with pytest.raises(NodeError, match="row has no field 'labels.text'; it has: labels"):
        metric(Example("1", {"labels": {}}), {"answer": "1"}, None)
    with pytest.raises(ValueError, match="name the field"):
        plugins().get("metrics", name)("")


def test_target_names_another_field():
    name, args, options = metric_module.parse_call("exact_match(answer, target=labels.text)")
    metric = plugins().get("metrics", name)(*args, **options)
    assert metric(Example("1", {"labels": {"text": "b"}, "answer": "c"}), {"answer": "b"}, None) == Score(1.0)


def test_exact_match(subtests):
    for answer, wanted, right in [
        ("tech", "tech", True),
        (" tech\n", "tech", True),
        ("Tech", "tech", False),
        ("b", ["a", "b"], True),
        ("c", ["a", "b"], False),
        ("1", 1, True),
        (1.0, 1, True),
        ("True", True, True),
        (False, "false", True),
        (True, 1, True),
        ([1, 2], [1, 2], True),
        ([2, 1], [1, 2], False),
        (None, None, True),
        (None, "x", False),
        ({"a": 1}, {"a": 1}, True),
        ("", [], False),
    ]:
        with subtests.test(answer=answer):
            assert value("exact_match", answer, wanted) == right


def test_feedback_is_short_and_says_what_was_expected():
    assert score("exact_match", "tech", "billing").feedback == "expected 'billing', got 'tech'"
    assert len(score("exact_match", "x" * 5000, "y" * 5000).feedback or "") < 300


@pytest.mark.parametrize(
    ("given", "wanted", "right"),
    [
        ("The answer is Paris.", "paris", True),
        ("comparison", "paris", False),
        ("3.14", "3", False),
        ("1,300", "300", False),
        ("It is 3.", "3", True),
        ("use C++ here", "c++", True),
        ("_yes_", "yes", True),
        ("我在巴黎吃饭", "巴黎", True),
        ("nothing", ["no", "nothing"], True),
        ("a (b) c", "(b)", True),
    ],
)
def test_contains(given, wanted, right):
    assert value("contains", given, wanted) == right


def test_contains_nothing_is_a_fault_of_the_row():
    with pytest.raises(NodeError, match="'x' cannot be read: every text contains an empty one"):
        value("contains", "anything", " ")


def squad_normal(text: str) -> list[str]:
    """The recipe of SQuAD, word by word."""
    kept = "".join(" " if c.isspace() else c for c in text.lower() if c not in string.punctuation)
    words = re.split(r"\b(?:a|an|the)\b", kept)
    return " ".join(words).split()


def squad_f1(given: str, wanted: str) -> Fraction:
    a, b = squad_normal(given), squad_normal(wanted)
    if not a or not b:
        return Fraction(a == b)
    left, common = list(b), 0
    for word in a:
        if word in left:
            left.remove(word)
            common += 1
    return Fraction(2 * common, len(a) + len(b))


texts = st.lists(
    st.sampled_from(["The", "a", "an", "cat", "Cat,", "sat!", "on", "x-y", " ", "...", "the_end"]), max_size=7
)


@settings(max_examples=300, deadline=None)
@given(texts.map(" ".join), texts.map(" ".join))
def test_f1_and_normalized_match_against_the_reference(given, wanted):
    assume(squad_normal(given) and squad_normal(wanted))  # an answer that is an article alone is one
    assert value("f1", given, wanted) == pytest.approx(float(squad_f1(given, wanted)))
    assert value("normalized_match", given, wanted) == (squad_normal(given) == squad_normal(wanted))


def test_f1_takes_the_best_of_several_answers():
    assert value("f1", "in the big city", ["town", "big city"]) == pytest.approx(0.8)


def test_the_number_of_an_answer(subtests):
    for text, number in [
        ("The answer is 42.", 42),
        ("#### 1,234,567", 1234567),
        ("-$3.50", -3.5),
        ("$-3.50", -3.5),
        ("a = −7", -7),
        ("3/4", 0.75),
        ("3 / 4", 0.75),
        ("12%", 12),
        ("1e3", 1000),
        (".5", 0.5),
        ("5-10", None),
        ("1, 2, 3", None),
        ("1,2,3", None),
        ("4 of CO2", 4),
        ("7 in v1.2", 7),
        ("\\boxed{8}", 8),
        ("**9**", 9),
        ("_6_", 6),
        ("so...5", 5),
        ("10kg", 10),
        ("none", None),
        ("", None),
        ("1/0", None),
        (True, None),
        (3, 3),
        (2.5, 2.5),
        ("x=-5", -5),
        ("12,3456", 12.3456),
        ("9 3/45.5", None),
        ("+4", 4),
        (10**400, None),
        (None, None),
        ("is.5", 5),
    ]:
        with subtests.test(text=text):
            assert Numeric("x")._number(text) == number


@settings(max_examples=200, deadline=None)
@given(st.decimals(-(10**9), 10**9, places=2), st.sampled_from(["{:,}", "{}", "It is {:,}.", "${:,}", "1 + 1 = {}!"]))
def test_numbers_as_python_writes_them_are_read_back(number, pattern):
    assert Numeric("x")._number(pattern.format(number)) == float(number)


def test_numeric_tolerances():
    assert value("numeric", "0.3", 0.1 + 0.2) == 1
    assert value("numeric", "101", "100") == 0 and value("numeric(x, rel=0.01)", "101", "100") == 1
    assert value("numeric", "5.4", 5) == 0 and value("numeric(x, abs=0.5)", "5.4", 5) == 1
    assert value("numeric", "50%", "0.5") == 0 and value("numeric(x, percent=True)", "50%", "0.5") == 1
    assert value("numeric", "3", [2, 3]) == 1
    assert score("numeric", "it is 4", "5").feedback == "expected 5, got 4"
    assert "no number" in (score("numeric", "four", "5").feedback or "")
    assert value("numeric", "1" * 400, "5") == 0
    for wrong in ("five", float("nan")):
        with pytest.raises(NodeError, match="row's 'x' cannot be read: there is no number"):
            value("numeric", "5", wrong)


def test_a_label_may_store_a_truth_value_as_a_number_or_a_word(subtests):
    for metric in ("exact_match", "normalized_match", "json_match"):
        for label in (1, 1.0, "1", "1.0", "True", "yes", "YES", "y", True):
            with subtests.test(metric=metric, label=label):
                assert (value(metric, True, label), value(metric, False, label)) == (1, 0)
        for label in (0, 0.0, "0", "0.0", "false", "No", "n", False):
            with subtests.test(metric=metric, label=label):
                assert (value(metric, False, label), value(metric, True, label)) == (1, 0)
    for label in (2, -1, "spam", "", "10"):
        assert value("exact_match", True, label) == value("exact_match", False, label) == 0
    assert value("exact_match", 1, True) == 0


def test_json_match(subtests):
    for answer, wanted, whole, partial in [
        ('{"a": 1, "b": [1, 2]}', {"b": [1, 2], "a": 1.0}, 1, 1),
        ('```json\n{"a": 1}\n```', {"a": 1}, 1, 1),
        ({"a": 1, "b": [1, 2]}, '{"a": 1, "b": [1, 3]}', 0, 2 / 3),
        ({"a": True}, {"a": 1}, 0, 0),
        ({"a": []}, {"a": {}}, 0, 0),
        ({"a": 1}, {"a": 1, "b": 2, "c": None, "d": {}}, 0, 1 / 4),
        ({"a": 1, "b": 2}, {"a": 1}, 0, 1 / 2),
        ([1, 2, 3], [1, 2], 0, 2 / 3),
        ([1, 2], [1, 2], 1, 1),
        ("no json", {"a": 1}, 0, 0),
        ("[" * 100_000, {"a": 1}, 0, 0),
        ("[" * 400 + "]" * 400, {"a": 1}, 0, 0),
        ("9" * 5000, {"a": 1}, 0, 0),
    ]:
        with subtests.test(answer=answer):
            assert value("json_match", answer, wanted) == whole
            assert value("json_match(x, partial=True)", answer, wanted) == pytest.approx(partial)


@pytest.mark.parametrize("call", ["json_match", "tool_call_match"])
def test_a_label_that_is_no_json_is_a_fault_of_the_row(call):
    with pytest.raises(NodeError, match="row's 'x' cannot be read") as told:
        value(call, "{}", "billing")
    assert told.value.kind == "data" and told.value.field == "x"


def f(**arguments):
    return {"name": "f", "arguments": arguments}


def test_tool_call_match(subtests):
    for answer, wanted, any_order, in_order in [
        (f(x=1), f(x=1), 1, 1),
        ('{"name": "f", "arguments": "{\\"x\\": 1}"}', f(x=1), 1, 1),
        ([{"type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}], f(x=1), 1, 1),
        ([f(x=1)], [{"f": {"x": [1, 2]}}], 1, 1),
        ([f(x=3)], [{"f": {"x": [1, 2]}}], 0, 0),
        (f(city=" Paris "), f(city="paris"), 1, 1),
        (f(x=True), f(x=1), 0, 0),
        (f(x=1, y=2), f(x=1), 0, 0),
        (f(x=1), f(x=1, y=2), 0, 0),
        (f(x=1), f(x=1, y=[2, ""]), 1, 1),
        (f(x=[1, 2]), f(x=[1, 2]), 1, 1),
        (f(x={"a": 1}), f(x=[{"a": [1, 2]}]), 1, 1),
        (f(x={"a": 3}), f(x=[{"a": [1, 2]}]), 0, 0),
        ([f(x=2), f(x=1)], [f(x=1), f(x=2)], 1, 0),
        ([f(x=1), f(x=2)], [f(x=[1, 2]), f(x=[1])], 1, 0),
        ([f(x=1), f(x=1)], [f(x=1), f(x=2)], 0, 0),
        ([f(x=1)], [f(x=1), f(x=1)], 0, 0),
        ([], [], 1, 1),
        ([f()], [], 0, 0),
        ({"name": "g", "arguments": {}}, f(), 0, 0),
        ({"name": "f", "arguments": None}, f(), 1, 1),
        ({"name": "f", "arguments": [1]}, f(), 0, 0),
        ("f(x=1)", f(x=1), 1, 1),
        ([1], f(x=1), 0, 0),
    ]:
        with subtests.test(answer=answer):
            assert value("tool_call_match", answer, wanted) == any_order
            assert value("tool_call_match(x, ordered=True)", answer, wanted) == in_order


def test_tool_call_feedback_names_the_missing_call():
    assert (score("tool_call_match", [f(x=1)], [f(x=2)]).feedback or "").startswith("expected f({'x': 2}), got")
    assert "expected 2 call(s), got 1" in (score("tool_call_match", [f(x=1)], [f(x=1), f(x=2)]).feedback or "")


@pytest.mark.parametrize("name", ["exact_match", "normalized_match", "contains", "f1", "numeric", "json_match"])
def test_nothing_is_right_where_the_label_is_nothing_and_is_no_word(name: str) -> None:
    """A function node has no types, so its label is as the table spells it."""
    metric = plugins().get("metrics", name)("a")
    for label, right in ((None, 1.0), ("", 1.0), ("NULL", 1.0), ("NaN", 1.0)):
        assert metric(Example("1", {"a": label}), {"a": None}).value == right, label
    label = {"numeric": "1", "json_match": '"none of them"'}.get(name, "none of them")
    assert metric(Example("1", {"a": label}), {"a": None}).value == 0.0
    assert metric(Example("1", {"a": None}), {"a": "none of them"}).value == 0.0
