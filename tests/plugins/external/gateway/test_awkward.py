"""Awkward bodies, as agents in any language send them, where texts are replaced and turns, tools and settings added:
the model's server refuses them, or we do, and none is a fault of ours (h14)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from copy import copy
from typing import Any

import aiohttp
import pytest
from tests.helpers.passing import model, served
from tests.helpers.upstream import as_event, response_answer, upstream

from workbench.errors import LMError
from workbench.lm import Native, Request
from workbench_external.config import ExternalConfig
from workbench_external.gateway import Ask
from workbench_external.slots.patches import Patches
from workbench_openai.wire import parse_native

U = {"role": "user", "content": "hi there you"}
IMG = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
BODIES: dict[str, list[Any]] = {
    "chat/completions": [
        {"messages": []},
        {"messages": None},
        {"messages": "x"},
        {"messages": [1, None, U]},
        {"messages": [{"role": None, "content": 5}]},
        {"messages": [{"role": "system", "content": []}, U]},
        {"messages": [{"role": "system", "content": None}, U]},
        {
            "messages": [
                {
                    "role": "user",
                    "content": [IMG, {"type": "text", "text": "hi there you"}, {"type": "text", "text": 5}, "x", None],
                }
            ]
        },
        {"messages": [U], "tools": [{"type": "function"}]},
        {
            "messages": [U],
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "f",
                        "description": None,
                        "parameters": {"properties": {"a": {"description": "A"}}},
                    },
                }
            ],
        },
        {"messages": [U], "tools": {"a": 1}},
        {"messages": [U], "tool_choice": {"type": "allowed_tools", "allowed_tools": {}}},
        {"messages": [U], "response_format": {"type": "json_schema"}},
        {
            "messages": [U],
            "response_format": {
                "type": "json_schema",
                "json_schema": {
                    "schema": {"type": "object", "description": "D", "properties": {"a": {"description": "A"}}}
                },
            },
        },
        {"messages": [U], "response_format": "x"},
        {"messages": [U], "n": True},
        {"messages": [U], "n": 0},
        {"messages": [U], "n": "2"},
        {"messages": [U], "max_tokens": -1},
        {"messages": [U], "max_tokens": "9"},
        {"messages": [U], "temperature": None},
        {"messages": [U], "temperature": True},
        {"messages": [U], "stream": None},
        {"messages": [U], "stream": "yes"},
        {
            "messages": [
                U,
                {"role": "assistant", "tool_calls": "x"},
                {"role": "assistant", "tool_calls": [None]},
                {"role": "assistant", "content": None, "tool_calls": [{"id": 1, "function": None}]},
            ]
        },
        {"messages": [U], "logprobs": True, "top_logprobs": 2},
        {"messages": [{"role": "user", "content": {"a": 1}}]},
        {"messages": [U], "model": ["a"]},
        {"messages": [U, {"role": "function", "name": "f", "content": "x"}]},
        {"messages": [{"role": "assistant", "content": [{"type": "refusal", "refusal": "hi there you"}]}, U]},
    ],
    "responses": [
        {},
        {"input": None},
        {"input": 5},
        {"input": []},
        {"input": ["x", None, 1]},
        {"input": "hi there you", "instructions": ["a"]},
        {"input": [{"role": "user", "content": "hi there you"}], "previous_response_id": "nope"},
        {"input": [{"type": "function_call_output", "call_id": None, "output": [{"type": "input_text", "text": "x"}]}]},
        {
            "input": [
                {"type": "reasoning", "summary": []},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": None},
            ]
        },
        {"input": [{"type": "item_reference", "id": "x"}]},
        {
            "input": "hi there you",
            "tools": [
                {
                    "type": "namespace",
                    "name": "n",
                    "tools": [{"type": "function", "name": "f", "description": "d", "parameters": None}],
                }
            ],
        },
        {
            "input": "hi there you",
            "text": {
                "format": {"type": "json_schema", "name": "a", "schema": {"properties": {"a": {"description": "A"}}}}
            },
        },
        {"input": "hi there you", "text": {"format": None}},
        {"input": "hi there you", "text": "x"},
        {
            "input": [
                {"role": "assistant", "content": [{"type": "output_text", "text": "hi there you"}]},
                {
                    "role": "user",
                    "content": [
                        {"type": "input_image", "image_url": "http://x"},
                        {"type": "input_file", "file_id": "f"},
                    ],
                },
            ]
        },
        {"input": "hi there you", "conversation": {"id": "c"}, "stream": True},
    ],
    "messages": [
        {},
        {"messages": [U]},
        {"messages": [U], "max_tokens": 9, "system": []},
        {
            "messages": [U],
            "max_tokens": 9,
            "system": [
                {"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": "T"},
            ],
        },
        {"messages": [U], "max_tokens": 9, "system": 5},
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "a"},
                        {
                            "type": "tool_result",
                            "tool_use_id": "b",
                            "content": [
                                {"type": "text", "text": "x"},
                                {
                                    "type": "image",
                                    "source": {"type": "base64", "media_type": "image/png", "data": "AA"},
                                },
                            ],
                        },
                        {"type": "text", "text": "hi there you"},
                    ],
                }
            ],
            "max_tokens": 9,
        },
        {"messages": [{"role": "user", "content": []}], "max_tokens": 9},
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "document", "source": {"type": "text", "data": "x"}},
                        {"type": "text", "text": "hi there you"},
                    ],
                }
            ],
            "max_tokens": 9,
        },
        {
            "messages": [U],
            "max_tokens": 9,
            "tools": [{"type": "web_search_20250305", "name": "web_search"}],
            "tool_choice": {"type": "any"},
        },
        {
            "messages": [U],
            "max_tokens": 9,
            "output_format": {"type": "json_schema", "schema": {"properties": {"a": {"description": "A"}}}},
        },
        {"messages": [U], "max_tokens": 9, "output_config": {"format": None}},
        {"messages": "x", "max_tokens": 9},
    ],
    "messages/count_tokens": [
        {"messages": [U]},
        {},
        {"messages": [U], "tools": [{"name": "f", "description": "d", "input_schema": {}}]},
    ],
    "completions": [
        {"prompt": "hi there you"},
        {"prompt": ["hi there you", "x"]},
        {"prompt": [1, 2]},
        {"prompt": [[1]]},
        {"prompt": None},
    ],
    "responses/input_tokens": [{"input": "x"}, {}],
    "moderations": [{"input": "x"}, {}],
    "embeddings": [{"input": "x"}, {}],
}
SLOTS: dict[str, Any] = {
    "user": {"in": "user", "match": "hi there you", "text": "HELLO"},
    "sys": {"in": "system", "match": "S", "text": "SS"},
    "turn": {"in": "turn", "match": "hi there you", "text": "TT"},
    "part": {"in": "user", "match": "there", "text": "THERE", "part": True},
    "t": {"in": "tool", "name": "f", "match": "d", "text": "dd"},
    "p": {"in": "parameter", "name": "f", "parameter": "a", "match": "A", "text": "AA"},
    "fi": {"in": "field", "name": "answer", "parameter": "a", "match": "A", "text": "AA"},
}

FUNCTION = {"name": "vowels", "description": "C", "parameters": {}, "source": "def vowels(text):\n    return 2\n"}
NODE = {"slots": SLOTS, "instructions": "More.", "demos": [{"text": "t", "label": "l"}], "functions": [FUNCTION]}


def test_h14_no_body_is_a_fault_of_ours() -> None:
    found: list[tuple[str, int, Any]] = []

    async def main(address: str) -> None:
        async with served(model("openai/up", address), {**NODE, "temperature": 0.5}) as (gateway, secret):
            headers = {"Authorization": f"Bearer {secret}"}
            async with aiohttp.ClientSession(headers=headers) as client:
                for path, bodies in BODIES.items():
                    for body in bodies:
                        url = f"{gateway.address}/v1/{path}"
                        async with client.post(url, json={"model": "m", **body}) as answer:
                            found.append((path, answer.status, body))

    with upstream() as server:
        server.checks = {}
        asyncio.run(main(server.address))
    assert len(found) > 60 and {status for _, status, _ in found} == {200, 400}, [f for f in found if f[1] > 499]


def test_h14_what_a_completion_has_no_place_for_is_told() -> None:
    config = ExternalConfig.model_validate({"signature": "text -> label", "command": ["true"], **NODE})
    ask = Ask("m", ({"role": "user", "content": "hi there you"},), native=Native("completions", {"prompt": "x"}))
    patched = Patches(config, ["label"]).apply(ask, {})
    assert [message["content"] for message in patched.messages] == ["HELLO"]
    assert [text.partition(":")[0] for text in patched.missed] == ["demos", "instructions"]


_BLOCK = {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t", "name": "f"}}
_DELTA = {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{}"}}
_BEGUN = {"type": "message_start", "message": {"id": "m", "content": [], "usage": {"input_tokens": 1}}}
_ENDED = [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}}, {"type": "message_stop"}]
_SAID = {"choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": {"content": []}, "finish_reason": "stop"}]}
ANSWERS: list[tuple[str, list[Any]]] = [
    ("messages", [_BEGUN, _BLOCK, _DELTA, *_ENDED]),
    ("chat", [_SAID, "[DONE]"]),
    ("responses", [{"type": "response.completed", "response": response_answer()}]),
    ("completions", [{"choices": [{"index": 0, "text": "a", "finish_reason": "stop"}]}, "[DONE]"]),
]
JUNK: list[Any] = [None, True, -1, 1e300, "x", [], [None], {}, {"a": 1}, [{"type": "text"}], 10**30]


@pytest.mark.parametrize(("api", "events"), ANSWERS, ids=[api for api, _ in ANSWERS])
def test_h15_whatever_a_server_streams_is_an_answer_or_an_error_of_a_model(api: str, events: list[Any]) -> None:
    """Anything else in the place of each value: a fault of ours would end the run."""
    request = Request(({"role": "user", "content": "x"},), native=Native(api, {"stream": True}), logprobs=True)
    answered = 0
    for at in [at for at in paths_in(events) if at]:
        for junk in JUNK:
            changed = put_at(events, at, junk)
            raw = b"".join(as_event(one) if isinstance(one, dict | str) else b"data: 1\n\n" for one in changed)
            with suppress(LMError):
                json.dumps(parse_native(raw, {}, request, lambda *counts: 0.0).as_dict())
                answered += 1
    assert answered > 10


def paths_in(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from paths_in(part, (*at, key))


def put_at(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    copied = copy(value)
    copied[at[0]] = put_at(value[at[0]], at[1:], new) if at[1:] else new
    return copied
