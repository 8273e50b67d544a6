"""What servers answer that are not OpenAI's, by the numbers of the faults that users reported; siblings beside them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from workbench.errors import LMError
from workbench.lm import Request, Response
from workbench_kit.lms.native_calls import to_message
from workbench_kit.wire import Form, parse_price
from workbench_openai import wire

LONG = {"prompt_tokens": 5000, "completion_tokens": 5}
BROKEN = ["a new word", "abort", "error", "insufficient_system_resource", "MALFORMED_FUNCTION_CALL"]
TOO_MANY = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
HELLO = Request(({"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}))


def body(content: Any = "technical", finish: str | None = "stop", usage: Any = None, **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **more.pop("message", {})}
    found = {"choices": [{"index": 0, "finish_reason": finish, "message": message, **more}]}
    return found if usage is None else {**found, "usage": usage}


def read(data: Any, request: Request = HELLO, price: Any = None) -> Response:
    rates = parse_price(price)
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return wire.parse_body(raw, request, lambda call: rates.of(call) if rates else None)


def test_a2_stops_that_a_right_answer_may_begin_with_are_not_sent() -> None:
    request = Request(HELLO.messages, stop=("\n", "\ntext:"))
    assert json.loads(wire.build_body("m", request, {}, Form()))["stop"] == ["\ntext:"]
    assert read(body("\n\ntechnical"), request).text == "\n\ntechnical"


def test_a3_thoughts_that_use_up_all_tokens_are_a_cut_answer() -> None:
    found = read(body(None, "length", message={"reasoning_content": "Let me think"}))
    assert (found.text, found.thoughts, found.finish) == ("", "Let me think", "length")


@pytest.mark.parametrize(
    "message",
    [
        {"content": [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "technical"}]},
        {
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                {"type": "text", "text": "technical"},
            ]
        },
        {"content": "technical", "reasoning": "hm"},
        {"content": "technical", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        {"content": "technical", "reasoning_content": "hm", "reasoning": None},
        {"content": "technical", "reasoning_content": "hm", "reasoning": "hm"},
    ],
)
def test_a4_thoughts_are_known_by_their_type_and_field(message: dict[str, Any]) -> None:
    found = read(body(message=message))
    assert (found.text, found.thoughts) == ("technical", "hm")


@pytest.mark.parametrize(
    ("usage", "tokens", "usd"),
    [
        ({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, None, None),  # M2
        ({"prompt_tokens": 50, "completion_tokens": 5, "total_tokens": 1055}, (50, 1005), 50 + 2010),  # M3
        ({"prompt_tokens": 50, "completion_tokens": 1005, "total_tokens": 1055}, (50, 1005), 50 + 2010),
        (
            {"prompt_tokens": 5000, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4900}},
            (5000, 5),
            600,
        ),
        ({**LONG, "prompt_cache_hit_tokens": 4900}, (5000, 5), 600),  # M4
        ({"prompt_tokens": 100, "completion_tokens": 5, "cache_creation_input_tokens": 40}, (100, 5), 60 + 80 + 10),
        (
            {"prompt_tokens": 5, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 900}},
            (5, 5),
            0.5 + 10,
        ),
        ({"input_tokens": 5, "output_tokens": 5}, (5, 5), 15),
        ({"prompt_tokens": "50", "completion_tokens": 5.0, "total_tokens": None}, (50, 5), 60),
        ({"inputTokens": 50, "outputTokens": 5, "totalTokens": 55}, (50, 5), 60),
        ({"inputTokens": 10, "outputTokens": 5, "cacheReadInputTokens": 40}, (50, 5), 10 + 4 + 10),
        ({"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 40}, (50, 5), 10 + 4 + 10),
        (
            {"prompt_tokens": 50, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 1000}},
            (50, 1005),
            50 + 2010,
        ),
    ],
)
def test_m2_m3_m4_tokens_are_counted_as_they_are_billed(usage: Any, tokens: Any, usd: Any) -> None:
    found = read(body(usage=usage), price={"input": 1e6, "output": 2e6, "cached": 1e5, "cache_write": 2e6})
    assert found.estimated == (tokens is None) and found.prompt_tokens and found.completion_tokens
    if tokens:
        assert (found.prompt_tokens, found.completion_tokens) == tokens and found.usd == pytest.approx(usd)
        assert found.cached == min(usage.get("prompt_cache_hit_tokens", found.cached), 5000)


@pytest.mark.parametrize(
    ("word", "text", "finish"),
    [
        ("max_tokens", "It is about the bil", "length"),
        ("MAX_TOKENS", "It", "length"),
        ("model_length", "It", "length"),
        ("end_turn", "It", "stop"),
        ("COMPLETE", "It", "stop"),
        (None, "It", "stop"),
        ("a new word", "It", "stop"),
        ("stop", "", "empty"),
        ("SAFETY", "", "refusal"),
        ("RECITATION", "", "refusal"),
        ("content_filter", "", "refusal"),
        ("sensitive", "", "refusal"),
    ],
)
def test_r1_words_for_the_end_of_an_answer(word: str | None, text: str, finish: str) -> None:
    assert read(body(text, word)).finish == finish


@pytest.mark.parametrize(
    "word", ["a new word", "abort", "error", "insufficient_system_resource", "MALFORMED_FUNCTION_CALL"]
)
def test_r1_an_answer_that_broke_off_or_says_nothing_that_is_known_is_tried_again(word: str) -> None:
    with pytest.raises(LMError) as caught:
        read(body("", word))
    assert caught.value.kind == "broken" and caught.value.kind.retryable and word in str(caught.value)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (body("bil", error={"code": 502, "message": "upstream"}), "server"),  # R2
        (body("bil", error={"message": "upstream"}), "broken"),
        ({"error": {"code": "429", "message": "Rate limit exceeded"}}, "rate_limit"),  # R3
        ({"error": {"code": 429, "message": "Rate limit exceeded"}}, "rate_limit"),
        ({"error": {"code": "rate_limit_exceeded", "message": "slow"}}, "rate_limit"),
        ({"error": {"status": "RESOURCE_EXHAUSTED", "message": "slow"}}, "rate_limit"),
        ({"error": {"type": "overloaded_error", "message": "Overloaded"}}, "server"),
        ({"error": "it broke"}, "bad_body"),
    ],
)
def test_r2_r3_errors_within_a_200(data: Any, kind: str) -> None:
    with pytest.raises(LMError) as caught:
        read(data)
    assert caught.value.kind == kind


def error(message: str = "", **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


def test_r4_r5_r6_r7_errors_by_their_codes_words_and_status(subtests: pytest.Subtests) -> None:
    for status, answer, kind in [
        (413, error("Request too large for model", code="rate_limit_exceeded"), "rate_limit"),  # R4
        (413, error("too large"), "too_long"),
        (429, error("quota", code="insufficient_quota"), "auth"),
        (429, error("This model's maximum context length"), "rate_limit"),
        (425, error("model is loading"), "server"),  # R5
        (409, error("busy"), "server"),
        (503, {"error": "Model x is currently loading", "estimated_time": 20.0}, "server"),
        (
            400,
            error(TOO_MANY),
            "too_long",
        ),
        (400, error("Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096"), "too_long"),
        (400, error("the request exceeds the available context size", type="exceed_context_size_error"), "too_long"),
        (422, {"detail": "Input validation error: inputs tokens 9000 exceed max_total_tokens 4096"}, "too_long"),
        (400, error("API key not valid. Please pass a valid API key.", status="INVALID_ARGUMENT"), "auth"),  # R7
        (400, [error("API key not valid", status="INVALID_ARGUMENT")], "auth"),
        (403, {"__type": "com.amazon#ThrottlingException", "message": "slow"}, "rate_limit"),
        (529, error("Overloaded", type="overloaded_error"), "server"),
        (400, error("Your credit balance is too low to access the Anthropic API."), "auth"),
        (404, error('No endpoints found that support tool use. Try disabling "look".'), "unsupported"),
        (
            400,
            error("Invalid content type. image_url is not supported by this model: images are not supported"),
            "unsupported",
        ),
        (400, error("`tools` is not supported in this model"), "unsupported"),
        (500, error("tools param requires --jinja flag", type="server_error"), "unsupported"),
        (500, "<html>", "server"),
        (400, error("no such thing"), "bad_request"),
    ]:
        with subtests.test(status=status):
            raw = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            assert wire.error_for(status, {}, raw).kind == kind


def test_r8_a_stream_that_nobody_asked_for_is_read() -> None:
    deltas = [
        {"role": "assistant", "content": ""},
        {"content": "tech"},
        {"content": "nical", "reasoning_content": "hm"},
        {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "look", "arguments": '{"x"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]},
    ]
    events = [{"choices": [{"delta": delta}]} for delta in deltas]
    events += [
        {"choices": [{"delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}},
    ]
    raw = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    found = read(f": comment\n\n{raw}".encode())
    assert (found.text, found.thoughts, found.prompt_tokens, found.completion_tokens) == ("technical", "hm", 3, 4)
    assert found.tool_calls == ({"id": "c1", "name": "look", "arguments": {"x": 1}},)
    with pytest.raises(LMError):
        read(b"data: {broken\n\n")


def test_t7_arguments_that_are_malformed_are_mended() -> None:
    calls = [{"id": None, "function": {"name": "look", "arguments": '{"city": "Paris",}'}}]
    found = read(body(None, "tool_calls", message={"tool_calls": calls}))
    assert found.tool_calls == ({"id": "", "name": "look", "arguments": {"city": "Paris"}},)  # ids: runtime


CALL = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "abc"}


@pytest.mark.parametrize(
    "message",
    [
        {"tool_calls": [{**CALL, "extra_content": {"google": {"thought_signature": "abc"}}}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "abc"}], "tool_calls": [CALL]},
        {"content": [SIGNED, {"type": "text", "text": "x"}], "tool_calls": [CALL]},
        {"reasoning_content": "hm", "tool_calls": [CALL]},
        {"reasoning_content": "", "tool_calls": [CALL]},  # DeepSeek wants it back, too
        {"content": "<think>hm</think>", "tool_calls": [CALL]},  # MiniMax
    ],
)
def test_t9_what_only_the_provider_knows_goes_back_to_it_with_its_calls(message: dict[str, Any]) -> None:
    sent = body(None, message=message)["choices"][0]["message"]
    assert to_message(read(body(None, message=message)).without_thoughts()) == sent
    thought = read(body("x", message={"reasoning_content": "hm", "refusal": None}))
    assert to_message(thought) == {"role": "assistant", "content": "x"}, "DeepSeek refuses thoughts without calls"
    assert read(body("x", message={"refusal": None, "annotations": []})).message is None


def test_t9_a_turn_that_goes_back_has_the_calls_that_stay_with_readable_arguments() -> None:
    calls = [
        {**CALL, "id": n, "function": {"name": name, "arguments": "{}"}} for n, name in (("a", "look"), ("b", "own"))
    ]
    calls[1]["function"] = {"name": "own", "arguments": '{"x": 1,}'}
    found = read(body(None, message={"reasoning_content": "hm", "tool_calls": calls}))
    (kept,) = to_message(replace(found, tool_calls=found.tool_calls[1:]))["tool_calls"]
    assert (kept["id"], json.loads(kept["function"]["arguments"])) == ("b", {"x": 1}), "mended as it was read"
    renamed = to_message(replace(found, tool_calls=tuple({**c, "id": f"our{c['id']}"} for c in found.tool_calls)))
    assert [call["id"] for call in renamed["tool_calls"]] == ["oura", "ourb"]
    nonsense = Response("", tool_calls=({"id": "c", "name": "look", "arguments": "no JSON"},))
    told = to_message(nonsense)["tool_calls"][0]["function"]["arguments"]
    assert json.loads(told) == {"invalid_json": "no JSON"}, "servers refuse what is no JSON"


def test_a1_reasoning_marks_are_thoughts_unless_the_prompt_asks_for_them() -> None:
    said = "<reasoning>billing?</reasoning>\ntechnical"
    assert (read(body(said)).thoughts, read(body(said)).text) == ("billing?", "technical")
    xml = Request(({"role": "user", "content": "Answer with <reasoning>...</reasoning> and <label>."},))
    assert (read(body(said), xml).thoughts, read(body(said), xml).text) == ("", said)
    assert read(body("<reasoning>bil", "length")).text == "", "cut within thoughts"
