"""What passes as it is between an agent and a server of the same API.

Numbers `ea...` are those of the findings on existing agents.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import anthropic
import openai
import pytest
from tests.helpers.passing import CALL, FUNCTION, TOOL, USER, model, post, served, with_gateway
from tests.helpers.upstream import Upstream, chat_answer, message_answer, upstream


def test_ea1_a_turn_with_calls_and_no_text_goes_to_anthropic_without_an_empty_text() -> None:
    use = {"type": "tool_use", "id": "t1", "name": "look", "input": {"a": 1}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "3"}
    turns = [*USER, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    chat = [*USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
    chat.append({"role": "tool", "tool_call_id": "c1", "content": "3"})
    items = [
        *USER,
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "3"},
    ]
    with upstream() as server:
        lm = model("anthropic/up", server.address)
        found = post(server, "messages", {"messages": turns, "max_tokens": 9, "tools": [TOOL]})
        found += post(server, "chat", {"messages": chat, "tools": [{"type": "function", "function": FUNCTION}]}, lm=lm)
        found += post(server, "responses", {"input": items, "tools": [{"type": "function", **FUNCTION}]}, lm=lm)
        asked = [body["messages"][1]["content"] for body in server.bodies("messages")]
    assert [status for status, _, _ in found] == [200, 200, 200]
    assert asked[0] == [use] and [[block["type"] for block in content] for content in asked[1:]] == [["tool_use"]] * 2


def test_ea1_null_stays_null_and_arguments_stay_the_very_text() -> None:
    messages = [*USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
    messages.append({"role": "tool", "tool_call_id": "c1", "content": "3"})
    with upstream() as server:
        post(server, "chat", {"messages": messages})
        assert server.bodies("chat/completions") == [{"model": "up", "messages": messages}]


def test_ea10_thinking_passes_both_ways_with_its_signature_whole_and_streamed() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "sig=="}
    use = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}

    def begun(n: int, block: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
        start = {"type": "content_block_start", "index": n, "content_block": block}
        pieces = [{"type": "content_block_delta", "index": n, "delta": delta} for delta in deltas]
        return [start, *pieces, {"type": "content_block_stop", "index": n}]

    events = [
        {"type": "message_start", "message": {**message_answer(), "stop_reason": None}},
        *begun(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "Hm."},
            {"type": "signature_delta", "signature": "sig=="},
        ),
        *begun(1, {**use, "input": {}}, {"type": "input_json_delta", "partial_json": "{}"}),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]

    async def use_client(client: anthropic.AsyncAnthropic, streamed: bool) -> str:
        messages: list[Any] = [*USER]
        settings: Any = {"model": "named", "max_tokens": 2000, "tools": [TOOL]}
        settings["thinking"] = {"type": "enabled", "budget_tokens": 1024}
        while True:
            if streamed:
                async with client.messages.stream(messages=messages, **settings) as stream:
                    answer = await stream.get_final_message()
            else:
                answer = await client.messages.create(messages=messages, **settings)
            if answer.stop_reason != "tool_use":
                return answer.content[0].text
            messages.append({"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in answer.content]})
            result = {"type": "tool_result", "tool_use_id": "t1", "content": "3"}
            messages.append({"role": "user", "content": [result]})

    async def main(server: Upstream, streamed: bool) -> str:
        async with served(model("anthropic/up", server.address)) as (gateway, secret):
            variables = gateway.environment(secret, {})
            async with anthropic.AsyncAnthropic(
                base_url=variables["ANTHROPIC_BASE_URL"], api_key=secret, max_retries=0
            ) as client:
                return await use_client(client, streamed)

    with upstream() as server:
        end = [
            {"type": "message_start", "message": {**message_answer(), "stop_reason": None}},
            *begun(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "a"}),
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
            {"type": "message_stop"},
        ]
        server.answers["messages"] = [message_answer(thought, use, stop="tool_use")]
        assert asyncio.run(main(server, streamed=False)) == "a"
        server.answers["messages"] = [events, end]
        assert asyncio.run(main(server, streamed=True)) == "a"
        for body in server.bodies("messages")[1::2]:
            assert body["thinking"] == {"type": "enabled", "budget_tokens": 1024}
            assert body["messages"][1]["content"][0] == thought


def test_ea14_tokens_and_alternatives_of_logprobs_come_as_the_server_gave_them() -> None:
    token = {
        "token": "b",
        "bytes": [98],
        "logprob": -0.1,
        "top_logprobs": [{"token": "c", "bytes": [99], "logprob": -2}],
    }
    answer = chat_answer("b")
    answer["choices"][0]["logprobs"] = {"content": [token], "refusal": None}
    with upstream() as server:
        server.answers["chat/completions"] = [answer]
        ((_, found, _),) = post(server, "chat", {"messages": USER, "logprobs": True, "top_logprobs": 1})
        assert server.bodies("chat/completions")[0]["top_logprobs"] == 1
    assert found["choices"][0]["logprobs"]["content"] == [token]


@pytest.mark.parametrize("name", ["gpt-6", "ft:gpt-5-mini:org::id", "my-gpt5", "azure-o3", "codex-mini-latest"])
def test_ea16_nothing_is_added_and_the_name_of_a_limit_stays(name: str) -> None:
    with upstream() as server:
        body = {"messages": [{"role": "developer", "content": "Be brief."}, *USER], "max_completion_tokens": 77}
        post(server, "chat", body, {"messages": USER}, lm=model(f"openai/{name}", server.address))
        post(server, "responses", {"input": "hi"}, lm=model(f"openai/{name}", server.address))
        asked = [body for _, body, _ in server.asked]
    assert asked == [{"model": name, **body}, {"model": name, "messages": USER}, {"model": name, "input": "hi"}]


def test_ea17_cached_tokens_are_told_and_paid_at_their_rate() -> None:
    usage = {
        "prompt_tokens": 1000,
        "completion_tokens": 10,
        "total_tokens": 1010,
        "prompt_tokens_details": {"cached_tokens": 900},
    }
    told = {"input_tokens": 100, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 0, "output_tokens": 10}
    price = {"input": 10, "output": 10, "cached": 1}

    async def usd(server: Upstream, name: str, path: str, body: Any) -> float:
        async with served(model(name, server.address, price=price)) as (gateway, secret):
            session: Any = gateway._door.everybody()[0].session
            async with aiohttp.ClientSession() as client:
                url = f"{gateway.address}/v1/{path}"
                async with client.post(url, json=body, headers={"x-api-key": secret}) as answer:
                    found = await answer.json()
                    details = found["usage"].get("prompt_tokens_details") or found["usage"]
                    assert details.get("cached_tokens") or details["cache_read_input_tokens"]
            return session.named.by_name["m"]["usd"]

    body = {"model": "m", "messages": USER, "max_tokens": 9}
    cached = [{"type": "text", "text": "Long.", "cache_control": {"type": "ephemeral"}}]
    with upstream() as server:
        server.answers["chat/completions"] = [{**chat_answer(), "usage": usage}]
        server.answers["messages"] = [{**message_answer({"type": "text", "text": "a"}), "usage": told}]
        more = {"prompt_cache_key": "k", "prompt_cache_retention": "24h", "service_tier": "flex"}
        paid = [asyncio.run(usd(server, "openai/up", "chat/completions", {**body, **more}))]
        paid.append(asyncio.run(usd(server, "anthropic/up", "messages", {**body, "system": cached})))
        assert server.bodies("chat/completions")[0] == {**body, **more, "model": "up"}
        assert server.bodies("messages")[0]["system"] == cached
    assert paid == pytest.approx([0.002, 0.002])


def test_ea18_other_paths_go_to_the_server_that_has_them_and_headers_of_answers_come_back() -> None:
    async def use(client: Any, base: str) -> list[Any]:
        found = []
        for method, path in (
            ("POST", "responses/input_tokens"),
            ("GET", "responses/resp_9/input_items?limit=2"),
            ("POST", "moderations"),
            ("POST", "completions"),
            ("GET", "responses/resp_9"),
        ):
            body = {"model": "m", "input": "hi", "prompt": "hi"} if method == "POST" else None
            async with client.request(method, f"{base}/{path}", json=body) as answer:
                found.append((answer.status, (await answer.json())["object"], answer.headers["x-request-id"]))
        return found

    with upstream() as server:
        found = with_gateway(model("openai/up", server.address), use)
        asked = [(path, body.get("model"), body.get("limit")) for path, body, _ in server.asked]
        server.lacks = {"moderations"}
        missing = model("openai/up", server.address)

        async def status(client: Any, base: str) -> int:
            async with client.post(f"{base}/moderations", json={"input": "hi"}) as answer:
                return answer.status

        assert with_gateway(missing, status) == 404
    assert found == [
        (200, "responses/input_tokens", "req_1"),
        (200, "responses/resp_9/input_items", "req_1"),
        (200, "moderations", "req_1"),
        (200, "text_completion", "req_1"),
        (200, "responses/resp_9", "req_1"),
    ]
    assert asked == [
        ("responses/input_tokens", "up", None),
        ("responses/resp_9/input_items", None, "2"),
        ("moderations", "m", None),
        ("completions", "up", None),
        ("responses/resp_9", None, None),
    ]


def test_headers_that_change_an_answer_pass_and_no_other() -> None:
    with upstream() as server:
        post(server, "messages", {"messages": USER, "max_tokens": 9})
        _, _, headers = server.asked[0]
    assert headers["anthropic-beta"] == "b1" and headers["anthropic-version"] == "2023-06-01"
    assert "sk-workbench" not in json.dumps(dict(headers))


def test_an_answer_of_anthropic_may_name_the_version_of_its_api() -> None:
    said = {"type": "text", "text": "Send the header anthropic-version: 2023-06-01."}
    with upstream() as server:
        server.answers["messages"] = [message_answer(said)]
        [(_, found, _)] = post(server, "messages", {"messages": USER, "max_tokens": 9})
        assert server.asked[0][2]["anthropic-version"] == "2023-06-01"
    assert found["content"] == [said]


def test_several_answers_are_one_request_where_the_server_gives_them() -> None:
    answer = chat_answer("a")
    answer["choices"] = [{**answer["choices"][0], "index": n} for n in range(3)]
    with upstream() as server:
        server.answers["chat/completions"] = [answer]
        ((_, found, _),) = post(server, "chat", {"messages": USER, "n": 3})
        assert found == answer and len(server.asked) == 1
        ((_, found, _),) = post(server, "chat", {"messages": USER, "n": 2}, lm=model("anthropic/up", server.address))
        assert len(found["choices"]) == 2 and "n" not in server.bodies("messages")[0] and len(server.asked) == 3


def test_an_answer_that_openai_stores_is_gone_on_with_there() -> None:
    async def main(server: Upstream) -> None:
        async with served(model("openai/up", server.address)) as (gateway, secret):
            async with openai.AsyncOpenAI(base_url=f"{gateway.address}/v1", api_key=secret) as client:
                first = await client.responses.create(model="m", input="hi")
                await client.responses.create(model="m", input="ho", previous_response_id=first.id)

    with upstream() as server:
        asyncio.run(main(server))
        assert server.bodies("responses")[1] == {"input": "ho", "model": "up", "previous_response_id": "resp_1"}


def test_fields_that_change_no_answer_are_no_part_of_what_identifies_a_request() -> None:
    from workbench.lm import Native, Request
    from workbench_external.gateway.table import INERT

    def key(**more: Any) -> str:
        native = Native("responses", {"model": "a", "input": "hi", **more}, inert=INERT["responses"])
        return Request((), native=native).key("m")

    assert key() == key(metadata={"trace": "1"}, prompt_cache_key="k", model="b")
    changed = [key(), key(temperature=1), key(unknown=1), key(stream=True), key(max_tool_calls=1)]
    assert len({*changed}) == 5
