"""Judges and listeners beside a policy: what they see, and what a failed call of theirs is (a missing reward)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.grpo_runs import SMALL, needs_torch, run
from tests.helpers.lm_faults import ChatServer
from tests.helpers.sqlite import connect
from tests.plugins.training.test_rewards import rollout

from workbench.errors import LMError
from workbench.lm import Response
from workbench_training.judge_calls import JudgeCalls
from workbench_training.papers.lacie import read_verdict
from workbench_training.rewards import GUARDS, RewardTerm, score

PART = RewardTerm(kind="judge", rubric="Be kind.")


def says(*answers: str | LMError) -> tuple[JudgeCalls, list[Any]]:
    """A judge that gives these answers, or fails, in order; the last one for ever."""
    asked, left = list[Any](), [*answers]

    async def answer(messages: Any, **settings: Any) -> Response:
        asked.append(messages)
        said = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(said, LMError):
            raise said
        return Response(said)

    return JudgeCalls(answer, ["text"]), asked


def rewards(judge: JudgeCalls | None, count: int = 1) -> list[float | None]:
    made = [rollout("hello") for _ in range(count)]
    asyncio.run(score(made, [PART], GUARDS, judge))
    return [one.reward for one in made]


@pytest.mark.parametrize(
    ("said", "reward"),
    [
        ("score: 2 would be harsh\nscore: 7", 0.7),
        ("**Score:** 7/10", 0.7),
        ('{"score": 7, "why": "kind"}', 0.7),
        ("Rating: 3,5", 0.35),
        ("I cannot say", None),
        ("score: 70", None),
    ],
)
def test_a_judge_grades_and_what_it_leaves_open_is_left_out(said: str, reward: float | None) -> None:
    judge, asked = says(said)
    assert rewards(judge) == [reward and pytest.approx(reward)]
    assert "Be kind." in asked[0][0]["content"] and "Answer: hello" in asked[0][1]["content"]


@pytest.mark.parametrize(
    ("rubric", "said", "reward", "asked_for"),
    [
        ("Be kind.", "score: 7", 0.7, "N is a whole number from 0 (wrong) to 10"),
        ("Score from 0.0 to 1.0.", "score: 0.9", 0.9, "N is a number from 0 (wrong) to 1"),
        ("Rate it from 1 (rude) to 5 (kind).", "score: 1", 0.0, "N is a whole number from 1 (wrong) to 5"),
        ("Rate it from 1 (rude) to 5 (kind).", "score: 5", 1.0, "N is a whole number from 1 (wrong) to 5"),
        ("Give a score out of 100.", "score: 70", 0.7, "N is a whole number from 0 (wrong) to 100"),
        ("Rate it from 1 (rude) to 5 (kind).", "score: 7", None, "N is a whole number from 1"),
        ("Be kind.", "score: 0.9", None, "N is a whole number from 0 (wrong) to 10"),
        ("Award 1 for each fact.", "score: 4/5", 0.8, "N is the grade and the best one that the rubric allows"),
        ("Award 1 for each fact.", "score: 4", None, "N is the grade and the best one that the rubric allows"),
    ],
)
def test_a_judge_is_asked_and_read_on_the_scale_of_the_rubric(
    rubric: str, said: str, reward: float | None, asked_for: str
) -> None:
    judge, asked = says(said)
    made = rollout("hello")
    asyncio.run(score([made], [PART.model_copy(update={"rubric": rubric})], GUARDS, judge))
    assert made.reward == (reward and pytest.approx(reward))
    assert asked_for in asked[0][0]["content"]


def test_a_reward_needs_its_judge() -> None:
    with pytest.raises(ValueError, match="judge"):
        rewards(None)


def test_the_judge_sees_the_row_as_the_workflow_does_and_never_its_label_training_3() -> None:
    judge, asked = says("score: 7")
    made = rollout("hello")
    made.example = type(made.example)("1", {"text": "greet me", "label": "yes", "note": "not read"})
    asyncio.run(score([made], [PART.model_copy(update={"target": "none"})], GUARDS, judge))
    assert asked[0][1]["content"] == "text: greet me\nAnswer: hello"


@pytest.mark.parametrize("kind", ["too_long", "bad_request", "timeout", "server", "refused"])
def test_a_call_of_the_judge_that_fails_is_a_missing_reward_training_1(kind: str) -> None:
    judge, _ = says("score: 7", LMError(kind, "no"), "score: 4")
    assert rewards(judge, 3) == [0.7, None, 0.4]
    told = list[str]()
    judge.report(told.append)
    judge.report(told.append)
    lost = f"1 calls of the judge failed, and leave what they judge without a reward (so far: {kind} 1)"
    assert told == [lost], "told once"


def test_a_judge_that_never_answers_ends_the_run_and_one_that_did_does_not() -> None:
    never, _ = says(LMError("too_long", "the prompt is too long"))
    told = list[str]()
    assert rewards(never, 7) == [None] * 7
    never.report(told.append)
    rewards(never, 1)
    with pytest.raises(LMError, match="too long"):
        never.report(told.append)
    once, _ = says("score: 7", LMError("too_long", "the prompt is too long"))
    rewards(once, 20)
    once.report(told.append)
    assert [one.split()[0] for one in told] == ["7", "19"]
    with pytest.raises(LMError, match="key"):
        rewards(says(LMError("auth", "no key"))[0])


@pytest.mark.parametrize(
    ("said", "accepts"),
    [("Yes.", True), ("no", False), ("**No**, he is not sure", False), ("Hm", None), ("yes or no?", None)],
)
def test_a_listener_says_yes_or_no_or_nothing(said: str, accepts: bool | None) -> None:
    assert read_verdict(Response(said)) is accepts
    assert read_verdict(None) is None


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer() as server:
        yield server


@pytest.mark.slow
def test_a_training_goes_on_beside_a_judge_that_refuses_some_rows_training_1(
    tmp_path: Path, server: ChatServer
) -> None:
    needs_torch()

    def judge(body: dict[str, Any]) -> str:
        return "400" if "invoice" in json.dumps(body) else "grade"

    server.kind, server.error = judge, {"message": "context length exceeded", "code": "context_length_exceeded"}
    heard: list[Any] = []
    settings = {
        "optimizers": [{"grpo": {**SMALL, "rewards": [{"kind": "judge"}]}}],
        "roles": {"judge": {"model": "openai/j", "api_base": server.base, "price": {"input": 0, "output": 0}}},
    }
    report = run(tmp_path, heard=heard, **settings)
    told = [message for message, _ in heard if "calls of the judge failed" in message]
    assert report.status == "finished" and told and "too_long" in told[-1]
    server.kind = "400"
    never = run(tmp_path / "never", **settings)
    assert never.status == "failed" and "context length" in str(never.as_dict())
    with connect(tmp_path / "run.db") as db:
        (asked,) = db.execute("select count(*) from calls where role = 'judge'").fetchone()
    assert asked >= 16
