"""Where what passes, what is replaced and what is offered meet in one request (a hostile reading of issue 34)."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import aiohttp
import pytest
from tests.helpers.passing import model, with_gateway
from tests.helpers.upstream import Upstream, chat_answer, response_answer, upstream

from workbench.lm import Native
from workbench_external.gateway import Gateway
from workbench_kit.wire import Form

USER = [{"role": "user", "content": "hi"}]
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
SLOT = {"slots": {"user": {"in": "user", "match": "hi", "text": "HELLO"}}}
SOURCE = "def vowels(text):\n    return 2\n"
FUNCTIONS = {"functions": [{"name": "vowels", "description": "Counts.", "parameters": {}, "source": SOURCE}]}


def ask(server: Upstream, path: str, *bodies: Any, told: Any = None, **node: Any) -> list[Any]:
    """(status, text) of each request, one after the other."""

    async def use(client: aiohttp.ClientSession, base: str) -> list[Any]:
        found = []
        for body in bodies:
            async with client.post(f"{base}/{path}", json={"model": "named", **body}) as answer:
                found.append((answer.status, await answer.text()))
        return found

    return with_gateway(model("openai/up", server.address), use, node=node or None, told=told)


def test_h1_what_a_provider_wants_back_is_put_back_beside_the_replaced_texts() -> None:
    """A refused request was sent again with the agent's own texts, so that the candidate was never asked."""
    wanted = {"extra_content": {"google": {"thought_signature": "s"}}}
    turn = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    second = [*USER, turn, {"role": "tool", "tool_call_id": "c1", "content": "3"}]

    def check(body: Any) -> None:
        from tests.helpers.upstream import Wrong

        if len(body["messages"]) > 1 and "extra_content" not in body["messages"][1]["tool_calls"][0]:
            raise Wrong("Function call is missing a thought_signature in functionCall parts.")

    with upstream() as server:
        server.checks = {"chat/completions": check}
        server.answers["chat/completions"] = [chat_answer("", tool_calls=[{**CALL, **wanted}])]
        found = ask(server, "chat/completions", {"messages": USER}, {"messages": second}, **SLOT)
        sent = [body["messages"] for body in server.bodies("chat/completions")]
    assert [status for status, _ in found] == [200, 200]
    assert [messages[0]["content"] for messages in sent] == ["HELLO"] * 3
    assert sent[-1][1]["tool_calls"][0]["extra_content"] == wanted["extra_content"]


def test_h2_a_streamed_call_of_a_function_of_ours_is_not_shown_to_the_agent() -> None:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "vowels", "arguments": '{"text": "a"}'}}
    calls = [{"index": 0, "delta": {"role": "assistant", "tool_calls": [call]}, "finish_reason": None}]
    first = [{"choices": calls}, {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}, "[DONE]"]
    said = [{"index": 0, "delta": {"content": "two"}, "finish_reason": None}]
    second = [{"choices": said}, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, "[DONE]"]
    with upstream() as server:
        server.answers["chat/completions"] = [first, second]
        ((status, text),) = ask(server, "chat/completions", {"messages": USER, "stream": True}, **FUNCTIONS)
        assert len(server.asked) == 2
    assert status == 200 and "two" in text and "vowels" not in text and text.count("[DONE]") == 1


@pytest.mark.parametrize("lacks", [set(), {"responses"}], ids=["passes", "as a chat"])
def test_h3_texts_of_earlier_turns_are_replaced_where_they_are_known(lacks: set[str]) -> None:
    """A request that goes on with an answer: what the server keeps cannot be replaced, and is no fault of ours."""
    with upstream() as server:
        server.lacks = lacks
        server.answers["responses"] = [response_answer()]

        async def use(client: aiohttp.ClientSession, base: str) -> list[int]:
            found, body = [], {"model": "named", "input": "hi"}
            for _ in range(2):
                async with client.post(f"{base}/responses", json=body) as answer:
                    found.append(answer.status)
                    body = {"model": "m", "input": "and?", "previous_response_id": (await answer.json()).get("id")}
            return found

        assert with_gateway(model("openai/up", server.address), use, node=SLOT) == [200, 200]
        if lacks:
            assert server.bodies("chat/completions")[-1]["messages"][0]["content"] == "HELLO"
        else:
            assert server.bodies("responses")[0]["input"] == "HELLO"


def test_h4_a_refusal_in_a_stream_is_told_to_the_user_too() -> None:
    told: list[str] = []
    with upstream() as server:
        server.answers["chat/completions"] = [[{"error": {"message": "overloaded", "code": 503}}]]
        ask(server, "chat/completions", {"messages": USER, "stream": True}, told=told)
    assert len(told) == 1 and "status 200 with an error" in told[0]


def test_h5_a_body_without_messages_keeps_its_form(subtests: pytest.Subtests) -> None:
    for refused in ["developer", "system", "additions", "temperature", "max_tokens"]:
        for body in [{"input": "hi"}, {"prompt": "hi"}, {"messages": "hi"}]:
            with subtests.test(refused=refused, body=body):
                assert Form(omit=frozenset((refused,))).shape(body) == body


def test_h6_keys_of_the_agent_in_a_body_are_sent_and_never_kept() -> None:
    schema = {"type": "object", "properties": {"authorization": {"type": "string"}, "headers": {"type": "string"}}}
    tools = [
        {"type": "mcp", "server_label": "a", "server_url": "https://a", "authorization": "SECRET-1"},
        {"type": "mcp", "server_label": "b", "server_url": "https://b", "headers": {"X-Key": "SECRET-2"}},
        {"type": "function", "name": "f", "parameters": schema},
        {"type": "shell", "environment": {"network_policy": {"domain_secrets": [{"name": "K", "value": "SECRET-3"}]}}},
    ]
    servers = [{"type": "url", "name": "c", "url": "https://c", "authorization_token": "SECRET-4"}]
    body = {"input": "hi", "tools": tools, "mcp_servers": servers}
    kept = Native("responses", body).as_dict()
    assert "SECRET" not in json.dumps(kept)
    assert kept["body"]["tools"][2] == tools[2] and kept["body"]["input"] == "hi"
    with upstream() as server:
        ask(server, "responses", body)
        assert server.bodies("responses")[0]["tools"] == tools


def test_h7_a_moderation_is_asked_of_the_model_that_it_names() -> None:
    with upstream() as server:
        ask(server, "moderations", {"model": "omni-moderation-latest", "input": "hi"})
        ask(server, "responses/input_tokens", {"model": "gpt-6", "input": "hi"})
        assert [body["model"] for _, body, _ in server.asked] == ["omni-moderation-latest", "up"]


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_h12_a_gateway_listens_at_an_address_of_ipv6(host: str) -> None:
    async def main() -> int:
        gateway = await Gateway.open(host)
        try:
            url = f"{gateway.address}/v1/models"
            async with aiohttp.ClientSession() as client, client.get(url) as answer:
                return answer.status
        finally:
            await gateway.aclose()

    with socket.socket(socket.AF_INET6) as known:
        try:
            known.bind(("::1", 0))
        except OSError:
            pytest.skip("no IPv6 here")
    assert asyncio.run(main()) == 401  # its own name is known: it asks for the secret


def test_h16_an_answer_that_its_server_does_not_keep_is_not_found() -> None:
    """It was given as an empty object."""
    with upstream() as server:
        server.lacks = {"responses/resp_1"}

        async def use(client: aiohttp.ClientSession, base: str) -> list[int]:
            async with client.post(f"{base}/responses", json={"model": "m", "input": "hi"}) as answer:
                found = [answer.status]
            for method in ("GET", "DELETE", "GET"):
                async with client.request(method, f"{base}/responses/resp_1") as answer:
                    found.append(answer.status)
            return found

        assert with_gateway(model("openai/up", server.address), use) == [200, 404, 404, 404]


@pytest.mark.parametrize("lacks", [set(), {"responses"}], ids=["passes", "as a chat"])
def test_h17_a_call_of_ours_that_the_server_keeps_is_not_sent_again(lacks: set[str]) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "vowels", "arguments": '{"text": "a"}'}
    chat = {"id": "c1", "type": "function", "function": {"name": "vowels", "arguments": '{"text": "a"}'}}
    with upstream() as server:
        server.lacks = lacks
        server.answers["responses"] = [response_answer(call), {**response_answer(), "id": "resp_2"}]
        server.answers["chat/completions"] = [chat_answer("", tool_calls=[chat]), chat_answer()]

        async def use(client: aiohttp.ClientSession, base: str) -> int:
            async with client.post(f"{base}/responses", json={"model": "m", "input": "hi"}) as answer:
                body = {"model": "m", "input": "and?", "previous_response_id": (await answer.json())["id"]}
            async with client.post(f"{base}/responses", json=body) as answer:
                return answer.status

        assert with_gateway(model("openai/up", server.address), use, node={**FUNCTIONS, "instructions": "More."}) == 200
        if lacks:
            roles = [message["role"] for message in server.bodies("chat/completions")[-1]["messages"]]
            assert roles.count("tool") == 1 and roles[0] == "system"
        else:
            last = server.bodies("responses")[-1]
            assert last["input"] in ("and?", [{"role": "user", "content": "and?"}]) and last["instructions"] == "More."
