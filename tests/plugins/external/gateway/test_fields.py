"""Every field of the official clients' types passes to a server of the same API and back: none is lost in silence.

The fields are those of the installed packages `openai` and `anthropic`.
"""

from __future__ import annotations

import json
from typing import Any

import anthropic.types as claude
import pytest
from anthropic.types.beta.message_create_params import MessageCreateParamsBase as BetaMessageParams
from anthropic.types.message_create_params import MessageCreateParamsBase as MessageParams
from openai.types import Completion, responses as openai_responses
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import CompletionCreateParamsBase as ChatParams
from openai.types.completion_create_params import CompletionCreateParamsBase as CompletionParams
from openai.types.responses.response_create_params import ResponseCreateParamsBase as ResponseParams
from tests.helpers.passing import APIS, model, with_gateway
from tests.helpers.typed_fields import count_fields, covering, values_of
from tests.helpers.upstream import Upstream, as_event, upstream

#: By API: its parameters, how many fields these have at least, an answer, and the events of a stream.
TYPES: dict[str, tuple[list[Any], int, Any, Any]] = {
    "chat": ([ChatParams], 120, ChatCompletion, ChatCompletionChunk),
    "responses": ([ResponseParams], 400, openai_responses.Response, openai_responses.ResponseStreamEvent),
    "messages": ([MessageParams, BetaMessageParams], 400, claude.Message, claude.RawMessageStreamEvent),
    "completions": ([CompletionParams], 12, Completion, Completion),
}
#: What is refused everywhere: an answer that comes later, whose cost nobody would be told.
REFUSED = {"background"}


def sent_bodies(api: str) -> list[dict[str, Any]]:
    bodies = covering(body for kind in TYPES[api][0] for body in values_of(kind))
    return [{**{n: v for n, v in body.items() if n not in REFUSED}, "model": "named"} for body in bodies]


def pass_through(api: str, bodies: list[Any], server: Upstream) -> list[tuple[int, bytes]]:
    path, name = APIS[api]

    async def use(client: Any, base: str) -> list[tuple[int, bytes]]:
        found = []
        for body in bodies:
            async with client.post(f"{base}/{path}", json=body) as answer:
                found.append((answer.status, await answer.read()))
        return found

    return with_gateway(model(name, server.address), use)


@pytest.mark.parametrize("api", TYPES)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_ea_fields_of_requests_all_pass_and_none_is_added(api: str, streamed: bool) -> None:
    bodies = [{**body, **({"stream": True} if streamed else {})} for body in sent_bodies(api)]
    with upstream() as server:
        server.checks = {}
        found = pass_through(api, bodies, server)
        asked = server.bodies(APIS[api][0])
    assert [status for status, _ in found] == [200] * len(bodies)
    assert asked == [{**body, "model": "up"} for body in bodies]
    assert len(count_fields(bodies)) >= TYPES[api][1], "the types were walked"


def whole_answers(api: str) -> list[Any]:
    """Answers with every field, none of which says that it failed."""
    found = covering(values_of(TYPES[api][2]))
    for body in found:
        if api == "responses":
            body |= {"status": "completed", "error": None, "incomplete_details": None}
        for choice in body.get("choices", ()):
            choice["finish_reason"] = "tool_calls" if api == "chat" else "stop"
    return found


@pytest.mark.parametrize("api", TYPES)
def test_ea_fields_of_answers_all_come_back_byte_by_byte(api: str) -> None:
    answers, (path, _) = whole_answers(api), APIS[api]
    with upstream() as server:
        server.checks = {}
        server.answers[path] = list(answers)
        found = pass_through(api, [{"model": "m"}] * len(answers), server)
    assert [(status, raw.decode()) for status, raw in found] == [(200, json.dumps(body)) for body in answers]


#: What ends a stream of each API.
ENDS: dict[str, list[Any]] = {
    "chat": [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, "[DONE]"],
    "responses": [{"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}}],
    "messages": [{"type": "message_stop"}],
    "completions": [{"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}, "[DONE]"],
}


@pytest.mark.parametrize("api", TYPES)
def test_ea_fields_of_events_all_come_back_byte_by_byte(api: str) -> None:
    path, _ = APIS[api]
    events = covering(values_of(TYPES[api][3]))
    known = [event for event in events if event.get("type") not in ("error", "message_stop", "response.failed")]
    if api == "messages":
        known.sort(key=lambda event: event["type"] != "message_start")
    known = [*known, *ENDS[api]]
    with upstream() as server:
        server.checks = {}
        server.answers[path] = [known]
        ((status, raw),) = pass_through(api, [{"model": "m", "stream": True}], server)
    assert (status, raw) == (200, b"".join(map(as_event, known)))
