"""What a server refuses, and how it answers otherwise than its API says.

Numbers `ea...` are those of the findings on existing agents.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.helpers.passing import APIS, USER, model, post, with_gateway
from tests.helpers.upstream import chat_answer, message_answer, upstream


@pytest.mark.parametrize("words", ["Unsupported parameter: 'temperature'", "temperature is deprecated"])
def test_what_the_server_refuses_is_left_out_as_from_other_requests(words: str) -> None:
    with upstream() as server:
        refusal = (400, {"error": {"message": words, "param": "temperature", "code": "unsupported_parameter"}})
        server.answers["chat/completions"] = [refusal]
        found = post(server, "chat", {"messages": USER, "temperature": 0}, {"messages": USER, "temperature": 0})
        assert [status for status, _, _ in found] == [200, 200]
        asked = server.bodies("chat/completions")
    assert ["temperature" in body for body in asked] == [True, False, False]


def test_ea8_a_refusal_is_told_in_the_servers_words_without_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "key-0123456789")
    refusal = (400, {"error": {"message": "no such thing; key-0123456789", "type": "invalid_request_error"}})
    told: list[str] = []
    with upstream() as server:
        server.answers["responses"] = [refusal]
        server.headers["x-request-id"] = "of key-0123456789"
        lm = model("openai/up", server.address, api_key_env="MY_API_KEY")
        (status, found, _), (_, _, headers) = post(
            server, "responses", {"input": "hi"}, {"input": "x"}, lm=lm, told=told
        )
        server.checks, server.answers["chat/completions"] = {}, [refusal]
        ((bare, _, _),) = post(server, "chat", {"x": 1}, lm=lm)
    assert headers["x-request-id"] == "of ***" and bare == 400
    assert status == 400 and "no such thing; ***" in found["error"]["message"]
    assert told and told[0].startswith("status 400: ") and "no such thing; ***" in told[0]


def test_an_answer_in_another_form_than_the_apis_is_put_into_it() -> None:
    """Mistral and Databricks give parts for a text (docs.mistral.ai, reasoning); clients of the API read none."""
    answer = chat_answer("a")
    answer["choices"][0]["message"]["content"] = [{"type": "text", "text": "a"}]
    with upstream() as server:
        server.answers["chat/completions"] = [answer]
        ((_, found, _),) = post(server, "chat", {"messages": USER})
    assert found["choices"][0]["message"]["content"] == "a"


def test_h34_what_one_api_refuses_is_still_sent_in_another() -> None:
    """A reasoning model takes no temperature in a chat; its Responses may, or a proxy's chat is another server's."""
    refusal = (400, {"error": {"message": "Unsupported parameter: 'temperature'", "param": "temperature"}})

    async def use(client: Any, base: str) -> None:
        for path, body in (
            ("chat/completions", {"messages": USER}),
            ("responses", {"input": "hi"}),
            ("chat/completions", {"messages": USER}),
        ):
            async with client.post(f"{base}/{path}", json={"model": "m", "temperature": 0.5, **body}) as answer:
                assert answer.status == 200

    with upstream() as server:
        server.answers["chat/completions"] = [refusal]
        with_gateway(model("openai/up", server.address), use)
        sent = [(path, "temperature" in body) for path, body, _ in server.asked]
    assert sent == [
        ("chat/completions", True),
        ("chat/completions", False),
        ("responses", True),
        ("chat/completions", False),
    ]


def test_a_server_that_wants_a_number_of_logprobs_is_told_one_at_once() -> None:
    """To Python, true and 1 are equal."""

    async def use(client: Any, base: str) -> None:
        body = {"model": "m", "messages": USER, "logprobs": True}
        async with client.post(f"{base}/chat/completions", json=body) as answer:
            assert answer.status == 200

    with upstream() as server:
        server.answers["chat/completions"] = [(400, {"error": {"message": "logprobs must be an integer"}})]
        with_gateway(model("openai/up", server.address), use)
        assert [repr(body["logprobs"]) for _, body, _ in server.asked] == ["True", "1"]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("api", "limit"), [("chat", "max_tokens"), ("chat", "max_completion_tokens"), ("messages", "max_tokens")]
)
def test_h34_an_answer_far_longer_than_asked_for_is_refused_or_told(api: str, limit: str, streamed: bool) -> None:
    long, told = "x" * (16 * 9 + (1 << 16) + 1), list[str]()
    chunks: list[Any] = [
        {"choices": [{"index": 0, "delta": {"content": long}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        "[DONE]",
    ]
    events: list[Any] = [
        {"type": "message_start", "message": message_answer()},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": long}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]
    whole = chat_answer(long) if api == "chat" else message_answer({"type": "text", "text": long})
    path, name = APIS[api]

    async def use(client: Any, base: str) -> list[int]:
        found = []
        for more in ({limit: 9}, {limit: 9000}):
            body = {"model": "m", "messages": USER, "stream": streamed, **more}
            async with client.post(f"{base}/{path}", json=body) as answer:
                assert (long in await answer.text()) is (streamed or answer.status == 200)
                found.append(answer.status)
        return found

    with upstream() as server:
        answer = (chunks if api == "chat" else events) if streamed else whole
        server.answers[path] = [answer, answer]
        assert with_gateway(model(name, server.address), use, told=told) == [200 if streamed else 502, 200]
    assert len(told) == 1 and "to a request for 9 tokens" in told[0], "what has passed cannot be called back"
