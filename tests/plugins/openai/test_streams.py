"""Streams that nobody asked for: whole ones are answers, broken and strange ones a typed error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.plugins.openai.test_hostile_answers import parse, values

from workbench.lm import Response


def stream(*events: Any, done: bool = True) -> str:
    lines = [f"data: {json.dumps(event, ensure_ascii=False)}\n\n" for event in events]
    return "".join(lines) + "data: [DONE]\n\n" * done


def say(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\u0085"])
def test_an_answer_may_hold_what_other_texts_end_lines_with(mark: str) -> None:
    assert parse(stream(say(content=f"one{mark}two"), say("stop"))).text == f"one{mark}two"


def test_a_stream_that_breaks_off_is_no_answer() -> None:
    assert parse(stream(say(content="It is about the bil"), done=False)) == "broken"
    assert parse(stream(say(content="billing"), say("stop"), done=False)).text == "billing"
    assert parse(stream(say(content="billing"))).text == "billing", "some give no reason, but an end"


@pytest.mark.parametrize(
    "events", [[], [5], [[1]], ["x"], [{"choices": 5}], [{"choices": ["x"]}], [{"id": 1}], [{"choices": []}]], ids=repr
)
def test_a_stream_without_an_answer_is_a_broken_body(events: list[Any]) -> None:
    assert parse(stream(*events)) == "bad_body"


def test_an_error_in_a_stream_is_that_error() -> None:
    assert parse(stream(say(content="bil"), {"error": {"code": 429, "message": "slow down"}})) == "rate_limit"


def calls(*pieces: dict[str, Any]) -> list[tuple[str, Any]]:
    found = parse(stream(*(say(tool_calls=[piece]) for piece in pieces), say("tool_calls")))
    assert isinstance(found, Response)
    return [(call["name"], call["arguments"]) for call in found.tool_calls]


F, G = {"name": "f", "arguments": '{"a": 1}'}, {"name": "g", "arguments": "{}"}


@pytest.mark.parametrize(
    "places",
    [({"index": 0}, {"index": 1}), ({"index": 0, "id": "a"}, {"index": 0, "id": "b"}), ({"index": None}, {}), ({}, {})],
    ids=["numbers", "one number", "null", "no number"],
)
def test_calls_are_told_apart(places: tuple[dict[str, Any], dict[str, Any]]) -> None:
    assert calls({**places[0], "function": F}, {**places[1], "function": G}) == [("f", {"a": 1}), ("g", {})]


@pytest.mark.parametrize("again", [{}, {"id": "c", "function": {"name": "f", "arguments": "1}"}}], ids=["no", "yes"])
def test_the_arguments_of_a_call_come_in_pieces(again: dict[str, Any]) -> None:
    begun = {"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a": '}}
    assert calls(begun, {"index": 0, "function": {"arguments": "1}"}, **again}) == [("f", {"a": 1})]


def test_parts_of_a_message_are_joined() -> None:
    thought = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]
    found = parse(stream(say(content=thought), say(content="tech"), say(content="nical"), say("stop")))
    assert (found.text, found.thoughts) == ("technical", "hm")
    details = [say(reasoning_details=[{"type": "reasoning.text", "text": part}]) for part in ("h", "m")]
    found = parse(stream(*details, say("stop", content="technical")))
    assert found.message["reasoning_details"] == [{"type": "reasoning.text", "text": part} for part in ("h", "m")]


@given(st.lists(values, max_size=4), values, values)
def test_no_stream_is_a_bug(events: list[Any], delta: Any, piece: Any) -> None:
    deltas = [say(**delta) if isinstance(delta, dict) else say(content=delta), say(tool_calls=[piece])]
    for body in (stream(*events), stream(*events, *deltas), stream(*deltas, done=False)):
        parse(body)
