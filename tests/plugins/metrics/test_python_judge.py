"""Metrics that are functions of one's own, and the metric that asks a language model."""

from __future__ import annotations

import asyncio
import inspect
import textwrap
from types import SimpleNamespace

import numpy as np
import pytest

from workbench.errors import NodeError, SpecError
from workbench.lm import Response
from workbench.task import Example, Score
from workbench_metrics.function import FunctionMetric, load_function
from workbench_metrics.judge import Judge

ROW = Example("1", {"q": "1+1", "a": 2})


@pytest.fixture
def write(tmp_path):
    def write(code: str, name: str = "metrics.py"):
        (tmp_path / name).write_text(textwrap.dedent(code))
        return tmp_path

    return write


def test_a_file_beside_the_workflow(write):
    base = write("def near(example, prediction): return abs(example['a'] - prediction['a']) < 1, 'words'")
    assert load_function("metrics.py:near", base)(ROW, {"a": 2}) == Score(1.0, "words")
    assert load_function("metrics:near", base)(ROW, {"a": 4}) == Score(0.0, "words"), "without .py, too"


def test_an_installed_module(tmp_path):
    assert load_function("operator:eq", tmp_path)(ROW, {"a": 1}) == Score(0.0)


def test_two_files_of_one_name_stay_apart(tmp_path):
    for number in (0, 1):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "m.py").write_text(f"def f(example): return {number}")
    found = [load_function("m.py:f", tmp_path / str(n))(ROW, {}) for n in (0, 1)]
    assert found == [Score(0.0), Score(1.0)]


def test_dataclasses_work_in_the_file(write):
    base = write(
        """
        from __future__ import annotations
        from dataclasses import dataclass
        @dataclass
        class Rule:
            best: float
        def f(trace): return Rule(0.5).best
        """
    )
    assert load_function("metrics.py:f", base)(ROW, {}) == Score(0.5)


@pytest.mark.parametrize(
    ("code", "message", "line"),
    [
        ("x = 1\ndef f(:\n", "invalid syntax", 2),
        ("x = 1\n\ny = 1 / 0\n", "ZeroDivisionError", 3),
        ("import sys\nsys.exit(3)\n", "SystemExit", 2),
        ("import no_such_module_anywhere\n", "no_such_module_anywhere", 1),
    ],
)
def test_errors_of_the_file_name_file_and_line(write, code, message, line):
    base = write(code)
    with pytest.raises(SpecError, match=message) as caught:
        load_function("metrics.py:f", base)
    assert caught.value.message.startswith(f"{base / 'metrics.py'}:{line}:"), "load_metric keeps the message alone"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("address", "message", "hint"),
    [
        ("metrics.py", "names no function", "python:metrics.py:function"),
        ("metrics.py:neer", "no function 'neer'", "Did you mean 'near'?"),
        ("metric.py:near", "no file", "Did you mean 'metrics.py'?"),
        ("no_such_module_anywhere:f", "cannot be imported", "relative to the workflow file"),
        ("metrics.py:four", "needs 4 arguments", "def metric(example, prediction, trace)"),
        ("metrics.py:keyword", "has parameters that a metric does not receive", "example, prediction and trace"),
    ],
)
def test_wrong_addresses(write, address, message, hint):
    base = write("def near(): return 1\ndef four(a, b, c, d): pass\ndef keyword(*, strict): pass")
    with pytest.raises(SpecError, match=message) as caught:
        load_function(address, base)
    assert hint in (caught.value.hint or "")


def seen(function):
    """What a function was given, by the names e, p and t."""
    names = {id(ROW): "e", id(PREDICTION): "p", id(TRACE): "t"}
    calls = []

    def record(*values):
        calls.extend(names.get(id(v), v) for v in values)
        return 1.0

    FunctionMetric(function(record), "m:f")(ROW, PREDICTION, TRACE)
    return calls


PREDICTION, TRACE = {"a": 2}, SimpleNamespace(spans=[])


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda r: lambda example, prediction, trace: r(example, prediction, trace), ["e", "p", "t"]),
        (lambda r: lambda prediction, example: r(prediction, example), ["p", "e"]),
        (lambda r: lambda trace: r(trace), ["t"]),
        (lambda r: lambda gold, pred, trace=None: r(gold, pred, trace), ["e", "p", "t"]),
        (lambda r: lambda gold, pred, trace=None, pred_name=None, pred_trace=None: r(gold, pred_name), ["e", None]),
        (lambda r: lambda x, y: r(x, y), ["e", "p"]),
        (lambda r: lambda x, y, z: r(x, y, z), ["e", "p", "t"]),
        (lambda r: lambda *all_: r(*all_), ["e", "p", "t"]),
        (lambda r: lambda example, strict=True, prediction=None: r(example, strict, prediction), ["e", True, "p"]),
        (lambda r: lambda example, *, trace: r(example, trace), ["e", "t"]),
        (lambda r: lambda x, y, strict=True: r(x, y, strict), ["e", "p", True]),
    ],
)
def test_arguments_by_name_or_by_position(function, expected):
    assert seen(function) == expected


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (True, Score(1.0)),
        (0.25, Score(0.25)),
        (np.float32(0.5), Score(0.5)),
        (np.bool_(True), Score(1.0)),
        ((0.5, "half"), Score(0.5, "half")),
        ((1, None), Score(1.0)),
        (Score(0.1, "x"), Score(0.1, "x")),
        ({"score": 1, "feedback": "good"}, Score(1.0, "good")),
        ({"score": 0}, Score(0.0)),
        (SimpleNamespace(score=0.5, feedback="dspy"), Score(0.5, "dspy")),
    ],
)
def test_what_a_function_may_return(returned, expected):
    assert FunctionMetric(lambda example: returned, "m:f")(ROW, {}) == expected


@pytest.mark.parametrize("returned", [None, "0.5", {"value": 1}, (1, 2, 3), [1]])
def test_what_it_may_not_return(returned):
    with pytest.raises(TypeError, match="a metric"):
        FunctionMetric(lambda example: returned, "m:f")(ROW, {})


def test_coroutine_functions():
    async def later(example, prediction):
        await asyncio.sleep(0)
        return 0.5, "later"

    value = FunctionMetric(later, "m:f")(ROW, {})
    assert inspect.isawaitable(value)

    async def wait():
        return await value

    assert asyncio.run(wait()) == Score(0.5, "later")


def judged(answer: str, prediction=None, row=ROW, trace=None, **options) -> tuple[Score, list]:
    calls = []

    async def lm(messages, **settings):
        calls.append((messages, settings))
        return Response(answer)

    return asyncio.run(Judge(**options)(row, {"a": "two"} if prediction is None else prediction, trace, lm=lm)), calls


@pytest.mark.parametrize(
    ("answer", "value", "feedback"),
    [
        ("Good work.\nscore: 8", 0.8, "Good work."),
        ("Fine.\n**Score:** 10", 1.0, "Fine."),
        ("Bad. SCORE = 0/10", 0.0, "Bad."),
        ("score: 7.5", 0.75, None),
        ("It says score: 10, which is a lie.\nscore: 2", 0.2, "It says score: 10, which is a lie."),
    ],
)
def test_the_grade_is_read(answer, value, feedback):
    score, calls = judged(answer)
    assert score.value == pytest.approx(value) and len(calls) == 1
    if feedback:
        assert score.feedback == feedback


@pytest.mark.parametrize("answer", ["", "It is good.", "score: 11", "score: -3", "score: high", "scores: 3"])
def test_an_answer_without_a_grade_is_a_failure_of_its_own_kind(answer):
    with pytest.raises(NodeError, match="no grade from 0 to 10") as caught:
        judged(answer)
    assert caught.value.kind == "judge"


def test_what_the_judge_sees():
    trace = SimpleNamespace(spans=[SimpleNamespace(inputs={"q": "1+1"})])
    score, [(messages, settings)] = judged(
        "score: 3", field="a", rubric="Braces {like} these.", target="a", scale=5, max_tokens=50, trace=trace
    )
    assert score.value == pytest.approx(0.6) and settings == {"max_tokens": 50}
    assert "Braces {like} these." in messages[0]["content"] and "to 5 (fully right)" in messages[0]["content"]
    assert messages[1]["content"] == 'Input: {"q": "1+1"}\nReference: 2\nAnswer: two'
    assert Judge.needs_lm is True


def test_the_judges_missing_fields_are_named():
    with pytest.raises(ValueError, match="prediction has no field 'b'; it has: a"):
        judged("score: 1", field="b")
    with pytest.raises(NodeError, match="row has no field 'b'; it has: q, a"):
        judged("score: 1", target="b")
    with pytest.raises(ValueError, match="scale"):
        Judge(scale=0)


def test_j1_a_rubric_that_states_its_scale_is_obeyed_and_another_scale_is_refused():
    for rubric, answer, value in [
        ("Score from 0.0 to 1.0.", "Good.\nscore: 0.9", 0.9),
        ("Score from 0.0 to 1.0.", '{"score": 0.95, "reason": "good"}', 0.95),
        ("Rate it from 1 (bad) to 5 (good).", "score: 4", 0.75),
    ]:
        score, [(messages, _)] = judged(answer, rubric=rubric)
        assert score.value == pytest.approx(value)
    assert "where N is a whole number from 1 (wrong) to 5 (fully right)" in messages[0]["content"]
    with pytest.raises(NodeError, match="no grade from 0 to 1:"):
        judged("score: 9", rubric="Score from 0.0 to 1.0.")
    score, [(messages, _)] = judged("score: 1", rubric="Score from 1 (bad) to 5", scale=5)
    assert score.value == 0 and "from 1 (wrong) to 5" in messages[0]["content"], "also with its best grade as scale"
    with pytest.raises(ValueError, match="the rubric asks for 0 to 1, and scale is 10"):
        Judge(rubric="Score from 0.0 to 1.0.", scale=10)
    for rubric, wanted in (
        ("Rate from 0 (best) to 10 (worst).", "from 10 (wrong) to 0 (fully right)"),
        ("Clarity (1-5). Overall (1-10).", "from 1 (wrong) to 10 (fully right)"),
        ("Tone from 0 to 3. Style from 1 to 5.", "from 0 (wrong) to 10 (fully right)"),
    ):
        _, [(messages, _)] = judged("score: 5", rubric=rubric, scale=10)
        assert wanted in messages[0]["content"], "the rubric states several scales, or one with this best grade"
