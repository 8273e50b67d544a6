"""Answers and errors through DSPy mean what the one table of dialects says, whichever provider's form they have.

Bodies are those of the providers' documentation: platform.openai.com/docs (chat), docs.anthropic.com (messages,
extended thinking), ai.google.dev (generateContent, thought signatures), api-docs.deepseek.com (thinking with tools),
docs.mistral.ai (reasoning), openrouter.ai/docs (errors in choices).
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from workbench.errors import LMError
from workbench.lm import Request, Response, make_lm
from workbench.spec import lm_spec
from workbench_kit.lms.native_calls import to_message

ASK = Request(({"role": "system", "content": "Be kind."}, {"role": "user", "content": "hello there"}))
TOOL = {
    "type": "function",
    "function": {"name": "look", "description": "d", "parameters": {"type": "object", "properties": {}}},
}


class Server:
    """Answers each request with the next (status, body), and keeps what was sent."""

    def __init__(self, *answers: tuple[int, Any]):
        self.answers, self.bodies = [*answers], list[dict[str, Any]]()


@contextmanager
def serving(*answers: tuple[int, Any]) -> Iterator[tuple[Server, str]]:
    server = Server(*answers)

    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True  # else a body waits 40 ms for its head

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_POST(self) -> None:
            server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            status, body = server.answers[min(len(server.bodies), len(server.answers)) - 1]
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=lambda: http.serve_forever(0.005))
    thread.start()
    try:
        yield server, f"http://127.0.0.1:{http.server_address[1]}/v1"
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def ask(base: str, model: str, *requests: Request, **settings: Any) -> list[Response]:
    lm: Any = make_lm(lm_spec({"model": model, "api_base": base, "timeout": 5, **settings}))

    async def main() -> list[Response]:
        try:
            return [await lm.complete(request) for request in requests or (ASK,)]
        finally:
            await lm.aclose()

    return asyncio.run(main())


def answer(model: str, body: Any, request: Request = ASK) -> Response:
    with serving((200, body)) as (_, base):
        return ask(base, model, request)[0]


def chat(content: Any = "billing", finish: Any = "stop", usage: Any = None, **message: Any) -> dict[str, Any]:
    told = usage or {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": content, **message}}
    return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": told}


def claude(*content: Any, stop: str = "end_turn", **usage: int) -> dict[str, Any]:
    told = {"input_tokens": 10, "output_tokens": 5, **usage}
    head = {"id": "m", "type": "message", "role": "assistant", "model": "claude"}
    return {**head, "content": [*content], "stop_reason": stop, "stop_sequence": None, "usage": told}


def gemini(*parts: Any, finish: str = "STOP", **usage: int) -> dict[str, Any]:
    told = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15, **usage}
    candidate = {"content": {"role": "model", "parts": [*parts]}, "finishReason": finish, "index": 0}
    return {"candidates": [candidate], "usageMetadata": told, "modelVersion": "gemini"}


SAID = {"type": "text", "text": "billing"}
ENDS = [
    ("openrouter/m", chat(finish="max_tokens"), "length"),  # R1, as contact.md has it
    ("openrouter/m", chat("", finish="SAFETY"), "refusal"),
    ("groq/m", chat(finish="eos"), "stop"),
    ("openrouter/m", chat(None, refusal="I will not."), "refusal"),
    ("anthropic/m", claude(SAID), "stop"),
    ("anthropic/m", claude(SAID, stop="max_tokens"), "length"),
    ("anthropic/m", claude(SAID, stop="model_context_window_exceeded"), "length"),
    ("anthropic/m", claude(SAID, stop="refusal"), "refusal"),
    ("gemini/m", gemini({"text": "billing"}), "stop"),
    ("gemini/m", gemini({"text": "bil"}, finish="MAX_TOKENS"), "length"),
    ("gemini/m", gemini({"text": ""}, finish="PROHIBITED_CONTENT"), "refusal"),
    ("gemini/m", {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3}}, "refusal"),
]


@pytest.mark.parametrize(("model", "body", "finish"), ENDS, ids=lambda v: v if isinstance(v, str) else "")
def test_R1_the_end_of_an_answer_has_the_words_of_its_provider(model: str, body: Any, finish: str) -> None:
    assert answer(model, body).finish == finish


@pytest.mark.parametrize(
    ("model", "body", "kind"),
    [
        ("openrouter/m", chat("bil", error=None) | {}, None),
        ("openrouter/m", {**chat("bil"), "choices": [{**chat("bil")["choices"][0], "error": {"code": 502}}]}, "server"),
        ("openrouter/m", {**chat("b"), "choices": [{**chat("b")["choices"][0], "error": {"code": 429}}]}, "rate_limit"),
        ("openrouter/m", chat("bil", finish="error"), "broken"),
        ("groq/m", chat("", finish="a_new_word"), "broken"),
        ("gemini/m", gemini({"text": ""}, finish="MALFORMED_FUNCTION_CALL"), "broken"),
    ],
    ids=["whole", "in_a_choice", "limit_in_a_choice", "word", "new_word", "gemini"],
)
def test_R2_a_half_answer_is_none(model: str, body: Any, kind: str | None) -> None:
    if kind is None:
        assert answer(model, body).text == "bil"
        return
    with pytest.raises(LMError) as raised:
        answer(model, body)
    assert raised.value.kind == kind and str(raised.value).startswith(f"{model}: ")


@pytest.mark.parametrize(
    ("model", "status", "error", "kind"),
    [
        pytest.param("openrouter/m", 200, {"message": "slow", "code": "429"}, "rate_limit", id="R3"),
        pytest.param("groq/m", 413, {"message": "TPM", "code": "rate_limit_exceeded"}, "rate_limit", id="R4"),
        pytest.param("groq/m", 425, {"message": "wait"}, "server", id="R5"),
        pytest.param("groq/m", 409, {"message": "wait"}, "server", id="R5-409"),
        pytest.param("groq/m", 400, {"message": "API key not valid", "status": "INVALID_ARGUMENT"}, "auth", id="R7"),
        pytest.param("groq/m", 429, {"message": "You exceeded", "code": "insufficient_quota"}, "auth", id="quota"),
        pytest.param("groq/m", 404, {"message": "no such model"}, "blocked", id="404"),
        pytest.param("groq/m", 529, {"message": "busy", "type": "overloaded_error"}, "server", id="529"),
    ],
)
def test_errors_are_read_by_code_then_words_then_status(model: str, status: int, error: Any, kind: str) -> None:
    with serving((status, {"error": error})) as (server, base), pytest.raises(LMError) as raised:
        ask(base, model)
    assert raised.value.kind == kind and len(server.bodies) == 1


def test_R6_a_prompt_too_long_in_geminis_words() -> None:
    told = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
    error = {"error": {"code": 400, "message": told, "status": "INVALID_ARGUMENT"}}
    with serving((400, error)) as (_, base), pytest.raises(LMError) as raised:
        ask(base, "gemini/m")
    assert raised.value.kind == "too_long"


def test_a_prompt_that_a_filter_stops_is_a_refusal() -> None:
    with serving((400, {"error": {"message": "filtered", "code": "content_filter"}})) as (_, base):
        (response,) = ask(base, "groq/m")
    assert (response.finish, response.text, response.usd) == ("refusal", "", 0.0)


def test_P1_a_setting_that_a_model_refuses_is_left_out_from_then_on() -> None:
    refusal = {"error": {"message": "Unsupported parameter: 'temperature' is not supported with this model.",
                         "param": "temperature", "code": "unsupported_parameter"}}  # fmt: skip
    with serving((400, refusal), (200, chat())) as (server, base):
        ask(base, "groq/m", ASK, ASK)
    assert ["temperature" in body for body in server.bodies] == [True, False, False]


def test_settings_can_be_left_out_and_the_system_role_too() -> None:
    with serving((200, chat())) as (server, base):
        ask(base, "groq/m", omit=["temperature", "system"])
    (body,) = server.bodies
    assert "temperature" not in body
    assert body["messages"] == [{"role": "user", "content": "Be kind.\n\nhello there"}]


def test_a_stop_that_is_the_end_of_a_line_is_not_sent() -> None:
    request = Request(ASK.messages, stop=("\n", "\nanswer:"))
    with serving((200, chat("\nbilling\nanswer: x"))) as (server, base):
        (response,) = ask(base, "groq/m", request)
    assert server.bodies[0]["stop"] == ["\nanswer:"] and response.text == "\nbilling"


THOUGHTS = [
    ("deepseek/m", chat(reasoning_content="It is about a bill.")),
    ("openrouter/m", chat(reasoning="It is about a bill.")),
    ("openrouter/m", chat([{"type": "thinking", "thinking": [{"type": "text", "text": "It is about a bill."}]}, SAID])),
    ("anthropic/m", claude({"type": "thinking", "thinking": "It is about a bill.", "signature": "s"}, SAID)),
    ("gemini/m", gemini({"text": "It is about a bill.", "thought": True}, {"text": "billing"})),
]


@pytest.mark.parametrize(("model", "body"), THOUGHTS, ids=["deepseek", "openrouter", "mistral", "anthropic", "gemini"])
def test_thoughts_are_kept_beside_the_text(model: str, body: Any) -> None:
    response = answer(model, body)
    assert (response.text, response.thoughts, response.finish) == ("billing", "It is about a bill.", "stop")
    assert response.message is None, "they go back with calls alone"


#: (model, body, (prompt, completion, cached, written))
USAGE = [
    ("groq/m", chat(usage={"prompt_tokens": 0, "completion_tokens": 0}), (None, None, 0, 0)),
    (
        "openrouter/m",
        chat(usage={"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}),
        (9, 2, 4, 0),
    ),
    (
        "anthropic/m",
        claude(SAID, cache_read_input_tokens=100, cache_creation_input_tokens=20),
        (130, 5, 100, 20),
    ),
    ("gemini/m", gemini({"text": "billing"}, thoughtsTokenCount=30, totalTokenCount=45), (10, 35, 0, 0)),
    ("gemini/m", gemini({"text": "billing"}, cachedContentTokenCount=4), (10, 5, 4, 0)),
]


@pytest.mark.parametrize(("model", "body", "told"), USAGE, ids=["zero", "openai", "anthropic", "thoughts", "gemini"])
def test_tokens_of_thoughts_and_caches_are_counted(model: str, body: Any, told: tuple[Any, ...]) -> None:
    response = answer(model, body)
    assert (response.cached, response.cache_write) == told[2:]
    assert response.estimated == (told[0] is None)
    if told[0] is not None:
        assert (response.prompt_tokens, response.completion_tokens) == told[:2]


def test_cached_tokens_have_their_own_price() -> None:
    price = {"input": 10, "output": 0, "cached": 1, "cache_write": 12}
    body = claude(SAID, cache_read_input_tokens=100, cache_creation_input_tokens=20)
    with serving((200, body)) as (_, base):
        (response,) = ask(base, "anthropic/m", price=price)
    assert response.usd == pytest.approx((10 * 10 + 100 * 1 + 20 * 12) / 1e6)


CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}
SIGNED = [
    (
        "anthropic/m",
        claude(
            {"type": "thinking", "thinking": "I should look.", "signature": "abc"},
            {"type": "tool_use", "id": "t1", "name": "look", "input": {"x": 1}},
            stop="tool_use",
        ),
    ),
    ("gemini/m", gemini({"functionCall": {"name": "look", "args": {"x": 1}}, "thoughtSignature": "abc"})),
    ("deepseek/m", chat("", "tool_calls", reasoning_content="abc", tool_calls=[CALL])),
]


@pytest.mark.parametrize(("model", "body"), SIGNED, ids=["anthropic", "gemini", "deepseek"])
def test_T9_what_a_provider_wants_back_with_a_call_goes_back(model: str, body: Any) -> None:
    """Through the message that agents, journals and gateways keep as JSON, and with another id of the call."""
    with serving((200, body)) as (server, base):
        (first,) = ask(base, model, Request(ASK.messages, tools=(TOOL,)))
        assert [(call["name"], call["arguments"]) for call in first.tool_calls] == [("look", {"x": 1})]
        said = json.loads(json.dumps(to_message(first)))
        said["tool_calls"][0]["id"] = "renamed"
        result = {"role": "tool", "tool_call_id": "renamed", "content": "a cat"}
        ask(base, model, Request((*ASK.messages, said, result), tools=(TOOL,)))
    sent = json.dumps(server.bodies[1])
    assert "abc" in sent and "a cat" in sent and "dspy_message" not in sent
    assert "abc" not in json.dumps(server.bodies[0]) and ("t1" not in sent)


def test_messages_of_another_provider_are_sent_without_what_only_it_knows() -> None:
    """A demo's exchange may be of an agent that ran elsewhere."""
    foreign = {"role": "assistant", "content": "", "reasoning_details": [{"x": 1}], "extra_content": {"google": {}},
               "tool_calls": [{**CALL, "extra_content": {"google": {"thought_signature": "abc"}}}]}  # fmt: skip
    result = {"role": "tool", "tool_call_id": "c1", "content": "a cat"}
    with serving((200, chat())) as (server, base):
        (response,) = ask(base, "groq/m", Request((*ASK.messages, foreign, result), tools=(TOOL,)))
    assert response.text == "billing" and "abc" not in json.dumps(server.bodies)
    assert server.bodies[0]["messages"][2]["tool_calls"][0]["function"]["name"] == "look"


def test_T7_malformed_arguments_of_a_call_are_mended() -> None:
    call = {**CALL, "function": {"name": "look", "arguments": '{"city": "Paris",}'}}
    response = answer("groq/m", chat("", "tool_calls", tool_calls=[call]), Request(ASK.messages, tools=(TOOL,)))
    assert response.tool_calls[0]["arguments"] == {"city": "Paris"}


@pytest.mark.parametrize("model", ["openrouter/m", "anthropic/m"])
def test_a_key_that_the_server_echoes_is_nowhere_in_an_answer(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_OWN", key := "sk-canary-0123456789")
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": json.dumps({"q": key})}}
    bodies = {
        "openrouter/m": chat(key, reasoning=f"my {key}", tool_calls=[call]),
        "anthropic/m": claude(
            {"type": "thinking", "thinking": f"my {key}", "signature": f"s {key}"},
            {"type": "text", "text": key},
            {"type": "tool_use", "id": "c", "name": "look", "input": {"q": key}},
        ),
    }
    with serving((200, bodies[model])) as (_, base):
        (found,) = ask(base, model, Request(ASK.messages, tools=(TOOL,)), api_key_env="MY_OWN")
    assert found.tool_calls and found.thoughts and "canary" not in str(found)


@pytest.mark.parametrize("model", ["openai/m", "openrouter/m"])
def test_an_answer_without_a_setting_is_not_taken_for_one_with_it(model: str) -> None:
    def identity(**settings: Any) -> str:
        return make_lm(lm_spec({"model": model, "api_base": "http://127.0.0.1:9/v1", **settings})).identity

    assert identity(omit=["temperature"]) != identity() == identity(omit=[])
    assert identity(omit=["system", "stop"]) == identity(omit=["stop", "system"])
