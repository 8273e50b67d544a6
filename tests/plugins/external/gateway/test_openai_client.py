"""What OpenAI's own client for Python reads from the gateway, and what the session is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import openai
import pytest
from openai import AsyncAzureOpenAI, AsyncOpenAI
from pydantic import BaseModel
from tests.helpers.gateway_sessions import CALLS, HELLO, ScriptedSession, opened

from workbench.errors import BudgetSpent, Interrupted, LMError
from workbench.lm import Response
from workbench_external.gateway import Refused

USER: Any = [{"role": "user", "content": "hi"}]
PIXEL = "data:image/png;base64,iVBORw0KGgo="
ADD = {
    "name": "add",
    "description": "Adds.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
}


def ask(session: ScriptedSession, use: Callable[[AsyncOpenAI], Awaitable[Any]], retries: int = 0) -> Any:
    async def main() -> Any:
        async with opened(session) as (gateway, secret):
            variables = gateway.environment(secret, {})
            base, key = variables["OPENAI_BASE_URL"], variables["OPENAI_API_KEY"]
            async with AsyncOpenAI(base_url=base, api_key=key, max_retries=retries) as client:
                return await use(client)

    return asyncio.run(main())


def test_a_chat_comes_back_whole() -> None:
    session = ScriptedSession(HELLO)
    found = ask(
        session, lambda c: c.chat.completions.create(model="m", messages=USER, temperature=0.5, seed=3, stop="x")
    )
    assert found.choices[0].message.content == HELLO.text and found.choices[0].finish_reason == "stop"
    assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.total_tokens) == (7, 11, 18)
    assert session.asked[0].settings == {"temperature": 0.5, "stop": ("x",), "extra": {"seed": 3}}
    assert session.asked[0].messages == ({"role": "user", "content": "hi"},)


def test_a_streamed_chat_says_the_same_as_a_whole_one() -> None:
    async def use(client: AsyncOpenAI) -> Any:
        whole = await client.chat.completions.create(model="m", messages=USER)
        async with client.chat.completions.stream(
            model="m", messages=USER, stream_options={"include_usage": True}
        ) as stream:
            kinds = [event.type async for event in stream]
            return whole, await stream.get_final_completion(), kinds

    whole, streamed, kinds = ask(ScriptedSession(CALLS), use)
    said, told = whole.choices[0].message, streamed.choices[0].message
    assert (said.content, streamed.usage) == (told.content, whole.usage)
    assert [(c.id, c.function.name, c.function.arguments) for c in told.tool_calls] == [
        ("call_a", "add", '{"a": 1, "b": 2}'),
        ("call_b", "look", '{"at": "the sky"}'),
    ]
    assert whole.choices[0].finish_reason == streamed.choices[0].finish_reason == "tool_calls"
    assert kinds.count("content.done") == 1 and kinds.count("tool_calls.function.arguments.done") == 2


def test_usage_is_streamed_only_where_asked_for() -> None:
    async def use(client: AsyncOpenAI) -> list[Any]:
        return [c async for c in await client.chat.completions.create(model="m", messages=USER, stream=True)]

    chunks = ask(ScriptedSession(), use)
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)
    assert len({chunk.id for chunk in chunks}) == 1 and len(chunks) > 3


def test_a_conversation_with_tools_reaches_the_session() -> None:
    session = ScriptedSession(CALLS, HELLO)

    async def use(client: AsyncOpenAI) -> None:
        tools: Any = [{"type": "function", "function": ADD}]
        messages = [{"role": "developer", "content": "Be brief."}, *USER]
        first = await client.chat.completions.create(
            model="m", messages=messages, tools=tools, tool_choice="required", parallel_tool_calls=True
        )
        messages.append(first.choices[0].message)  # type: ignore[arg-type]
        messages += [
            {"role": "tool", "tool_call_id": c.id, "content": "3"} for c in first.choices[0].message.tool_calls
        ]
        await client.chat.completions.create(model="m", messages=messages, tools=tools)

    ask(session, use)
    first, second = session.asked
    assert first.tools == ({"type": "function", "function": ADD},)
    assert first.settings["extra"] == {"tool_choice": "required", "parallel_tool_calls": True}
    assert [m["role"] for m in second.messages] == ["developer", "user", "assistant", "tool", "tool"]
    assert [c["id"] for c in second.messages[2]["tool_calls"]] == ["call_a", "call_b"]
    assert second.messages[2]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 1, "b": 2}'}
    assert second.messages[3] == {"role": "tool", "content": "3", "tool_call_id": "call_a"}


def test_calls_without_ids_get_the_same_ones_each_time_and_different_ones_within_an_answer() -> None:
    """An agent sends them back: after a resume, its next request must be the one that was paid for."""
    answer = Response("", "tool_calls", tool_calls=({"name": "a", "arguments": {}}, {"id": "", "name": "b"}))

    async def use(client: AsyncOpenAI) -> list[str]:
        found = await client.chat.completions.create(model="m", messages=USER)
        return [call.id for call in found.choices[0].message.tool_calls or ()]

    first, again = ask(ScriptedSession(answer), use), ask(ScriptedSession(answer), use)
    assert first == again and len({*first}) == 2 and all(first)


def test_images_stay_and_texts_become_one() -> None:
    session = ScriptedSession()
    image = {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}}
    texts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    messages: Any = [{"role": "system", "content": texts}, {"role": "user", "content": [texts[0], image]}]
    ask(session, lambda c: c.chat.completions.create(model="m", messages=messages))
    assert session.asked[0].messages == (
        {"role": "system", "content": "one\ntwo"},
        {"role": "user", "content": [texts[0], image]},
    )


class Weather(BaseModel):
    city: str
    degrees: int


def test_a_structured_answer_is_parsed() -> None:
    session = ScriptedSession(Response('{"city": "Bern", "degrees": 3}'))
    found = ask(session, lambda c: c.chat.completions.parse(model="m", messages=USER, response_format=Weather))
    assert found.choices[0].message.parsed == Weather(city="Bern", degrees=3)
    assert session.asked[0].settings["response_format"]["json_schema"]["name"] == "Weather"
    found = ask(session, lambda c: c.responses.parse(model="m", input="hi", text_format=Weather))
    assert found.output_parsed == Weather(city="Bern", degrees=3)
    assert session.asked[1].settings["response_format"] == session.asked[0].settings["response_format"]


def test_a_refusal_is_one() -> None:
    session = ScriptedSession(Response("I will not.", "refusal"))
    found = ask(session, lambda c: c.chat.completions.parse(model="m", messages=USER, response_format=Weather))
    assert found.choices[0].message.refusal == "I will not." and found.choices[0].message.parsed is None
    found = ask(session, lambda c: c.responses.create(model="m", input="hi"))
    assert found.output[0].content[0].refusal == "I will not."
    filtered = ask(
        ScriptedSession(Response("", "refusal")), lambda c: c.chat.completions.create(model="m", messages=USER)
    )
    assert filtered.choices[0].finish_reason == "content_filter"


def test_several_answers_have_their_places() -> None:
    found = ask(ScriptedSession(), lambda c: c.chat.completions.create(model="m", messages=USER, n=3))
    assert [choice.index for choice in found.choices] == [0, 1, 2]
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (7, 33)

    async def use(client: AsyncOpenAI) -> dict[int, str]:
        texts: dict[int, str] = {}
        async for chunk in await client.chat.completions.create(model="m", messages=USER, n=2, stream=True):
            for choice in chunk.choices:
                texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
        return texts

    assert ask(ScriptedSession(), use) == {0: HELLO.text, 1: HELLO.text}


def test_logprobs_name_tokens_by_their_number() -> None:
    answer = Response("ab", token_ids=(5, 7), logprobs=(-0.5, -1.5))
    session = ScriptedSession(answer)
    found = ask(session, lambda c: c.chat.completions.create(model="m", messages=USER, logprobs=True))
    told = found.choices[0].logprobs.content
    assert [(t.token, t.logprob) for t in told] == [("token_id:5", -0.5), ("token_id:7", -1.5)]
    assert session.asked[0].settings == {"logprobs": True}
    unasked = ask(session, lambda c: c.chat.completions.create(model="m", messages=USER))
    assert unasked.choices[0].logprobs is None

    async def use(client: AsyncOpenAI) -> list[Any]:
        stream = await client.chat.completions.create(model="m", messages=USER, logprobs=True, stream=True)
        return [t.logprob async for c in stream for t in (c.choices[0].logprobs or _NONE).content]

    assert ask(session, use) == [-0.5, -1.5]
    include: Any = ["message.output_text.logprobs"]
    found = ask(session, lambda c: c.responses.create(model="m", input="hi", include=include))
    assert [t.token for t in found.output[0].content[0].logprobs] == ["token_id:5", "token_id:7"]


class _NONE:
    content = ()


@pytest.mark.parametrize("form", ["float", "base64", None])
def test_vectors_come_back(form: Any) -> None:
    extra = {} if form is None else {"encoding_format": form}
    found = ask(ScriptedSession(), lambda c: c.embeddings.create(model="e", input=["a", "bcd"], **extra))
    vectors = [row.embedding for row in found.data]
    if form == "base64" and isinstance(vectors[0], str):
        assert vectors == ["AACAPwAAAD8=", "AABAQAAAAD8="]
    else:
        assert vectors == [[1.0, 0.5], [3.0, 0.5]]
    assert found.usage.total_tokens == 4


def test_models_are_listed_and_found() -> None:
    async def use(client: AsyncOpenAI) -> Any:
        return [m.id async for m in client.models.list()], (await client.models.retrieve("org/large:1")).id

    assert ask(ScriptedSession(), use) == (["small", "large"], "org/large:1")


def test_a_response_comes_back_whole_and_streamed_alike() -> None:
    async def use(client: AsyncOpenAI) -> Any:
        tools: Any = [{"type": "function", **ADD}]
        whole = await client.responses.create(model="m", input="hi", tools=tools)
        async with client.responses.stream(model="m", input="hi", tools=tools) as stream:
            events = [event async for event in stream]
            return whole, await stream.get_final_response(), events

    whole, streamed, events = ask(ScriptedSession(CALLS), use)
    for found in (whole, streamed):
        assert found.status == "completed" and found.output_text == "Let me see."
        calls = [item for item in found.output if item.type == "function_call"]
        assert [(c.call_id, c.name, json.loads(c.arguments)) for c in calls] == [
            ("call_a", "add", {"a": 1, "b": 2}),
            ("call_b", "look", {"at": "the sky"}),
        ]
        assert (found.usage.input_tokens, found.usage.output_tokens) == (5, 9)
        ids = [found.id, *(item.id for item in found.output)]
        assert len({*ids}) == len(ids)
    assert [e.type for e in events][:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert events[-1].type == "response.completed"
    assert [e.sequence_number for e in events] == [*range(len(events))]
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == "Let me see."


def test_an_answer_that_was_cut_is_incomplete() -> None:
    cut = Response("Half of", "length")
    found = ask(ScriptedSession(cut), lambda c: c.responses.create(model="m", input="hi", max_output_tokens=2))
    assert (found.status, found.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    found = ask(ScriptedSession(cut), lambda c: c.chat.completions.create(model="m", messages=USER, max_tokens=2))
    assert found.choices[0].finish_reason == "length"


def test_a_response_goes_on_from_an_earlier_one() -> None:
    session = ScriptedSession(CALLS, HELLO, HELLO)

    async def use(client: AsyncOpenAI) -> Any:
        first = await client.responses.create(model="m", input="hi", instructions="Be brief.")
        output: Any = [{"type": "function_call_output", "call_id": "call_a", "output": "3"}]
        second = await client.responses.create(
            model="m", input=output, previous_response_id=first.id, instructions="Be long."
        )
        reference: Any = [*USER, {"type": "item_reference", "id": second.output[0].id}, *USER]
        await client.responses.create(model="m", input=reference, store=False)
        assert (await client.responses.retrieve(first.id)).output_text == "Let me see."
        await client.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError, match="is not kept here"):
            await client.responses.create(model="m", input="on", previous_response_id=first.id)

    ask(session, use)
    assert session.asked[1].messages == (
        {"role": "system", "content": "Be long."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": session.asked[1].messages[2]["tool_calls"]},
        {"role": "tool", "content": "3", "tool_call_id": "call_a"},
    )
    assert [c["id"] for c in session.asked[1].messages[2]["tool_calls"]] == ["call_a", "call_b"]
    assert session.asked[2].messages[1] == {"role": "assistant", "content": HELLO.text}


def test_items_become_the_messages_of_a_chat() -> None:
    session = ScriptedSession()
    items: Any = [
        {"role": "developer", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "See"}, {"type": "input_image", "image_url": PIXEL}],
        },
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I call.", "annotations": []}],
        },
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "2"}]},
    ]
    settings: Any = {"reasoning": {"effort": "low"}, "tool_choice": {"type": "function", "name": "add"}}
    ask(session, lambda c: c.responses.create(model="m", input=items, **settings))
    found = session.asked[0]
    assert [m["role"] for m in found.messages] == ["developer", "user", "assistant", "tool", "tool"]
    assert found.messages[1]["content"][1] == {"type": "image_url", "image_url": {"url": PIXEL}}
    assert [c["id"] for c in found.messages[2]["tool_calls"]] == ["c1", "c2"]
    assert found.messages[2]["content"] == "I call."
    named = {"type": "function", "function": {"name": "add"}}
    assert found.settings == {"extra": {"reasoning_effort": "low", "tool_choice": named}}


@pytest.mark.parametrize(
    ("error", "raised", "code"),
    [
        (LMError("too_long", "secret address"), openai.BadRequestError, "context_length_exceeded"),
        (LMError("auth", "secret address"), openai.AuthenticationError, "invalid_api_key"),
        (Refused(404, "not_found", "There is no such model."), openai.NotFoundError, "not_found"),
        (Refused(403, "policy", "The policy forbids it."), openai.PermissionDeniedError, "forbidden"),
        (BudgetSpent("calls", 5, 6), openai.RateLimitError, "insufficient_quota"),
        (Interrupted("interrupted"), openai.RateLimitError, "rate_limit_exceeded"),
    ],
)
def test_errors_have_their_class_and_code_also_in_streams(error: Exception, raised: type, code: str) -> None:
    for stream in (False, True):
        with pytest.raises(raised) as caught:
            ask(ScriptedSession(error), lambda c: c.chat.completions.create(model="m", messages=USER, stream=stream))  # noqa: B023
        assert caught.value.code == code and "secret" not in str(caught.value)


def test_a_rate_limit_is_tried_again_after_the_time_given() -> None:
    session = ScriptedSession(Refused(429, "rate_limit", "Wait.", retry_after=0.05), HELLO)
    found = ask(session, lambda c: c.chat.completions.create(model="m", messages=USER), retries=2)
    assert found.choices[0].message.content == HELLO.text and len(session.asked) == 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("error", "told"), [(BudgetSpent("calls", 5, 6), "budget"), (Interrupted("x"), "stopped")])
def test_a_spent_budget_or_a_run_that_was_stopped_is_not_tried_again(error: Exception, told: str, stream: bool) -> None:
    session = ScriptedSession(error)
    with pytest.raises(openai.RateLimitError, match=told):
        ask(session, lambda c: c.chat.completions.create(model="m", messages=USER, stream=stream), retries=2)
    assert len(session.asked) == 1


def test_azures_client_is_led_here_by_its_own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> str | None:
        async with opened(ScriptedSession()) as (gateway, secret):
            variables = gateway.environment(
                secret, {"AZURE_OPENAI_API_KEY": "mine", "OPENAI_API_VERSION": "2024-10-21"}
            )
            for name, value in variables.items():
                monkeypatch.setenv(name, value)
            async with AsyncAzureOpenAI(api_version="2024-10-21", max_retries=0) as client:
                await client.responses.create(model="m", input="hi")
                return (await client.chat.completions.create(model="m", messages=USER)).choices[0].message.content

    assert asyncio.run(main()) == HELLO.text
