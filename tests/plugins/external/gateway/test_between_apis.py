"""What becomes of a request on the way to a server of another API: carried, dropped, or refused by its place.

Numbers `ea...` are those of the findings on existing agents.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.helpers.passing import APIS, FUNCTION, TOOL, USER, model, post
from tests.helpers.upstream import Upstream, upstream

from workbench.runtime import Runtime


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


@pytest.mark.parametrize(
    ("api", "sent", "place"),
    [
        ("chat", {"frequency_penalty": 0.5}, "frequency_penalty"),
        ("chat", {"presence_penalty": -1}, "presence_penalty"),
        ("chat", {"logprobs": True}, "logprobs"),
        ("chat", {"response_format": {"type": "json_object"}}, "response_format.type"),
        ("chat", {"temperature": 1.5}, "temperature"),
        ("responses", {"include": ["message.output_text.logprobs"]}, "logprobs"),
        ("responses", {"text": {"format": {"type": "json_object"}}}, "response_format.type"),
    ],
)
def test_what_anthropics_client_drops_in_silence_is_refused(api: str, sent: dict[str, Any], place: str) -> None:
    """Each was sent on, and answered as if it had not been there."""
    said = {"messages": USER} if api == "chat" else {"input": "hi"}
    nothing = {"frequency_penalty": 0, "logprobs": False, "temperature": 1, "seed": 3} if api == "chat" else {}
    with upstream() as server:
        lm = model("anthropic/up", server.address)
        (status, found, _), (usual, _, _) = post(server, api, {**said, **sent}, {**said, **nothing}, lm=lm)
        assert len(server.asked) == 1
    assert (status, usual) == (400, 200) and found["error"]["message"].startswith(f"{place} ")


def test_a_server_without_the_api_is_asked_as_a_chat_and_remembered() -> None:
    with upstream() as server:
        server.lacks = {"responses"}
        found = post(server, "responses", {"input": "hi", "instructions": "Be brief."}, {"input": "ho"})
        assert [body["output"][0]["content"][0]["text"] for _, body, _ in found] == ["a", "a"]
        assert [path for path, _, _ in server.asked] == ["chat/completions"] * 2


def test_h34_what_includes_ask_for_is_carried_dropped_or_refused_by_its_name() -> None:
    """Codex always asks for `reasoning.encrypted_content`; any other word was dropped in silence, too."""
    included = [
        ["reasoning.encrypted_content", "message.output_text.logprobs"],
        ["file_search_call.results"],
        ["message.input_image.image_url"],
        ["reasoning.encrypted_content", "web_search_call.action.sources"],
    ]
    with upstream() as server:
        server.lacks, lm = {"responses"}, model("openai/up", server.address)
        found = post(server, "responses", *({"input": "hi", "include": include} for include in included), lm=lm)
        assert len(server.asked) == 1 and server.asked[0][1]["logprobs"] is True
    assert [status for status, _, _ in found] == [200, 400, 400, 400]
    told = [body["error"]["message"] for _, body, _ in found[1:]]
    assert told[0].startswith("include[0].file_search_call.results cannot be carried")
    assert "the agent has sent the image" in told[1] and told[2].startswith("include[1].web_search_call")


def test_h34_that_a_server_lacks_an_api_changes_no_key(tmp_path: Any) -> None:
    """Calls behind the first one had another key than those of a run that was resumed, and were paid again."""
    from workbench.lm import LMPool, Native, Request
    from workbench.spec import lm_spec

    def make(text: str) -> Request:
        def convert(body: Any) -> Request:
            return Request(({"role": "user", "content": body["input"]},))

        return Request((), native=Native("responses", {"model": "m", "input": text}, convert=convert))

    async def keys(server: Upstream) -> list[str]:
        pool, spec = LMPool(), lm_spec(model("openai/up", server.address))
        ledger: Any = None
        runtime, found = Runtime(ledger, spec, {}, pool), []
        for text in ("one", "two"):
            request = runtime.fit(spec, make(text))
            found.append(request.key(pool.get(spec).identity))
            await pool.get(spec).complete(request)
        await pool.aclose()
        return found

    async def second(server: Upstream) -> str:
        pool, spec = LMPool(), lm_spec(model("openai/up", server.address))
        ledger: Any = None
        return Runtime(ledger, spec, {}, pool).fit(spec, make("two")).key(pool.get(spec).identity)

    with upstream() as server:
        server.lacks = {"responses"}
        assert asyncio.run(keys(server))[1] == asyncio.run(second(server)), "which a resumed run asks first"
        assert len(server.bodies("chat/completions")) == 2
