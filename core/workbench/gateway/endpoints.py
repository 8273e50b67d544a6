"""What each path of the two APIs does: a body in, an answer or events out; no HTTP."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.gateway import chat
from workbench.gateway.access import Admitted
from workbench.gateway.asks import Ask, Refused
from workbench.lm import Response

Body = Mapping[str, Any]
Event = Mapping[str, Any] | str


@dataclass(frozen=True, slots=True)
class Dialect:
    """How an API writes an error: as a body, and in a stream that has begun. named: events have names, `event: ...`."""

    write_error: Callable[[Refused], Body]
    fail_stream: Callable[[Refused], Body]
    named: bool


CHAT = Dialect(chat.write_error, chat.write_error, named=False)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """answer: takes who asks, the body, and what the path names, and gives a body or, where the request says `stream`,
    events."""

    method: str
    path: re.Pattern[str]
    dialect: Dialect
    answer: Callable[[Admitted, Body, str], Awaitable[Body | Iterator[Event]]]


async def complete_chat(who: Admitted, body: Body, _: str) -> Body | Iterator[Event]:
    ask = chat.read_chat(body)
    responses = await _answers(who, ask)
    return chat.stream_chat(ask, responses, body) if ask.stream else chat.write_chat(ask, responses)


async def embed(who: Admitted, body: Body, _: str) -> Body:
    texts, model = chat.read_embeddings(body)
    vectors, tokens = await who.session.embed(texts, model)
    return chat.write_embeddings(body, vectors, tokens, model)


async def list_models(who: Admitted, body: Body, name: str) -> Body:
    if name:
        return chat.write_model(name)
    return {"object": "list", "data": [chat.write_model(one) for one in who.session.models()]}


async def _answers(who: Admitted, ask: Ask) -> Sequence[Response]:
    responses = await who.session.complete(ask)
    if len(responses) != ask.samples:
        raise ValueError(f"{len(responses)} answers to a request for {ask.samples}")
    return responses


ENDPOINTS = (
    Endpoint("POST", re.compile("/chat/completions"), CHAT, complete_chat),
    Endpoint("POST", re.compile("/embeddings"), CHAT, embed),
    Endpoint("GET", re.compile("/models(?:/(.+))?"), CHAT, list_models),
)


def find_endpoint(method: str, path: str) -> tuple[Endpoint, str]:
    """The endpoint, and what the path names. Raises Refused (404, 405)."""
    allowed: list[str] = []
    for endpoint in ENDPOINTS:
        if (found := endpoint.path.fullmatch(path)) is not None:
            if endpoint.method == method:
                return endpoint, (found[1] or "") if endpoint.path.groups else ""
            allowed.append(endpoint.method)
    if allowed:
        told = ", ".join(allowed)
        raise Refused(405, "method_not_allowed", f"This path takes {told}.", headers={"Allow": told})
    raise Refused(404, "not_found", "This gateway serves chat/completions, responses, embeddings, models and messages.")


def dialect_of(path: str, headers: Mapping[str, str]) -> Dialect:
    """The dialect of an error about a request that reaches no endpoint."""
    return CHAT
