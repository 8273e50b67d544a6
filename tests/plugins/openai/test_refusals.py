"""What servers refuse in a request is heeded once and remembered: settings, roles, what others added to messages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.plugins.openai.test_dialects import CALL, HELLO, SIGNED, body, error

from workbench.errors import LMError
from workbench.lm import Request
from workbench.spec import LMSpec
from workbench_kit.wire import Form, refused_setting
from workbench_openai import client, wire

USE_OTHER = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."


ONLY_DEFAULT = (
    "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) value is supported."
)


@pytest.mark.parametrize(
    "words",
    [
        "invalid params, temperature must be in (0.0, 1.0]",  # MiniMax
        "Input validation error: `temperature` must be strictly positive",  # TGI
        "temperature should be greater than 0",
        "Invalid temperature: must be > 0",
    ],
)
def test_p_a_temperature_of_0_that_is_refused_becomes_a_small_one(words: str) -> None:
    refused = refused_setting(400, error(words))
    assert refused == "temperature 0"
    form = Form().without(refused)
    assert json.loads(wire.build_body("m", HELLO, {}, form))["temperature"] == 0.01 and form.without(refused) == form
    warm = replace(HELLO, temperature=0.7)
    assert json.loads(wire.build_body("m", warm, {}, form))["temperature"] == 0.7
    assert refused_setting(400, error("invalid temperature: only 1 is allowed for this model")) == "temperature"


@pytest.mark.parametrize(
    "words",
    [
        "Invalid type for 'logprobs': expected an integer",
        '[{"loc": ["body", "logprobs"], "msg": "Input should be a valid integer"}]',
    ],
)
def test_a_server_that_wants_a_number_of_logprobs_is_told_one(words: str) -> None:
    refused, asked = refused_setting(400, error(words)), replace(HELLO, logprobs=True)
    assert refused == "logprobs true"
    form = Form().without(refused)
    assert json.loads(wire.build_body("m", asked, {}, form))["logprobs"] == 1
    assert form.without(refused).omit == {"logprobs"}, "a server that refuses both is asked for none"
    assert form.shape({"logprobs": True})["logprobs"] == 1 and "logprobs" not in form.shape({})
    assert json.loads(wire.build_body("m", asked, {}, Form()))["logprobs"] is True
    assert refused_setting(400, error("Invalid type for 'top_logprobs': expected an integer")) is None


@pytest.mark.parametrize(
    ("answer", "setting"),
    [
        (
            {
                "detail": [
                    {"type": "extra_forbidden", "loc": ["body", "logprobs"], "msg": "Extra inputs are not permitted"}
                ]
            },
            "logprobs",
        ),
        (error("Unsupported value: 'messages[0].role' does not support 'system' with this model."), "system"),
        (error("body.parallel_tool_calls: property 'parallel_tool_calls' is unsupported"), "parallel_tool_calls"),
        (error("Only user and assistant roles are supported!"), "system"),
    ],
)
def test_p_refusals_in_other_words(answer: Any, setting: str) -> None:
    assert refused_setting(422, answer) == setting


def test_the_role_developer_is_sent_as_the_one_that_all_servers_know() -> None:
    asked = Request(({"role": "developer", "content": "Be brief."}, HELLO.messages[1]))
    assert json.loads(wire.build_body("m", asked, {}, Form()))["messages"] == [*HELLO.messages]


def test_p_of_two_settings_that_exclude_each_other_the_temperature_stays() -> None:
    told = "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
    assert refused_setting(400, error(told)) == "top_p"


Refuse = Callable[[dict[str, Any]], str | None]


def converse(refuse: Refuse, path: str = "/v1", base: str = "/v1", calls: int = 2, **values: Any) -> list[Any]:
    """The requests at a server that refuses some with status 400; `calls` are made, one after the other."""
    seen = list[Any]()

    async def answer(request: web.Request) -> web.Response:
        given = await request.json()
        seen.append({"body": given, "query": dict(request.query)})
        why = refuse(given)
        return web.json_response(error(why) if why else body(), status=400 if why else 200)

    async def main() -> None:
        app = web.Application()
        app.router.add_post(f"{path}/chat/completions", answer)
        async with TestServer(app) as server:
            given = LMSpec(model="openai/m", api_base=f"http://127.0.0.1:{server.port}{base}", **values)
            lm = client.openai("m", given)
            try:
                for _ in range(calls):
                    assert (await lm.complete(HELLO)).text == "technical"
            finally:
                await lm.aclose()

    asyncio.run(main())
    return seen


def test_p1_a_setting_that_is_refused_is_renamed_or_left_out_and_remembered() -> None:
    def refuse(given: dict[str, Any]) -> str | None:
        if "max_tokens" in given:
            return USE_OTHER
        if "temperature" in given:
            return ONLY_DEFAULT
        return None

    seen = [set(one["body"]) for one in converse(refuse)]
    assert len(seen) == 4 and seen[2] == seen[3] == {"model", "messages", "max_completion_tokens"}
    seen = [
        set(one["body"])
        for one in converse(refuse, rename={"max_tokens": "max_completion_tokens"}, omit=["temperature"])
    ]
    assert seen == [{"model", "messages", "max_completion_tokens"}] * 2


def test_p2_queries_and_whole_addresses_stay() -> None:
    path = "/openai/deployments/d1"
    for end in ("", "/chat/completions", "/"):
        seen = converse(lambda given: None, path=path, base=f"{path}{end}?api-version=2024-10-21", calls=1)
        assert seen[0]["query"] == {"api-version": "2024-10-21"}
    assert len(converse(lambda given: None, base="/v1/chat/completions", calls=1)) == 1


def test_p3_without_a_system_role_the_user_says_it() -> None:
    def refuse(given: dict[str, Any]) -> str | None:
        return "System role not supported" if given["messages"][0]["role"] == "system" else None

    seen = converse(refuse)
    assert len(seen) == 3
    assert seen[-1]["body"]["messages"] == [{"role": "user", "content": "Be brief.\n\nhello"}]
    assert len(converse(refuse, omit=["system"])) == 2


@pytest.mark.parametrize(
    "words",
    [
        "'messages.2' : for 'role:assistant' the following must be satisfied[('messages.2' : property "
        "'reasoning_content' is unsupported)]",  # Groq
        "Extra inputs are not permitted, field: 'messages[2].reasoning_content'",  # Fireworks
        "{'detail': [{'type': 'extra_forbidden', 'loc': ['body', 'messages', 2, 'assistant', 'extra_content'], 'msg': "
        "'Extra inputs are not permitted'}]}",  # Mistral
        "Additional properties are not allowed ('reasoning_details' was unexpected) - 'messages.2'",  # OpenAI
        "The reasoning_content is an invalid field in the input messages.",  # DeepSeek R1
        "'messages.0' : for 'role:user' ... property 'name' is unsupported",  # Groq, of an agent's message
    ],
)
def test_t9_what_another_provider_added_is_left_out_where_it_is_refused(words: str) -> None:
    call = {**CALL, "extra_content": {"google": {"thought_signature": "abc"}}}
    turn = {"role": "assistant", "content": [SIGNED], "reasoning_content": "hm", "tool_calls": [call]}
    asked = Request((*HELLO.messages, turn, {"role": "tool", "tool_call_id": "c", "content": "7"}))
    form = Form()
    assert json.loads(wire.build_body("m", asked, {}, form))["messages"][2] == turn
    refused = refused_setting(400, error(words))
    assert refused is not None
    sent = json.loads(wire.build_body("m", asked, {}, form.without(refused)))["messages"]
    assert sent[2] == {"role": "assistant", "content": None, "tool_calls": [CALL]} and sent[3] == asked.messages[3]


def test_p_a_refusal_that_does_not_end_is_an_error() -> None:
    with pytest.raises(LMError) as caught:
        converse(lambda given: "Unknown parameter: 'max_tokens' or its like")
    assert caught.value.kind == "bad_request"


def test_only_a_setting_that_is_refused_as_such_is_left_out() -> None:
    assert refused_setting(400, error("max_tokens must be at most 4096")) is None
    assert refused_setting(400, error("Unknown name 'tools'")) is None
    assert refused_setting(500, error("Unsupported parameter: 'max_tokens'")) is None
    for told in (error("no", code="unsupported_value"), error("Unsupported value")):
        told["error"]["param"] = "temperature"
        assert refused_setting(400, told) == "temperature"
