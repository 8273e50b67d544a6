"""What is read of the model's answers: aspects, groups, metrics, ratings, matches; and what is never guessed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from workbench.errors import LMError
from workbench.lm import Response
from workbench_feedback.answers import (
    Asker,
    Unreadable,
    find_quote,
    read_json,
    read_number,
    read_sign,
)
from workbench_feedback.clustering import ask_groups, read_groups
from workbench_feedback.comments import Comment
from workbench_feedback.coverage import Match, read_matches
from workbench_feedback.grounding import Aspect, ask_aspects, read_aspects
from workbench_feedback.inducing import read_metric, rename_twins
from workbench_feedback.judging import Trait, read_ratings
from workbench_feedback.metrics_file import InducedMetric
from workbench_kit.logs import Log, LogStep

LOG = Log("log", (LogStep("A", "I looked up   the “stock”\nof shoes"), LogStep("B", "Sold out.", error="timeout")))
COMMENT = Comment("c.jsonl:3", "It never checked.", 0)
ASPECT = {"step": 0, "quote": "looked up the", "behaviour": "checks", "feedback": "fine", "sign": "+"}


def aspects(*changes: dict[str, Any]) -> str:
    return json.dumps({"aspects": [{**ASPECT, **change} for change in changes]})


def aspect(sign: int = 1, behaviour: str = "b", place: str = "c:1") -> Aspect:
    return Aspect(0, 0, "looked", behaviour, "f", sign, place)


# JSON


@pytest.mark.parametrize(
    "text",
    [
        '{"aspects": []}',
        'Let me think {about} it.\n```json\n{"aspects": []}\n```\nDone.',
        "{'aspects': [],}",
        '{"other": {"aspects": []}}',
    ],
)
def test_json_is_found_whatever_stands_around_it(text: str) -> None:
    assert read_json(text, "aspects")["aspects"] == []


@pytest.mark.parametrize("text", ["", "no", "[]", '{"aspect": []}', "{" * 3000])
def test_what_has_no_such_json_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        read_json(text, "aspects")


def test_numbers_and_signs_are_read_as_models_write_them() -> None:
    assert [read_number(v) for v in (3, 3.0, "3", "Step 3", "+1", "−1", True, "three", "3 or 4", None, 3.5)] == [
        3, 3, 3, 3, 1, -1, None, None, None, None, None,
    ]  # fmt: skip
    assert [read_sign(v) for v in ("+", "positive", 1, True, "-", "Negative", -1, "neutral", 0, None)] == [
        1, 1, 1, 1, -1, -1, -1, None, None, None,
    ]  # fmt: skip


# Grounding


@pytest.mark.parametrize(
    ("step", "quote", "there"),
    [
        (0, 'LOOKED up the "stock" of shoes', True),
        (0, "looked ... shoes.", True),
        (0, "shoes … looked", False),
        (1, "error: timeout", True),
        (1, "looked up", False),
        (2, "looked", False),
        (-1, "timeout", False),
        (0, "", False),
        (0, "...", False),
        (0, "\"'", False),
        (None, "looked", False),
    ],
)
def test_a_quote_must_be_said_by_its_step(step: int | None, quote: str, there: bool) -> None:
    assert find_quote(LOG, step, quote) is there


def test_aspects_without_a_quote_in_the_trace_are_dropped_and_counted() -> None:
    found = read_aspects(
        aspects({}, {"step": 1}, {"quote": "never said"}, {"sign": "?"}, {"behaviour": ""}, {"step": "x"}), COMMENT, LOG
    )
    assert found.aspects == (Aspect(0, 0, "looked up the", "checks", "fine", 1, "c.jsonl:3"),)
    assert (found.unfounded, found.malformed) == (2, 3)


def test_a_comment_may_have_no_aspects_and_an_answer_must_have_a_list() -> None:
    assert read_aspects('{"aspects": []}', COMMENT, LOG).aspects == ()
    for text in ('{"aspects": "none"}', '{"aspects": [1]}', "I cannot."):
        with pytest.raises(Unreadable):
            read_aspects(text, COMMENT, LOG)


def test_the_right_answer_is_not_shown_and_a_comment_cannot_pass_for_a_step() -> None:
    log = Log("x", LOG.steps, "How many?", "the secret label", "seven")
    comment = Comment("c:1", "fine\nStep 9, A: done", 0)
    text = ask_aspects(comment, log, 16_000)[-1]["content"]
    assert "secret" not in text and "How many?" in text and "seven" in text and "\nStep 9" not in text


# Groups


def groups(*members: list[Any]) -> str:
    return json.dumps({"groups": [{"members": m} for m in members]})


def test_groups_are_read_with_each_aspect_once() -> None:
    five = [aspect() for _ in range(5)]
    assert read_groups(groups([4, 1], ["2", 5, 1, 9], []), five) == (((0, 2, 3), (1, 4)), 1)


def test_an_aspect_that_is_left_out_joins_the_nearest_group() -> None:
    five = [aspect(behaviour=b) for b in ("stock list", "stock shelf", "polite tone", "polite words", "polite end")]
    assert read_groups(groups([1, 2], [3, 4]), five) == (((0, 1), (2, 3, 4)), 1)


@pytest.mark.parametrize("text", [groups(), groups([1], [2]), '{"groups": [{"members": "1, 2"}]}', "three groups"])
def test_groups_of_less_than_half_are_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        read_groups(text, [aspect() for _ in range(5)])


def test_a_prompt_of_groups_has_an_end() -> None:
    many = [aspect(behaviour="word " * 50) for _ in range(500)]
    assert len(ask_groups(many, 3, 1000)[-1]["content"]) < 3000


# Metrics


def test_examples_are_the_aspects_of_their_sign_with_their_places() -> None:
    group = [aspect(1, "well", "c:1"), aspect(-1, "badly", "c:2"), aspect(1, "better", "c:3")]
    text = '{"name": "Checks the stock", "definition": "Looks first.", "good": [3, 2, 9], "bad": []}'
    metric = read_metric(text, group, [LOG], 2)
    assert [(b.behaviour, b.comment, b.trace, b.step) for b in metric.good] == [("better", "c:3", "log", 0)]
    assert [b.behaviour for b in metric.bad] == ["badly"] and metric.aspects == 3


@pytest.mark.parametrize("text", ['{"name": "", "definition": "x"}', '{"definition": 3, "name": "x"}', "none"])
def test_a_metric_needs_a_name_and_a_definition(text: str) -> None:
    with pytest.raises(Unreadable):
        read_metric(text, [aspect()], [LOG], 2)


def test_metrics_of_one_name_are_numbered() -> None:
    made = [InducedMetric(name=name, definition="d") for name in ("a", "b", "a", "a")]
    assert [m.name for m in rename_twins(made)] == ["a", "b", "a 2", "a 3"]


# Ratings


def ratings(*changes: dict[str, Any]) -> str:
    full = {"rating": 0, "step": 0, "quote": "looked up", "reason": "so"}
    return json.dumps({"ratings": [{**full, "metric": n, **change} for n, change in enumerate(changes, 1)]})


def test_a_rating_without_a_quote_in_the_trace_is_none_and_is_counted() -> None:
    found = read_ratings(ratings({"rating": 1}, {"rating": -1, "quote": "invented"}, {"quote": ""}), LOG, 3)
    assert found.traits == (Trait(0, 1, 0, "looked up", "so"),) and found.unfounded == 1


@pytest.mark.parametrize(
    "text",
    [
        ratings({}),
        ratings({}, {}, {}),
        ratings({}, {"metric": 1}),
        ratings({}, {}, {"metric": 1}),
        ratings({}, {"rating": 2}),
        ratings({}, {"rating": None}),
        '{"ratings": []}',
        "both are fine",
    ],
)
def test_an_answer_that_does_not_rate_each_metric_once_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        read_ratings(text, LOG, 2)


# Matches

TRAITS = [Trait(0, 1, 0, "q", "r"), Trait(1, -1, 0, "q", "r")]


def matches(*pairs: tuple[Any, Any]) -> str:
    return json.dumps({"matches": [{"observation": a, "finding": t} for a, t in pairs]})


def test_matches_are_counted_and_those_of_unlike_signs_are_none() -> None:
    two = [aspect(1), aspect(-1)]
    assert read_matches(matches((1, 1), (2, 2)), two, TRAITS) == Match(2, 2, 2, 0)
    assert read_matches(matches((1, 2), (2, 1)), two, TRAITS) == Match(2, 0, 2, 2)
    assert read_matches(matches((1, 0), (2, "2")), two, TRAITS) == Match(2, 1, 2, 1)
    assert read_matches(matches((1, 1), (2, 1)), [aspect(1), aspect(1)], TRAITS) == Match(2, 2, 2, 1)


@pytest.mark.parametrize(
    "text", [matches((1, 1)), matches((1, 3), (2, 0)), matches((1, 1), (1, 0)), matches((3, 0)), ""]
)
def test_matches_that_are_not_of_each_aspect_are_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        read_matches(text, [aspect(1), aspect(-1)], TRAITS)


# Asking


def ask(*answers: Response | LMError) -> tuple[Any, list[Any], dict[str, int]]:
    left, sent = list(answers), list[Any]()

    async def send(messages: Any, *, replica: int, role: str, temperature: float) -> Response:
        sent.append((replica, role, temperature))
        answer = left.pop(0)
        if isinstance(answer, LMError):
            raise answer
        return answer

    asker = Asker(send)
    try:
        found = asyncio.run(asker.ask([], "judge", lambda text: read_json(text, "x")["x"]))
    except (Unreadable, LMError) as error:
        found = error
    return found, sent, dict(asker.unread)


def response(text: str, finish: str = "stop") -> Response:
    return Response(text, finish, 1, 1, 0.0)


def test_what_cannot_be_read_is_asked_for_once_more_at_a_temperature() -> None:
    found, sent, unread = ask(response("what?"), response('{"x": 1}'))
    assert (found, unread) == (1, {"unparsed": 1})
    assert sent == [(0, "judge", 0.0), (1, "judge", 0.7)]


@pytest.mark.parametrize(("finish", "kind"), [("length", "cut"), ("refusal", "refused"), ("stop", "unparsed")])
def test_two_answers_that_cannot_be_read_are_counted_and_raised(finish: str, kind: str) -> None:
    text = "no" if finish == "stop" else '{"x": 1}'
    found, sent, unread = ask(response(text, finish), response(text, finish))
    assert isinstance(found, Unreadable) and found.kind == kind
    assert len(sent) == 2 and unread == {kind: 2}


def test_a_prompt_that_is_too_long_is_unread_and_a_server_that_is_down_is_raised() -> None:
    found, sent, unread = ask(LMError("too_long", "too long"))
    assert isinstance(found, Unreadable) and len(sent) == 1 and unread == {"too_long": 1}
    found, sent, unread = ask(LMError("server", "down"))
    assert isinstance(found, LMError) and len(sent) == 1 and not unread


def test_half_of_a_character_can_be_written_to_a_file() -> None:
    (found,) = read_aspects(aspects({"behaviour": "smiles \ud83d"}), COMMENT, LOG).aspects
    metric = read_metric('{"name": "smile\\ud83d", "definition": "d"}', [found], [LOG], 2)
    assert metric.name == "smile?" and metric.good[0].behaviour == "smiles ?"
