"""What Anthropic's own client reads from the gateway, and what the session is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import anthropic
import pytest
from tests.helpers.gateway_sessions import CALLS, HELLO, ScriptedSession, opened

from workbench.errors import BudgetSpent, LMError
from workbench.lm import Response
from workbench_external.gateway import Refused

USER: Any = [{"role": "user", "content": "hi"}]
ADD: Any = {"name": "add", "description": "Adds.", "input_schema": {"type": "object", "properties": {}}}


def ask(session: ScriptedSession, use: Callable[[Any], Awaitable[Any]], retries: int = 0) -> Any:
    async def main() -> Any:
        async with opened(session) as (gateway, secret):
            variables = gateway.environment(secret, {})
            base, key = variables["ANTHROPIC_BASE_URL"], variables["ANTHROPIC_API_KEY"]
            async with anthropic.AsyncAnthropic(base_url=base, api_key=key, max_retries=retries) as client:
                return await use(client)

    return asyncio.run(main())


def test_a_message_comes_back_whole() -> None:
    session = ScriptedSession()
    settings = {"stop_sequences": ["x"], "thinking": {"type": "disabled"}}
    older = {"temperature": 0.5, "top_k": 4}  # which clients of 2026 no longer name
    found = ask(
        session, lambda c: c.messages.create(model="m", max_tokens=9, messages=USER, extra_body=older, **settings)
    )
    assert [block.text for block in found.content] == [HELLO.text]
    assert (found.stop_reason, found.usage.input_tokens, found.usage.output_tokens) == ("end_turn", 7, 11)
    assert session.asked[0].settings == {
        "temperature": 0.5,
        "max_tokens": 9,
        "stop": ("x",),
        "extra": {"top_k": 4},
    }


def test_a_streamed_message_says_the_same_in_the_order_of_the_api() -> None:
    async def use(client: Any) -> Any:
        whole = await client.messages.create(model="m", max_tokens=9, messages=USER, tools=[ADD])
        async with client.messages.stream(model="m", max_tokens=9, messages=USER, tools=[ADD]) as stream:
            async for _ in stream:
                pass
            streamed = await stream.get_final_message()
        raw = await client.messages.create(model="m", max_tokens=9, messages=USER, stream=True)
        return whole, streamed, [event.type async for event in raw]

    whole, streamed, kinds = ask(ScriptedSession(CALLS), use)
    for found in (whole, streamed):
        assert [block.type for block in found.content] == ["text", "tool_use", "tool_use"]
        assert found.content[0].text == "Let me see."
        assert [(b.id, b.name, b.input) for b in found.content[1:]] == [
            ("call_a", "add", {"a": 1, "b": 2}),
            ("call_b", "look", {"at": "the sky"}),
        ]
        assert (found.stop_reason, found.usage.input_tokens, found.usage.output_tokens) == ("tool_use", 5, 9)
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    short = [kind for n, kind in enumerate(kinds) if n == 0 or kinds[n - 1] != kind]
    assert short == ["message_start", *block, *block, *block, "message_delta", "message_stop"]


def test_a_conversation_reaches_the_session_as_a_chat() -> None:
    session = ScriptedSession()
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    messages: Any = [
        {"role": "user", "content": [{"type": "text", "text": "See:"}, image]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "I call."},
                {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}},
                {"type": "tool_use", "id": "t2", "name": "add", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "1"},
                {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "2"}, image]},
                {"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}},
            ],
        },
    ]
    system: Any = [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}]
    choice: Any = {"type": "tool", "name": "add", "disable_parallel_tool_use": True}
    ask(
        session,
        lambda c: c.messages.create(
            model="m", max_tokens=9, messages=messages, system=system, tools=[ADD], tool_choice=choice
        ),
    )
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    call = {"type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    found = session.asked[0]
    assert found.messages[0] == {"role": "system", "content": "Be\nbrief."}
    assert found.messages[1] == {"role": "user", "content": [{"type": "text", "text": "See:"}, part]}
    assert found.messages[2]["content"] == "I call."
    assert found.messages[2]["tool_calls"][0] == {"id": "t1", **call}
    assert found.messages[3:] == (
        {"role": "tool", "content": "1", "tool_call_id": "t1"},
        {"role": "tool", "content": "2", "tool_call_id": "t2"},
        {"role": "user", "content": [part, {"type": "text", "text": "Go on."}]},
    )
    function = {"name": "add", "description": "Adds.", "parameters": ADD["input_schema"]}
    assert found.tools == ({"type": "function", "function": function},)
    assert found.settings["extra"] == {
        "tool_choice": {"type": "function", "function": {"name": "add"}},
        "parallel_tool_calls": False,
    }


@pytest.mark.parametrize(
    ("choice", "told"), [({"type": "any"}, "required"), ({"type": "auto"}, "auto"), ({"type": "none"}, "none")]
)
def test_choices_of_tools_are_translated(choice: Any, told: str) -> None:
    session = ScriptedSession()
    ask(
        session,
        lambda c: c.messages.create(model="m", max_tokens=9, messages=USER, tools=[ADD], tool_choice=choice),
    )
    assert session.asked[0].settings["extra"] == {"tool_choice": told}


def test_a_schema_is_asked_for() -> None:
    session = ScriptedSession(Response('{"a": 1}'))
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    config: Any = {"format": {"type": "json_schema", "schema": schema}}
    found = ask(session, lambda c: c.messages.create(model="m", max_tokens=9, messages=USER, output_config=config))
    assert json.loads(found.content[0].text) == {"a": 1}
    assert session.asked[0].settings["response_format"]["json_schema"]["schema"] == schema


@pytest.mark.parametrize(
    ("answer", "reason"), [(Response("a", "length"), "max_tokens"), (Response("No.", "refusal"), "refusal")]
)
def test_why_an_answer_ended_is_told(answer: Response, reason: str) -> None:
    found = ask(ScriptedSession(answer), lambda c: c.messages.create(model="m", max_tokens=9, messages=USER))
    assert found.stop_reason == reason


def test_arguments_that_are_no_object_are_given_as_they_are() -> None:
    answer = Response("", "tool_calls", tool_calls=({"id": "c", "name": "add", "arguments": '{"a": '},))
    found = ask(ScriptedSession(answer), lambda c: c.messages.create(model="m", max_tokens=9, messages=USER))
    assert found.content[0].input == {"invalid_json": '{"a": '}


def test_tokens_are_counted_high() -> None:
    def count(text: str, **more: Any) -> int:
        messages: Any = [{"role": "user", "content": text}]
        return ask(
            ScriptedSession(), lambda c: c.messages.count_tokens(model="m", messages=messages, **more)
        ).input_tokens

    assert count("word " * 300) >= 400 > count("word") > 0
    assert count("word", tools=[ADD], system="Be brief.") > count("word", tools=[ADD]) > count("word")


def test_models_are_listed_in_its_form() -> None:
    async def use(client: Any) -> Any:
        return [m.id async for m in client.models.list()], (await client.models.retrieve("large")).display_name

    assert ask(ScriptedSession(), use) == (["small", "large"], "large")


@pytest.mark.parametrize(
    ("error", "raised", "kind"),
    [
        (LMError("too_long", "secret address"), anthropic.BadRequestError, "invalid_request_error"),
        (LMError("server", "secret address"), anthropic.InternalServerError, "api_error"),
        (Refused(404, "not_found", "There is no such model."), anthropic.NotFoundError, "not_found_error"),
        (BudgetSpent("calls", 5, 6), anthropic.RateLimitError, "rate_limit_error"),
    ],
)
def test_errors_have_their_class_and_type_also_in_streams(error: Exception, raised: type, kind: str) -> None:
    for stream in (False, True):
        with pytest.raises(raised) as caught:
            ask(
                ScriptedSession(error),
                lambda c: c.messages.create(model="m", max_tokens=9, messages=USER, stream=stream),  # noqa: B023
            )
        assert caught.value.body["error"]["type"] == kind and "secret" not in str(caught.value)


def test_a_rate_limit_is_tried_again_and_a_spent_budget_is_not() -> None:
    session = ScriptedSession(Refused(429, "rate_limit", "Wait.", retry_after=0.05), HELLO)
    ask(session, lambda c: c.messages.create(model="m", max_tokens=9, messages=USER), retries=2)
    assert len(session.asked) == 2
    spent = ScriptedSession(BudgetSpent("calls", 5, 6))
    with pytest.raises(anthropic.RateLimitError, match="budget"):
        ask(spent, lambda c: c.messages.create(model="m", max_tokens=9, messages=USER), retries=2)
    assert len(spent.asked) == 1
