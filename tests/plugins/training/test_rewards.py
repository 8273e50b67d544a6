"""Rewards of grpo: Tool-N1's rule as a truth table, parts with weights, guards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from workbench.errors import FailureKind, LMError, NodeError
from workbench.lm import Response
from workbench.study import Result
from workbench.task import Example, Score
from workbench.workflow import CallRecord, Span, Trace
from workbench_metrics.text import ExactMatch
from workbench_training.rewards import (
    GUARDS,
    Guard,
    RewardTerm,
    Rollout,
    check_guards,
    find_verdict,
    measure_repetition,
    name_terms,
    score,
    score_format,
    score_overlong,
    tool_n1,
)
from workbench_training.rollouts.node_outputs import score_output

ONE = {"name": "f", "arguments": {"a": 1, "b": [2]}}
TWO = {"name": "g", "arguments": {}}
THINK = "<think>so</think>"


def said(*calls: Any, think: str = THINK) -> str:
    return f"{think}<tool_call>{json.dumps(list(calls) if len(calls) != 1 else calls[0])}</tool_call>"


@pytest.mark.parametrize(
    ("text", "wanted", "earned"),
    [
        (said(ONE), [ONE], 1),
        (said(ONE, TWO), [TWO, ONE], 1),  # order does not matter
        (said({"name": "f", "arguments": {"b": [2], "a": 1}}), [ONE], 1),  # nor does that of arguments
        (said(ONE, ONE), [ONE], 0),  # a multiset: twice is not once
        (said(ONE, ONE), [ONE, ONE], 1),
        (said(ONE), [ONE, TWO], 0),  # nothing is partly right
        (said({"name": "f", "arguments": {"a": 1, "b": [3]}}), [ONE], 0),
        (said({"name": "f", "arguments": {"a": 1.0, "b": [2]}}), [ONE], 0),  # 1.0 is not written as 1
        (said(ONE, think=""), [ONE], 0),  # no thinking
        (said(ONE, think="<think>"), [ONE], 0),  # thinking without an end
        (said(ONE, think="</think><think>"), [ONE], 1),  # where the tags stand is not checked
        ("<tool_call>" + json.dumps(ONE) + "</tool_call>" + THINK, [ONE], 1),
        (said(TWO) + said(ONE), [ONE], 1),  # the last block counts
        (said(ONE) + said(TWO), [ONE], 0),
        (f"{THINK}<tool_call>{json.dumps(ONE)}", [ONE], 0),  # a block without an end
        (f"{THINK}<tool_call>{{'name': 'f'}}</tool_call>", [ONE], 0),  # no JSON
        (f"{THINK}<tool_call>{json.dumps(json.dumps(ONE))}</tool_call>", [ONE], 1),  # JSON within JSON is read
        (said({"name": "f"}), [ONE], 0),
        (said("f", "g"), [ONE], 0),
        (said({"name": ["f"], "arguments": {}}), [ONE], 0),
        (f"{THINK}<tool_call>5</tool_call>", [ONE], 0),
        (f"{THINK}<tool_call>[]</tool_call>", [], 1),
        (f"{THINK}<tool_call>[]</tool_call>", [ONE], 0),
        (said(ONE), [], 0),
        (f"{THINK}no call is needed", [], 0),  # without a block it is wrong, whatever is wanted
        ("", [ONE], 0),
        (said(TWO) + "<|im_start|>assistant" + said(ONE), [ONE], 1),
        (said(ONE) + "<|im_start|>assistant\nhm", [ONE], 0),  # only what stands after the last marker counts
    ],
)
def test_tool_n1_truth_table(text: str, wanted: Any, earned: int) -> None:
    assert tool_n1(text, wanted) == earned
    assert tool_n1(text, json.dumps(wanted)) == earned
    assert tool_n1(text, json.dumps(json.dumps(wanted))) == earned


def rollout(
    text: str,
    value: float | None = 1.0,
    finish: str = "stop",
    failure: str | None = None,
    notes: dict[str, Any] | None = None,
    tokens: int = 5,
) -> Rollout:
    response = Response(text, finish, 3, tokens, 0.0)
    span = Span("n", "Predict", {}, {"label": text}, [CallRecord((), response, "task", "m", False, 0.0)], notes or {})
    example = Example("1", {"label": "yes"})
    result = Result(example, value, failure, None, None, {"label": text}, Trace("1", [span]), 1, 8, 0.0, 0.5)
    return Rollout(example, result, 0)


def earned(made: Rollout, *parts: RewardTerm, guards: Sequence[Guard] = GUARDS, judge: Any = None) -> float | None:
    asyncio.run(score([made], list(parts) or [RewardTerm()], guards, judge))
    return made.reward


@pytest.mark.parametrize(
    ("label", "answer", "reward"),
    [
        ("billing", "billing\u200b", 1.0),
        ("caf\u00e9", "cafe\u0301", 1.0),
        (["a", "b"], "b", 1.0),
        (["a", "b"], "c", 0.0),
        (3.0, "3", 1.0),
        (3, "three", 0.0),
        (True, "true", 1.0),
        (["a", "b"], '["a", "b"]', 1.0),
        ([], "[]", 1.0),
        ({"a": 1}, '{"a": 1.0}', 1.0),
        (7, "007", 0.0),
        (1000, "1_000", 0.0),
        (9007199254740993, "9007199254740992", 0.0),
        ("a\nb", "a\r\nb", 1.0),
        (3.5, "1" + "0" * 400, 0.0),
        (3, "3e999999999999", 0.0),
    ],
)
def test_the_reward_exact_match_compares_as_the_metric_does(label: Any, answer: str, reward: float) -> None:
    made = rollout(answer)
    made.example = Example("1", {"label": label})
    assert earned(made, RewardTerm(kind="exact_match")) == reward


@pytest.mark.parametrize(
    ("label", "answer"),
    [(None, None), ("3", 3.0), ("True", True), (1, True), ("yes", True), ("[1,2]", [1, 2]), ([1, 2], [1, 2])],
)
def test_a_field_of_the_prediction_is_compared_with_its_type(label: Any, answer: Any) -> None:
    made = rollout("anything")
    made.example, made.result = Example("1", {"label": label}), replace(made.result, prediction={"label": answer})
    term = RewardTerm(kind="exact_match", field="label")
    assert earned(made, term) == ExactMatch("label")(made.example, {"label": answer}).value == 1.0
    made.reward = None
    made.example = Example("1", {"label": "other"})
    assert earned(made, term) == 0.0


def test_a_penalty_does_not_say_what_is_right() -> None:
    async def penalty(made: Rollout, field: str, metric: str) -> float:
        return float(made.text == "bad")

    parts = [RewardTerm(kind="metric", metric="contains(label)", weight=-1), RewardTerm(kind="exact_match")]
    for text, right in (("bad", 0.0), ("yes", 1.0)):
        made = rollout(text)
        asyncio.run(score([made], parts, GUARDS, output_score=penalty))
        assert (made.reward, made.score) == (right - (text == "bad"), right)
    assert find_verdict(parts[:1]) is None and find_verdict([RewardTerm(weight=0)]) is None


TERMS = [
    [RewardTerm(kind="metric")],
    [RewardTerm(kind="exact_match")],
    [RewardTerm(kind="format")],
    [RewardTerm(kind="length", weight=-0.1)],
    [RewardTerm(kind="overlong")],
    [RewardTerm(kind="metric", field="label")],
    [RewardTerm(kind="metric"), RewardTerm(kind="length", weight=-0.1)],
]


def test_a_row_without_a_result_gives_no_reward_and_a_failure_of_the_workflow_gives_one(
    subtests: pytest.Subtests,
) -> None:
    async def half(made: Rollout, field: str, metric: str) -> float:
        return 0.5

    for kind in FailureKind:
        for parts in TERMS:
            with subtests.test(kind=kind, terms=[part.kind for part in parts]):
                made = rollout("yes", None if kind.no_result else 0.0, failure=kind)
                asyncio.run(score([made], parts, GUARDS, output_score=half))
                assert (made.reward is None) == (made.score is None) == kind.no_result


@pytest.mark.parametrize(
    ("error", "reward"),
    [
        (NodeError("judge", "the judge gave no grade"), None),
        (NodeError("data", "its image cannot be read"), None),
        (LMError("server", "down"), None),
        (LMError("bad_request", "too many tokens"), None),
        (NodeError("verifier", "it does not hold"), 0.0),
        (KeyError("label"), 0.0),
        (SystemExit(2), 0.0),
    ],
)
@pytest.mark.parametrize("part", [RewardTerm(field="label"), RewardTerm(metric="second")])
def test_an_output_that_a_judge_left_open_gives_no_reward_and_one_it_cannot_score_0(
    part: RewardTerm, error: BaseException, reward: float | None
) -> None:
    class Scorer:
        workflow = SimpleNamespace(output_fields=["label"])
        ledger = SimpleNamespace(stopping=None)

        async def score(self, *given: Any) -> Score:
            raise error

    study: Any = Scorer()
    study.evaluator = study
    made = rollout("yes")
    asyncio.run(score([made], [part], GUARDS, output_score=partial(score_output, study)))
    assert made.reward == reward


def test_parts_are_weighted_and_kept() -> None:
    made = rollout("yes", 0.5, tokens=64)
    parts = [
        RewardTerm(kind="metric"),
        RewardTerm(kind="exact_match", weight=2.0),
        RewardTerm(kind="length", weight=-0.1, tokens=32),
        RewardTerm(kind="format", weight=0.2),
    ]
    assert earned(made, *parts) == pytest.approx(0.5 + 2.0 - 0.1 * 2 + 0.2)
    assert made.parts == {"metric": 0.5, "exact_match": 1.0, "length": 2.0, "format": 1.0}
    assert made.costs == {"tokens": 64.0, "calls": 1.0, "tools": 0.0, "latency": 0.5}
    assert earned(rollout("no"), RewardTerm(kind="exact_match", field="label")) == 0.0
    tools = rollout(said(ONE))
    tools.example = Example("1", {"label": [ONE]})
    assert earned(tools, RewardTerm(kind="tool_n1")) == 1.0


def test_parts_of_one_kind_count_each_by_itself() -> None:
    """The right answer of one field is not undone by the wrong one of another."""
    made = rollout("yes")
    made.example = Example("1", {"label": "yes", "other": "no"})
    label, other = RewardTerm(kind="exact_match"), RewardTerm(kind="exact_match", target="other", weight=0.5)
    for parts in ((label, other), (other, label)):
        assert earned(made, *parts) == 1.0
        assert made.parts == {"exact_match.label": 1.0, "exact_match.other": 0.0}
    lengths = [
        RewardTerm(kind="length", tokens=5),
        RewardTerm(kind="metric"),
        RewardTerm(kind="length", tokens=10, weight=-1.0),
    ]
    assert earned(rollout("yes", 0.25, tokens=5), *lengths) == pytest.approx(1.0 + 0.25 - 0.5)
    assert name_terms(lengths) == ["length.1", "metric", "length.3"]
    fields = [RewardTerm(kind="exact_match", field="a"), RewardTerm(kind="exact_match", field="b")]
    assert name_terms(fields) == ["exact_match.a", "exact_match.b"]


def test_what_could_not_be_run_or_scored_teaches_nothing() -> None:
    assert earned(rollout("yes", None, failure="timeout")) is None
    assert earned(rollout("yes", None)) is None
    assert earned(rollout("yes", 0.0, failure="unparsed")) == 0.0  # the policy's own fault earns 0


@pytest.mark.parametrize(
    ("text", "finish", "guards", "reason", "reward"),
    [
        ("  ", "stop", GUARDS, "empty", 0.0),
        ("  ", "stop", ["repeated"], "", 1.0),
        ("cut", "length", GUARDS, "truncated", 0.0),
        ("cut", "length", ["empty"], "", 1.0),
        ("cut", "length", ["mask_truncated"], "mask", None),
        ("yes and no " * 9, "stop", GUARDS, "repeated", 0.0),
        ("one two three four five six seven eight nine ten eleven twelve", "stop", GUARDS, "", 1.0),
    ],
)
def test_guards(text: str, finish: str, guards: Sequence[Guard], reason: str, reward: float | None) -> None:
    assert check_guards(text, finish == "length", guards) == reason
    assert earned(rollout(text, 1.0, finish), guards=guards) == reward


def test_a_guard_never_lifts_a_penalty() -> None:
    assert earned(rollout(" ", 1.0), RewardTerm(weight=-2.0)) == -2.0


def test_duplicates_earn_nothing_beyond_the_first_on_request() -> None:
    """Rows are apart, failed runs are not compared, and by default nothing is taken from equal right answers."""
    texts = ["a", "a ", "b", "a", " ", " "]

    def scored(guards: Sequence[Guard]) -> list[Rollout]:
        made = [rollout(text) for text in texts] + [rollout("b"), rollout("a", None, failure="timeout"), rollout("a")]
        for one in made[6:]:
            one.example = Example("2", {"label": "yes"})
        asyncio.run(score(made, [RewardTerm()], guards, None))
        return made

    assert [r.reward for r in scored(GUARDS)] == [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0, None, 1.0]
    found = scored((*GUARDS, "duplicates"))
    assert [r.reward for r in found] == [1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, None, 1.0]
    assert [r.guarded for r in found] == ["", "duplicate", "", "duplicate", "empty", "empty", "", "", ""]
    longer = [rollout("a"), rollout("a")]  # one came to its answer in another way
    trace = longer[1].result.trace
    assert trace is not None
    trace.spans.insert(0, rollout("first").result.trace.spans[0])  # type: ignore[union-attr]
    asyncio.run(score(longer, [RewardTerm()], (*GUARDS, "duplicates"), None))
    assert [r.reward for r in longer] == [1.0, 1.0]


def test_repetition_and_length_by_hand() -> None:
    assert measure_repetition("a b c d " * 4) == pytest.approx(1 - 4 / 13)
    assert measure_repetition("a a a a a") == 0.0  # too short to tell
    assert [score_overlong(n, 80) for n in (60, 70, 80, 130)] == [0.0, -0.5, -1.0, -1.0]


def test_form() -> None:
    assert score_format(rollout("x").result) == 1.0
    assert score_format(rollout("x", notes={"fallback": 1}).result) == 0.0
    assert score_format(rollout("x", 0.0, failure="unparsed").result) == 0.0
