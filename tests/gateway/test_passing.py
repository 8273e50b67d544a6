"""What passes as it is between an agent and a server of the same API, and what is changed on the way: texts alone.

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
from tests.helpers.passing import APIS, model, served, with_gateway
from tests.helpers.upstream import Upstream, chat_answer, message_answer, response_answer, upstream

TOOL = {"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {}}}
FUNCTION = {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{ "a":1 }'}}


def post(server: Upstream, api: str, *bodies: Any, lm: dict[str, Any] | None = None, **more: Any) -> list[Any]:
    """(status, JSON, headers) of each request, one after the other."""
    path, name = APIS[api]

    async def use(client: Any, base: str) -> list[Any]:
        found = []
        for body in bodies:
            headers = {"anthropic-beta": "b1"} if api == "messages" else {}
            async with client.post(f"{base}/{path}", json={"model": "named", **body}, headers=headers) as answer:
                found.append((answer.status, await answer.json(), answer.headers))
        return found

    return with_gateway(lm or model(name, server.address), use, **more)


USER = [{"role": "user", "content": "hi"}]


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

    async def course(server: Upstream, streamed: bool) -> str:
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
        assert asyncio.run(course(server, streamed=False)) == "a"
        server.answers["messages"] = [events, end]
        assert asyncio.run(course(server, streamed=True)) == "a"
        for body in server.bodies("messages")[1::2]:
            assert body["thinking"] == {"type": "enabled", "budget_tokens": 1024}
            assert body["messages"][1]["content"][0] == thought


def test_ea10_thinking_is_refused_by_name_where_it_cannot_be_carried() -> None:
    body = {"messages": USER, "max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    told: list[str] = []
    with upstream() as server:
        lm = model("openai/up", server.address)
        ((status, found, _), (other, _, _)) = post(
            server, "messages", body, {**body, "thinking": {"type": "disabled"}}, lm=lm, told=told
        )
        assert len(server.asked) == 1
    assert (status, other) == (400, 200) and found["error"]["message"].startswith("thinking cannot be carried")
    assert told == [f"status 400: {found['error']['message']}"]


def test_ea13_images_among_parallel_results_follow_the_last_result() -> None:
    picture = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    calls = [{"type": "function_call", "call_id": c, "name": "look", "arguments": "{}"} for c in ("c1", "c2")]
    results = [
        {"type": "function_call_output", "call_id": "c1", "output": [picture]},
        {"type": "function_call_output", "call_id": "c2", "output": "3"},
    ]
    with upstream() as server:
        server.lacks = {"responses"}
        ((status, _, _),) = post(server, "responses", {"input": [*USER, *calls, *results]})
        (asked,) = server.bodies("chat/completions")
    assert status == 200
    assert [message["role"] for message in asked["messages"]] == ["user", "assistant", "tool", "tool", "user"]


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


@pytest.mark.parametrize(
    ("api", "tool"),
    [
        ("messages", {"type": "bash_20250124", "name": "bash"}),
        ("messages", {"type": "memory_20250818", "name": "memory"}),
        ("responses", {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark"}}),
        ("responses", {"type": "namespace", "name": "mcp", "tools": [{"type": "function", **FUNCTION}]}),
        ("responses", {"type": "local_shell"}),
        ("chat", {"type": "custom", "custom": {"name": "patch"}}),
    ],
)
def test_ea15_tools_that_the_client_runs_pass_and_elsewhere_it_is_said_who_knows_them(api: str, tool: Any) -> None:
    given = {"messages": {"messages": USER, "max_tokens": 9}, "chat": {"messages": USER}, "responses": {"input": "hi"}}
    body = {**given[api], "tools": [tool]}
    other = "anthropic/up" if api != "messages" else "openai/up"
    with upstream() as server:
        ((status, _, _),) = post(server, api, body)
        assert status == 200 and server.bodies(APIS[api][0])[0]["tools"] == [tool]
        ((status, found, _),) = post(server, api, body, lm=model(other, server.address))
        assert len(server.asked) == 1
    assert status == 400 and "tools[0].type cannot be" in found["error"]["message"]


@pytest.mark.parametrize("name", ["gpt-6", "ft:gpt-5-mini:org::id", "my-gpt5", "azure-o3", "codex-mini-latest"])
def test_ea16_nothing_is_added_and_the_name_of_a_limit_stays(name: str) -> None:
    with upstream() as server:
        body = {"messages": [{"role": "developer", "content": "Be brief."}, *USER], "max_completion_tokens": 77}
        post(server, "chat", body, {"messages": USER}, lm=model(f"openai/{name}", server.address))
        post(server, "responses", {"input": "hi"}, lm=model(f"openai/{name}", server.address))
        asked = [body for _, body, _ in server.asked]
    assert asked == [{"model": name, **body}, {"model": name, "messages": USER}, {"model": name, "input": "hi"}]


def test_ea16_settings_of_ours_take_the_place_of_the_agents_and_are_told() -> None:
    node = {"temperature": 0.3, "max_tokens": 50}
    with upstream() as server:
        post(server, "chat", {"messages": USER, "temperature": 1}, node=node)
        post(server, "responses", {"input": "hi", "max_output_tokens": 9}, node=node)
        post(server, "chat", {"messages": USER}, lm=model("openai/up", server.address, temperature=0.2))
        asked = [body for _, body, _ in server.asked]
    assert asked == [
        {"model": "up", "messages": USER, "temperature": 0.3, "max_tokens": 50},
        {"model": "up", "input": "hi", "max_output_tokens": 9, "temperature": 0.3},
        {"model": "up", "messages": USER, "temperature": 0.2},
    ]


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
        lacking = model("openai/up", server.address)

        async def status(client: Any, base: str) -> int:
            async with client.post(f"{base}/moderations", json={"input": "hi"}) as answer:
                return answer.status

        assert with_gateway(lacking, status) == 404
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


SLOTS = {
    "system": {"in": "system", "match": "Sort the mail.", "text": "Sort it well."},
    "user": {"in": "user", "match": "Mail: {{1}}", "text": "Letter: {{1}}"},
    "tool": {"in": "tool", "name": "look", "match": "Looks.", "text": "Looks it up."},
    "field": {"in": "field", "name": "answer", "parameter": "a", "match": "The a.", "text": "The right a."},
}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "description": "The a."}}}
BETTER = {"type": "object", "properties": {"a": {"type": "string", "description": "The right a."}}}


def patched_bodies(api: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """(a request with each kind of text, beside much that is not ours to change; the same with the new texts)."""
    kept = {"type": "text", "text": "Mind the rest.", "cache_control": {"type": "ephemeral"}}

    def body(system: str, user: str, tool: str, schema: Any) -> dict[str, Any]:
        if api == "chat":
            parts = [{"type": "text", "text": system}, kept]
            function = {"type": "function", "function": {**FUNCTION, "description": tool, "x": 1}}
            form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
            messages = [{"role": "system", "content": parts, "y": 2}, {"role": "user", "content": user}]
            return {"messages": messages, "tools": [function], "response_format": form, "unknown": {"k": None}}
        if api == "messages":
            blocks = [{"type": "text", "text": system}, kept]
            tools = [{**TOOL, "description": tool, "defer_loading": True}, {"type": "bash_20250124", "name": "bash"}]
            messages = [{"role": "user", "content": [{"type": "text", "text": user}]}]
            form = {"format": {"type": "json_schema", "schema": schema}, "effort": "low"}
            return {"system": blocks, "tools": tools, "messages": messages, "output_config": form, "max_tokens": 9}
        items = [{"type": "reasoning", "id": "rs_1", "encrypted_content": "e", "summary": []}]
        said = {"role": "user", "content": [{"type": "input_text", "text": user}], "z": 3}
        tools = [{"type": "namespace", "name": "n", "tools": [{"type": "function", **FUNCTION, "description": tool}]}]
        text = {"format": {"type": "json_schema", "name": "answer", "schema": schema}, "verbosity": "low"}
        return {"instructions": system, "input": [*items, said], "tools": tools, "text": text}

    before = body("Sort the mail.", "Mail: x", "Looks.", SCHEMA)
    return before, body("Sort it well.", "Letter: x", "Looks it up.", BETTER)


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_texts_are_replaced_where_they_stand_and_nothing_else_changes(api: str, streamed: bool) -> None:
    before, after = patched_bodies(api)
    more = {"stream": True} if streamed else {}
    with upstream() as server:
        post(server, api, {**before, **more}, {**before, **more}, node={"slots": SLOTS})
        asked = server.bodies(APIS[api][0])
    assert asked == [{**after, **more, "model": "up"}] * 2


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_examples_and_instructions_are_inserted_in_the_words_of_the_api(api: str) -> None:
    node = {"demos": [{"text": "old", "label": "b"}], "instructions": "Be brief.", "slots": {"user": SLOTS["user"]}}
    node["slots"] = {"user": {**SLOTS["user"], "match": "Mail: {{text}}", "text": None}}
    user = {"role": "user", "content": "Mail: x"}
    given = {"chat": {"messages": [user]}, "responses": {"input": "Mail: x"}, "messages": {"messages": [user]}}
    shown = [{"role": "user", "content": "Mail: old"}, {"role": "assistant", "content": "b"}, user]
    wanted = {
        "chat": {"messages": [{"role": "system", "content": "Be brief."}, *shown]},
        "responses": {"instructions": "Be brief.", "input": shown},
        "messages": {"system": "Be brief.", "messages": shown, "max_tokens": 9},
    }
    with upstream() as server:
        post(server, api, {**given[api], **({"max_tokens": 9} if api == "messages" else {})}, node=node)
        assert server.bodies(APIS[api][0]) == [{**wanted[api], "model": "up"}]


def test_several_answers_are_one_request_where_the_server_gives_them() -> None:
    answer = chat_answer("a")
    answer["choices"] = [{**answer["choices"][0], "index": n} for n in range(3)]
    with upstream() as server:
        server.answers["chat/completions"] = [answer]
        ((_, found, _),) = post(server, "chat", {"messages": USER, "n": 3})
        assert found == answer and len(server.asked) == 1
        ((_, found, _),) = post(server, "chat", {"messages": USER, "n": 2}, lm=model("anthropic/up", server.address))
        assert len(found["choices"]) == 2 and "n" not in server.bodies("messages")[0] and len(server.asked) == 3


def test_a_server_without_the_api_is_asked_as_a_chat_and_remembered() -> None:
    with upstream() as server:
        server.lacks = {"responses"}
        found = post(server, "responses", {"input": "hi", "instructions": "Be brief."}, {"input": "ho"})
        assert [body["output"][0]["content"][0]["text"] for _, body, _ in found] == ["a", "a"]
        assert [path for path, _, _ in server.asked] == ["chat/completions"] * 2


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


def test_an_answer_that_openai_stores_is_gone_on_with_there() -> None:
    async def course(server: Upstream) -> None:
        async with served(model("openai/up", server.address)) as (gateway, secret):
            async with openai.AsyncOpenAI(base_url=f"{gateway.address}/v1", api_key=secret) as client:
                first = await client.responses.create(model="m", input="hi")
                await client.responses.create(model="m", input="ho", previous_response_id=first.id)

    with upstream() as server:
        asyncio.run(course(server))
        assert server.bodies("responses")[1] == {"input": "ho", "model": "up", "previous_response_id": "resp_1"}


def test_functions_of_ours_are_offered_and_their_turns_stand_in_the_words_of_the_api() -> None:
    source = "def vowels(text):\n    return 2\n"
    node = {"functions": [{"name": "vowels", "description": "Counts.", "parameters": {}, "source": source}]}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    use = {"type": "tool_use", "id": "t1", "name": "vowels", "input": {"text": "abe"}}
    with upstream() as server:
        server.answers["messages"] = [message_answer(thought, use, stop="tool_use")]
        server.answers["responses"] = [
            response_answer(
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"},
                {"type": "function_call", "call_id": "c1", "name": "vowels", "arguments": '{"text": "abe"}'},
            )
        ]
        body = {"messages": USER, "max_tokens": 9, "thinking": {"type": "adaptive"}}
        ((status, found, _),) = post(server, "messages", body, node=node)
        assert status == 200 and found["content"] == [{"type": "text", "text": "a"}]
        second = server.bodies("messages")[1]
        assert second["messages"][1] == {"role": "assistant", "content": [thought, use]}
        assert second["messages"][2]["content"][0]["tool_use_id"] == "t1"
        ((status, _, _),) = post(server, "responses", {"input": "hi"}, node=node)
        kinds = [item.get("type") for item in server.bodies("responses")[1]["input"]]
        assert status == 200 and kinds == [None, "reasoning", "function_call", "function_call_output"]


def test_a_count_is_the_servers_of_the_replaced_texts_and_an_estimate_elsewhere() -> None:
    body = {"model": "m", "system": "Sort the mail.", "messages": [{"role": "user", "content": "Mail: x"}]}

    async def use(client: aiohttp.ClientSession, base: str) -> Any:
        async with client.post(f"{base}/messages/count_tokens", json=body) as answer:
            return await answer.json()

    with upstream() as server:
        server.answers["messages/count_tokens"] = [{"input_tokens": 3}]
        counted = with_gateway(model("anthropic/up", server.address), use, node={"slots": SLOTS})
        assert counted == {"input_tokens": 3}
        assert server.bodies("messages/count_tokens")[0]["system"] == "Sort it well."
        server.lacks = {"messages/count_tokens"}
        for name in ("anthropic/up", "openai/up"):
            assert with_gateway(model(name, server.address), use)["input_tokens"] > 3
        assert len(server.asked) == 1


@pytest.mark.parametrize("api", ["chat", "messages"])
def test_what_is_dropped_between_apis_changes_no_answer_and_what_is_not_known_is_refused(api: str) -> None:
    other = "openai/up" if api == "messages" else "anthropic/up"
    body = {"messages": USER, "max_tokens": 9}
    dropped = {"metadata": {"k": "v"}, "service_tier": "auto"}
    unknown = [
        ({"grammar": "root ::= x"}, "grammar"),
        ({"messages": [{**USER[0], "prefix": True}]}, "messages[0].prefix"),
        ({"tools": [{**TOOL, "defer_loading": True}]}, "tools[0].defer_loading"),
    ]
    with upstream() as server:
        lm = model(other, server.address)
        bodies = [{**body, **dropped}, *({**body, **one} for one, _ in unknown[: 3 if api == "messages" else 2])]
        found = post(server, api, *bodies, lm=lm)
        assert len(server.asked) == 1 and "metadata" not in server.asked[0][1]
    assert found[0][0] == 200
    for (status, told, _), (_, place) in zip(found[1:], unknown, strict=False):
        assert status == 400 and told["error"]["message"].startswith(f"{place} cannot be carried")


def test_fields_that_change_no_answer_are_no_part_of_what_identifies_a_request() -> None:
    from workbench.gateway.table import INERT
    from workbench.lm import Native, Request

    def key(**more: Any) -> str:
        native = Native("responses", {"model": "a", "input": "hi", **more}, inert=INERT["responses"])
        return Request((), native=native).key("m")

    assert key() == key(metadata={"trace": "1"}, prompt_cache_key="k", model="b")
    changed = [key(), key(temperature=1), key(unknown=1), key(stream=True), key(max_tool_calls=1)]
    assert len({*changed}) == 5
