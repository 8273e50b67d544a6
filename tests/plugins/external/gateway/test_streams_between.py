"""Streams whose client and server speak different APIs: pieces pass as they come, in the words of the client's.

The clients are the official ones. The server holds its second piece back until the client has the first, so a stream
that is known as a whole before it begins would never end. Numbers `ea...` are those of the findings on existing agents.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import aiohttp
import anthropic
import openai
import pytest
from aiohttp import web
from tests.helpers.passing import model, served, with_gateway
from tests.helpers.upstream import Upstream, as_event, message_answer, upstream

USER: Any = [{"role": "user", "content": "hi"}]
FUNCTION: Any = {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}}
TOOL: Any = {"name": "look", "description": "Looks.", "input_schema": FUNCTION["parameters"]}
USAGE = {"prompt_tokens": 70, "completion_tokens": 30, "prompt_tokens_details": {"cached_tokens": 20}}
#: What a client read: kinds of pieces in the order in which they came, with their texts.
Read = list[tuple[str, str]]


class Gated:
    """Events, of which all but the first wait until the client has read something of those before."""

    def __init__(self, server: Upstream, events: Sequence[Any], cut: bool = False):
        self.server, self.events, self.cut = server, events, cut
        self._gates: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        gate = asyncio.Event()
        self._gates.append((asyncio.get_running_loop(), gate))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **self.server.headers})
        await response.prepare(request)
        for event, waits in self.events:
            if waits:
                await asyncio.wait_for(gate.wait(), 10)
                gate.clear()
            await response.write(as_event(event))
        if self.cut:
            assert request.transport is not None
            request.transport.abort()
        return response

    def open(self) -> None:
        for loop, gate in self._gates:
            loop.call_soon_threadsafe(gate.set)


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "up",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}  # fmt: skip


def call(place: int, arguments: str, **more: Any) -> dict[str, Any]:
    function = {"arguments": arguments, **({"name": more.pop("name")} if "name" in more else {})}
    return chunk(tool_calls=[{"index": place, "function": function, **more}])


#: Events of a chat, and whether each waits until the client has what came before.
CHAT: list[tuple[Any, bool]] = [
    (chunk(role="assistant", content=""), False),
    (chunk(reasoning_content="Hm, "), False),
    (chunk(reasoning_content="so."), False),
    (chunk(content="Let me "), False),
    (chunk(content="see."), True),
    (call(0, "", id="c1", type="function", name="look"), True),
    (call(0, '{"at": '), False),
    (call(0, '"sky"}'), True),
    (call(1, '{"at"', id="c2", type="function", name="look"), True),
    (call(1, ': "sea"}'), True),
    (chunk("tool_calls"), True),
    ({"choices": [], "usage": USAGE}, False),
    ("[DONE]", False),
]
CALLS = [("c1", {"at": "sky"}), ("c2", {"at": "sea"})]


def of_anthropic(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, **more}


def block(n: int, begun: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    start = of_anthropic("content_block_start", index=n, content_block=begun)
    pieces = [of_anthropic("content_block_delta", index=n, delta=delta) for delta in deltas]
    return [start, *pieces, of_anthropic("content_block_stop", index=n)]


def json_piece(text: str) -> dict[str, Any]:
    return {"type": "input_json_delta", "partial_json": text}


_MESSAGES: list[dict[str, Any]] = [
    of_anthropic("message_start", message={**message_answer(), "stop_reason": None, "content": []}),
    *block(0, {"type": "text", "text": ""}, *({"type": "text_delta", "text": t} for t in ("Let me ", "see."))),
    *block(1, {"type": "tool_use", "id": "c1", "name": "look", "input": {}}, *map(json_piece, ('{"at": ', '"sky"}'))),
    *block(2, {"type": "tool_use", "id": "c2", "name": "look", "input": {}}, *map(json_piece, ('{"at"', ': "sea"}'))),
    of_anthropic("message_delta", delta={"stop_reason": "tool_use"}, usage={"input_tokens": 70, "output_tokens": 30}),
    of_anthropic("message_stop"),
]
_SEEN = [n for n, event in enumerate(_MESSAGES) if event["type"] == "content_block_delta"]
MESSAGES = [(event, n - 1 in _SEEN) for n, event in enumerate(_MESSAGES)]


# The clients


async def read_messages(client: anthropic.AsyncAnthropic, saw: Callable[[], None]) -> tuple[Read, Any]:
    read: Read = []
    async with client.messages.stream(model="m", max_tokens=99, messages=USER, tools=[TOOL]) as stream:
        async for event in stream:
            if event.type == "content_block_delta":
                delta: Any = event.delta
                text = delta.type == "text_delta"
                read.append(("text" if text else "call", delta.text if text else delta.partial_json))
            if event.type in ("content_block_delta", "content_block_start"):
                saw()
        found = await stream.get_final_message()
    calls = [(b.id, b.input) for b in found.content if b.type == "tool_use"]
    usage = found.usage.input_tokens + (found.usage.cache_read_input_tokens or 0), found.usage.output_tokens
    return read, (found.content[0].text, calls, found.stop_reason, usage)  # type: ignore[union-attr]


async def read_responses(client: openai.AsyncOpenAI, saw: Callable[[], None]) -> tuple[Read, Any]:
    read: Read = []
    kinds = {"reasoning_summary_text": "thoughts", "output_text": "text", "function_call_arguments": "call"}
    tools: Any = [{"type": "function", **FUNCTION}]
    async with client.responses.stream(model="m", input="hi", tools=tools, reasoning={"summary": "auto"}) as stream:
        numbers = []
        async for event in stream:
            numbers.append(event.sequence_number)
            _, name, last = (*event.type.split("."), "")[:3]
            if last == "delta":
                read.append((kinds[name], event.delta))  # type: ignore[union-attr]
            if last in ("delta", "added"):
                saw()
        found: Any = await stream.get_final_response()
    assert numbers == [*range(len(numbers))]
    calls = [(i.call_id, json.loads(i.arguments)) for i in found.output if i.type == "function_call"]
    kept = await client.responses.retrieve(found.id)
    assert [item.id for item in kept.output] == [item.id for item in found.output], "it may be gone on with"
    return read, (found.output_text, calls, found.status, (found.usage.input_tokens, found.usage.output_tokens))


async def read_chat(client: openai.AsyncOpenAI, saw: Callable[[], None]) -> tuple[Read, Any]:
    read: Read = []
    tools: Any = [{"type": "function", "function": FUNCTION}]
    options: Any = {"include_usage": True}
    async with client.chat.completions.stream(
        model="m", messages=USER, tools=tools, stream_options=options, max_tokens=99
    ) as stream:
        async for event in stream:
            if event.type != "chunk" or not event.chunk.choices:
                continue
            delta: Any = event.chunk.choices[0].delta
            told = [("thoughts", getattr(delta, "reasoning_content", None)), ("text", delta.content)]
            told += [("call", piece.function.arguments) for piece in delta.tool_calls or ()]
            read += [(kind, text) for kind, text in told if text]
            saw()
        found = await stream.get_final_completion()
    choice = found.choices[0]
    calls = [(c.id, json.loads(c.function.arguments)) for c in choice.message.tool_calls or ()]
    assert found.usage is not None
    usage = found.usage.prompt_tokens, found.usage.completion_tokens
    return read, (choice.message.content, calls, choice.finish_reason, usage)


READERS: Mapping[str, Callable[[Any, Callable[[], None]], Awaitable[tuple[Read, Any]]]] = {
    "messages": read_messages,
    "responses": read_responses,
    "chat": read_chat,
}


def read(api: str, server: Upstream, name: str, gated: Gated) -> tuple[Read, Any]:
    """What the official client of an API reads of a model."""

    async def main() -> tuple[Read, Any]:
        async with served(model(name, server.address)) as (gateway, secret):
            kinds: Any = {"messages": anthropic.AsyncAnthropic}
            base = gateway.address if api == "messages" else f"{gateway.address}/v1"
            made = kinds.get(api, openai.AsyncOpenAI)
            async with made(base_url=base, api_key=secret, max_retries=0) as client:
                return await READERS[api](client, gated.open)

    return asyncio.run(main())


def joined(pieces: Read) -> Read:
    """The pieces with those of one kind in a row as one."""
    found: Read = []
    for kind, text in pieces:
        if found and found[-1][0] == kind:
            found[-1] = (kind, found[-1][1] + text)
        else:
            found.append((kind, text))
    return found


@pytest.mark.parametrize(
    ("api", "name", "end"),
    [
        ("messages", "openai/up", "tool_use"),
        ("responses", "openai/up", "completed"),
        ("chat", "anthropic/up", "tool_calls"),
        ("responses", "anthropic/up", "completed"),
    ],
)
def test_ea9_pieces_pass_between_apis_as_they_come(api: str, name: str, end: str) -> None:
    path, events = ("messages", MESSAGES) if name.startswith("anthropic") else ("chat/completions", CHAT)
    with upstream() as server:
        server.lacks = {"responses"} if name == "openai/up" else set()
        gated = Gated(server, events)
        server.answers[path] = [gated]
        pieces, found = read(api, server, name, gated)
        assert len(server.asked) == 1 and server.asked[0][1]["stream"] is True
    assert found == ("Let me see.", CALLS, end, (70, 30))
    assert ("text", "Let me ") in pieces and ("call", '{"at": ') in pieces and len(pieces) >= 6, "in pieces"
    thoughts = [("thoughts", "Hm, so.")] if (api, name) == ("responses", "openai/up") else []
    assert joined(pieces) == [*thoughts, ("text", "Let me see."), ("call", '{"at": "sky"}{"at": "sea"}')]


def ask_raw(server: Upstream, path: str, body: Mapping[str, Any], name: str = "openai/up", **more: Any) -> Any:
    """(status, what came) of a streamed request."""

    async def use(client: Any, base: str) -> tuple[int, bytes]:
        read = bytearray()
        async with client.post(f"{base}/{path}", json={"model": "m", "stream": True, **body}) as answer:
            try:
                async for part in answer.content.iter_any():
                    read += part
            except aiohttp.ClientPayloadError:
                read += b"(broke)"
            return answer.status, bytes(read)

    return with_gateway(model(name, server.address), use, **more)


ASKED: Mapping[str, Any] = {"messages": USER, "max_tokens": 9}


def events_of(raw: bytes) -> list[dict[str, Any]]:
    lines = [line.removeprefix(b"data: ") for line in raw.splitlines() if line.startswith(b"data: ")]
    return [json.loads(line) for line in lines if line != b"[DONE]"]


@pytest.mark.parametrize(
    ("events", "cut"),
    [
        ([chunk(content="Let "), {"error": {"message": "key sk-1 is overloaded", "code": 503}}], False),
        ([chunk(content="Let ")], True),
        ([chunk(content="Let ")], False),
        ([chunk(content="Let "), chunk("error")], False),
        ([chunk(content="Let "), chunk(content={"no": "text"}), chunk(content="me "), "[DONE]"], False),
    ],
    ids=["an error event", "cut off", "no end", "an end that is an error", "content that is none"],
)
@pytest.mark.parametrize("api", ["messages", "responses"])
def test_ea9_a_stream_that_breaks_between_apis_is_told_and_breaks_off(api: str, events: Any, cut: bool) -> None:
    with upstream() as server:
        server.lacks = {"responses"}
        server.answers["chat/completions"] = [Gated(server, [(event, False) for event in events], cut)] * 2
        status, raw = ask_raw(server, api, ASKED if api == "messages" else {"input": "hi"})
        assert len(server.asked) == 1, "nothing is asked again once a piece has passed"
    found = events_of(raw)
    said = [event["delta"] for event in found if event["type"] in ("content_block_delta", "response.output_text.delta")]
    assert status == 200 and said[0] in ("Let ", {"type": "text_delta", "text": "Let "}) and raw.endswith(b"(broke)")
    assert b"sk-1" not in raw and len([e for e in found if e["type"] == "error"]) == (not cut)
    assert cut or found[-1]["type"] == "error"
    assert not any(event["type"] in ("message_stop", "response.completed") for event in found)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ((429, {"error": {"message": "slow"}}), 429),
        ((500, {"error": {"message": "no"}}), 500),
        ([], 502),
        (["{no json"], 502),
    ],
    ids=["429", "500", "nothing", "no JSON"],
)
def test_ea9_what_fails_before_a_piece_has_a_status(answer: Any, status: int) -> None:
    with upstream() as server:
        server.answers["chat/completions"] = [answer]
        found, raw = ask_raw(server, "messages", ASKED)
    assert found == status and json.loads(raw)["type"] == "error"


def test_ea9_a_server_that_answers_in_one_piece_or_refuses_to_count_is_heard() -> None:
    refusal = (400, {"error": {"message": "Unknown parameter: 'stream_options'", "param": "stream_options"}})
    with upstream() as server:
        server.answers["chat/completions"] = [refusal]
        status, raw = ask_raw(server, "messages", ASKED)
        assert [("stream_options" in body) for body in server.bodies("chat/completions")] == [True, False]
    assert status == 200 and b'"text":"a"' in raw and events_of(raw)[-1]["type"] == "message_stop"


def texts_of(raw: bytes) -> str:
    deltas = [event["delta"] for event in events_of(raw) if event["type"] == "content_block_delta"]
    return "".join(delta.get("text", "") for delta in deltas)


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        (["<th", "ink>Hm", ".</thi", "nk>\n", "\nA < B"], "A < B"),
        (["<thi", "ng> is a tag"], "<thing> is a tag"),
        (["One ST", "OP two"], "One "),
        (["One ST", "ART"], "One START"),
        (["One", "<|im_e", "nd|>"], "One"),
        ([[{"type": "thinking", "thinking": "Hm."}], [{"type": "text", "text": "One"}]], "One"),
        (["<think>never ends"], ""),
    ],
    ids=["thoughts", "no thoughts", "a stop", "no stop", "a token of the template", "parts", "thoughts alone"],
)
def test_ea9_pieces_hold_what_the_whole_answer_says(pieces: Any, said: str) -> None:
    events = [*(chunk(content=piece) for piece in pieces), chunk("stop"), "[DONE]"]
    with upstream() as server:
        server.answers["chat/completions"] = [events, events]
        body = {**ASKED, "stop_sequences": ["STOP"]}
        _, raw = ask_raw(server, "messages", body)
        _, whole = ask_raw(server, "messages", {**body, "stream": False})
    assert texts_of(raw) == said == "".join(block["text"] for block in json.loads(whole)["content"])


def test_ea9_calls_that_a_server_mixes_or_gives_no_ids_come_one_after_the_other() -> None:
    events = [
        chunk(tool_calls=[{"index": n, "function": {"name": f"f{n}", "arguments": ""}} for n in range(3)]),
        call(1, '{"b": '),
        call(0, '{"a": '),
        call(1, "2}"),
        call(0, "1}"),
        chunk("tool_calls"),
        "[DONE]",
    ]
    with upstream() as server:
        server.answers["chat/completions"] = [events]
        _, raw = ask_raw(server, "messages", {**ASKED, "tools": [TOOL]})
    found = [event for event in events_of(raw) if event["type"].startswith("content_block")]
    begun = [event["content_block"] for event in found if event["type"] == "content_block_start"]
    assert [block["name"] for block in begun] == ["f0", "f1", "f2"] and len({block["id"] for block in begun}) == 3
    assert [event["index"] for event in found] == sorted(event["index"] for event in found)
    told = ["".join(e["delta"]["partial_json"] for e in found if e.get("delta") and e["index"] == n) for n in range(3)]
    assert told == ['{"a": 1}', '{"b": 2}', ""]


def test_ea9_a_client_that_hangs_up_ends_the_request_upstream_between_apis_too() -> None:
    async def use(client: Any, base: str) -> None:
        async with client.post(f"{base}/messages", json={"model": "m", "stream": True, **ASKED}) as answer:
            await answer.content.readuntil(b"Let ")
        while not server.broken:
            await asyncio.sleep(0.005)

    with upstream() as server:
        gated = Gated(server, [(chunk(content="Let "), False), (chunk(content="me"), True)])
        server.answers["chat/completions"] = [gated]
        with_gateway(model("openai/up", server.address), use)
        assert server.broken == 1


def test_ea9_answers_that_are_for_us_first_come_whole() -> None:
    node = {"functions": [{"name": "f", "description": "F.", "parameters": {}, "source": "def f():\n    return 1\n"}]}
    with upstream() as server:
        ask_raw(server, "messages", ASKED, node=node)
        ask_raw(server, "chat/completions", {"messages": USER, "n": 2}, name="anthropic/up")
        assert [bool(body.get("stream")) for _, body, _ in server.asked] == [False] * 3
