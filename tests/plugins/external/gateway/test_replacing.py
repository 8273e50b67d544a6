"""What is changed in a request on the way to a server of the same API: texts, settings and functions of ours."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from tests.helpers.passing import APIS, FUNCTION, TOOL, USER, model, post, with_gateway
from tests.helpers.upstream import message_answer, response_answer, upstream

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
