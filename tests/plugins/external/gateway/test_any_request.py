"""Whatever an agent sends gives an Ask that can be sent and stored, or a refusal with its place; never our fault."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.helpers.gateway_sessions import CALLS, ScriptedSession

from workbench.errors import BudgetSpent, Interrupted, LMError, NodeError, ServerDead
from workbench.lm import Request, estimate_tokens
from workbench_external.gateway import Refused, endpoints as e, refusal_of
from workbench_external.gateway.access import Admitted
from workbench_external.gateway.fields import MAX_STOPS

PIXEL = "data:image/png;base64,iVBORw0KGgo="
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
FUNCTION = {"name": "add", "description": "Adds.", "parameters": SCHEMA, "strict": True}
CALL = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}

#: A request that uses every field that is read, for each endpoint.
FULL: dict[str, dict[str, Any]] = {
    "/chat/completions": {
        "model": "m",
        "messages": [
            {"role": "developer", "content": "Be brief.", "name": "d"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "a"},
                    {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}},
                ],
            },
            {"role": "assistant", "content": None, "refusal": "no", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c", "content": "3"},
        ],
        "tools": [{"type": "function", "function": FUNCTION}],
        "tool_choice": {"type": "function", "function": {"name": "add"}},
        "n": 2,
        "stop": ["x"],
        "seed": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 5,
        "logprobs": True,
        "modalities": ["text"],
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
    },
    "/responses": {
        "model": "m",
        "instructions": "Be brief.",
        "previous_response_id": None,
        "input": [
            {"role": "user", "content": [{"type": "input_image", "image_url": PIXEL, "detail": "auto"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
            {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "3"}]},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "item_reference", "id": "rs_1"},
        ],
        "tools": [{"type": "function", **FUNCTION}],
        "tool_choice": {"type": "function", "name": "add"},
        "include": ["message.output_text.logprobs"],
        "reasoning": {"effort": "low"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}, "verbosity": "low"},
        "max_output_tokens": 5,
        "parallel_tool_calls": True,
        "store": True,
        "stream": True,
    },
    "/messages": {
        "model": "m",
        "max_tokens": 5,
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
                    {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "text", "text": "a"},
                    {"type": "tool_use", "id": "c", "name": "add", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "3"}]}],
            },
        ],
        "tools": [{"name": "add", "description": "Adds.", "input_schema": SCHEMA}],
        "tool_choice": {"type": "tool", "name": "add", "disable_parallel_tool_use": True},
        "stop_sequences": ["x"],
        "temperature": 0.5,
        "top_k": 3,
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        "stream": True,
    },
    "/messages/count_tokens": {"model": "m", "messages": [{"role": "user", "content": "a"}], "tools": []},
    "/embeddings": {"model": "m", "input": ["a", "b"], "encoding_format": "base64"},
}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
ODD = st.sampled_from(
    [0, -1, 1e308, 2**70, "", "x", [], {}, [[]], [{}], {"type": []}, {"type": {}}, True, False, [None]]
)
ODD = ODD.map(copy.deepcopy)  # they are changed further


def places(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a body."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield (*here, key)
        yield from places(one, (*here, key))


def answered(path: str, body: dict[str, Any]) -> ScriptedSession | Refused:
    """The session that was asked, or the refusal. The answer is written as a whole and as events."""
    endpoint, named = e.find_endpoint("POST", path, e.dialect_of(path, {}))
    session = ScriptedSession(CALLS)
    answer: Callable[..., Awaitable[Any]] = endpoint.answer
    try:
        found = asyncio.run(answer(Admitted(session), e.asked_of(endpoint, path, body, named, {})))
        json.dumps(found if isinstance(found, dict) else [*found], allow_nan=False)
    except Refused as refused:
        return refused
    return session


def check(path: str, body: dict[str, Any]) -> None:
    found = answered(path, body)
    if isinstance(found, Refused):
        assert found.status in (400, 404) and found.field, found.message
        assert found.message.startswith(found.field) or found.status == 404
        assert found.message.rstrip(".") and len(found.message) < 500
        return
    for ask in found.asked:
        sent = Request(ask.messages, tools=tuple(ask.tools), **ask.settings)
        assert sent.key("model") and estimate_tokens(ask.messages) >= 0
        json.dumps(sent.as_dict(), allow_nan=False)
        for message in ask.messages:
            assert message["role"] in ("system", "developer", "user", "assistant", "tool")
            assert isinstance(message["content"], str | list) or message == {
                **message,
                "role": "assistant",
                "content": None,
            }


@pytest.mark.parametrize("path", FULL)
def test_every_field_can_be_sent_at_once(path: str) -> None:
    found = answered(path, FULL[path])
    assert isinstance(found, ScriptedSession), found
    assert len(found.asked) == (path not in ("/messages/count_tokens", "/embeddings"))


@pytest.mark.parametrize("path", FULL)
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_value_in_any_place_is_read_or_refused(path: str, data: st.DataObject) -> None:
    body = copy.deepcopy(FULL[path])
    for _ in range(data.draw(st.integers(1, 3))):
        *above, last = data.draw(st.sampled_from([*places(body)] or [("model",)]))
        part: Any = body
        for key in above:
            part = part[key]
        if isinstance(part, dict) and data.draw(st.booleans()):
            part.pop(last)
        else:
            part[last] = data.draw(ODD | JSON)
    check(path, body)


@pytest.mark.parametrize("path", FULL)
@settings(max_examples=60)
@given(
    body=st.dictionaries(st.sampled_from(["model", "messages", "input", "x"]) | st.text(max_size=5), JSON, max_size=5)
)
def test_any_object_is_read_or_refused(path: str, body: dict[str, Any]) -> None:
    check(path, body)


def test_what_cannot_be_served_is_refused_by_its_place(subtests: pytest.Subtests) -> None:
    for path, change, place in [
        ("/chat/completions", {"messages": []}, "messages"),
        ("/chat/completions", {"messages": [{"role": "robot", "content": ""}]}, "messages[0].role"),
        ("/chat/completions", {"messages": [{"role": "user"}]}, "messages[0].content"),
        (
            "/chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
            "messages[0].content[0].type",
        ),
        ("/chat/completions", {"tools": [{"type": "custom"}]}, "tools[0].type"),
        ("/chat/completions", {"functions": [FUNCTION]}, "functions"),
        ("/chat/completions", {"top_logprobs": 5}, "top_logprobs"),
        ("/chat/completions", {"temperature": 3}, "temperature"),
        ("/chat/completions", {"n": 1000}, "n"),
        ("/chat/completions", {"tool_choice": {"type": "allowed_tools"}}, "tool_choice.type"),
        ("/responses", {"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ("/responses", {"background": True}, "background"),
        ("/responses", {"input": [{"type": "computer_call"}]}, "input[0].type"),
        (
            "/responses",
            {"input": [{"role": "user", "content": [{"type": "input_file"}]}]},
            "input[0].content[0].type",
        ),
        ("/responses", {"previous_response_id": "resp_1"}, "previous_response_id"),
        ("/messages", {"max_tokens": None}, "max_tokens"),
        ("/messages", {"temperature": 1.5}, "temperature"),
        ("/messages", {"container": "c"}, "container"),
        ("/messages", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ("/messages", {"mcp_servers": [{"type": "url", "url": "x", "name": "y"}]}, "mcp_servers"),
        (
            "/messages",
            {"messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}]},
            "messages[0].content[0].type",
        ),
        ("/embeddings", {"input": [[1, 2]]}, "input[0]"),
        ("/embeddings", {"input": []}, "input"),
        ("/embeddings", {"dimensions": 8}, "dimensions"),
    ]:
        with subtests.test(path=path, place=place):
            found = answered(path, {**FULL[path], **change})
            assert isinstance(found, Refused) and found.field == place


#: The fields of each API that are numbers.
NUMBERS = {
    "/chat/completions": ("n", "seed", "temperature", "top_p", "max_tokens", "max_completion_tokens"),
    "/responses": ("max_output_tokens", "temperature", "top_p"),
    "/messages": ("max_tokens", "temperature", "top_p"),
}


def test_a_number_is_a_number_and_nothing_that_python_takes_for_one(subtests: pytest.Subtests) -> None:
    for path, field in [(path, field) for path, names in NUMBERS.items() for field in names]:
        for value in [True, False, "1", [1], float("inf"), float("nan")]:
            with subtests.test(path=path, field=field, value=value):
                plain = {
                    name: given
                    for name, given in FULL[path].items()
                    if name not in NUMBERS[path] or name == "max_tokens"
                }
                found = answered(path, {**plain, field: value})
                assert isinstance(found, Refused) and found.field == field, found


@pytest.mark.parametrize(("path", "field"), [("/chat/completions", "stop"), ("/messages", "stop_sequences")])
def test_the_texts_that_stop_a_model_are_so_many_and_none_is_empty(path: str, field: str) -> None:
    most = [f"s{n}" for n in range(MAX_STOPS)]
    assert isinstance(answered(path, {**FULL[path], field: most}), ScriptedSession)
    found = answered(path, {**FULL[path], field: [*most, "one more"]})
    assert isinstance(found, Refused) and found.field == field and str(MAX_STOPS) in found.message
    empty = answered(path, {**FULL[path], field: ["a", ""]})
    assert isinstance(empty, Refused) and empty.field == f"{field}[1]"


PRIVATE = "http://10.0.0.1/?key=sk-private"


def test_the_status_says_whose_fault_it_is_and_whether_to_wait(subtests: pytest.Subtests) -> None:
    """4xx: the agent asks otherwise; 429: it waits or ends; 500: ours; 502 to 504: the model's server. None names what
    only we should know."""
    for error, status in [
        (BudgetSpent("calls", 5, 6, 0), 429),
        (Interrupted(PRIVATE), 429),
        (LMError("rate_limit", PRIVATE), 429),
        (ServerDead(PRIVATE), 503),
        (LMError("server", PRIVATE), 502),
        (LMError("connection", PRIVATE), 502),
        (LMError("timeout", PRIVATE), 504),
        (LMError("too_long", PRIVATE), 400),
        (LMError("bad_request", PRIVATE), 400),
        (LMError("unsupported", PRIVATE), 400),
        (NodeError("refused", PRIVATE), 400),
        (NodeError("policy", PRIVATE), 403),
        (RuntimeError(PRIVATE), 500),
    ]:
        with subtests.test(error=error):
            refused = refusal_of(error)
            assert refused.status == status and PRIVATE not in refused.message


def test_the_same_request_is_the_same_ask_whatever_its_api() -> None:
    """So an answer that was paid for is found again, and a change of client changes no key."""
    tools = {
        "/chat/completions": [{"type": "function", "function": FUNCTION}],
        "/responses": [{"type": "function", **FUNCTION}],
        "/messages": [{"name": "add", "description": "Adds.", "input_schema": SCHEMA, "strict": True}],
    }
    user = [{"role": "user", "content": "hi"}]
    bodies: dict[str, dict[str, Any]] = {
        "/chat/completions": {"messages": [{"role": "system", "content": "Be brief."}, *user], "max_tokens": 5},
        "/responses": {"input": "hi", "instructions": "Be brief.", "max_output_tokens": 5},
        "/messages": {"messages": user, "system": "Be brief.", "max_tokens": 5},
    }
    asked = []
    for path, body in bodies.items():
        for _ in range(2):
            found = answered(path, {"model": "m", "tools": tools[path], **body})
            assert isinstance(found, ScriptedSession)
            asked += found.asked
    assert len(asked) == 6 and all(one == asked[0] for one in asked)
