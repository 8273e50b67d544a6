"""What each path of the two APIs does: a body in, an answer or events out; no HTTP."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.gateway import anthropic_messages as claude
from workbench.gateway import chat, response_events
from workbench.gateway.access import Admitted
from workbench.gateway.asks import Ask, Refused
from workbench.gateway.responses import read_response
from workbench.lm import Response

Body = Mapping[str, Any]
Event = Mapping[str, Any] | str
Answer = Callable[[Admitted, Body, str], Awaitable[Body | Iterator[Event]]]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How an API writes an error: as a body, and in a stream that has begun. named: events have names, `event: ...`."""

    write_error: Callable[[Refused], Body]
    fail_stream: Callable[[Refused], Body]
    named: bool


CHAT = Dialect(chat.write_error, chat.write_error, named=False)
RESPONSES = Dialect(chat.write_error, response_events.write_failure, named=True)
MESSAGES = Dialect(claude.write_error, claude.write_error, named=True)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """answer: takes who asks, the body, and what the path names; gives a body or, where the endpoint streams and the
    request says `stream`, events."""

    method: str
    path: re.Pattern[str]
    dialect: Dialect
    answer: Answer
    streams: bool = False


async def complete_chat(who: Admitted, body: Body, _: str) -> Body | Iterator[Event]:
    ask = chat.read_chat(body)
    responses = await _answers(who, ask)
    return chat.stream_chat(ask, responses, body) if ask.stream else chat.write_chat(ask, responses)


async def respond(who: Admitted, body: Body, _: str) -> Body | Iterator[Event]:
    ask, conversation = read_response(body, who.stored)
    (response,) = await _answers(who, ask)
    written = response_events.write_response(ask, response, body)
    if body.get("store") is not False:
        who.stored.keep(written, (*conversation, response_events.as_message(ask, response)))
    return response_events.stream_response(written) if ask.stream else written


async def show_response(who: Admitted, _: Body, number: str) -> Body:
    return who.stored.body(number)


async def delete_response(who: Admitted, _: Body, number: str) -> Body:
    who.stored.drop(number)
    return {"id": number, "object": "response", "deleted": True}


async def complete_message(who: Admitted, body: Body, _: str) -> Body | Iterator[Event]:
    ask = claude.read_messages(body)
    (response,) = await _answers(who, ask)
    return claude.stream_message(ask, response) if ask.stream else claude.write_message(ask, response)


async def count_tokens(who: Admitted, body: Body, _: str) -> Body:
    return claude.write_count(claude.read_counted(body))


async def embed(who: Admitted, body: Body, _: str) -> Body:
    texts, model = chat.read_embeddings(body)
    vectors, tokens = await who.session.embed(texts, model)
    return chat.write_embeddings(body, vectors, tokens, model)


async def list_models(who: Admitted, _: Body, name: str) -> Body:
    return chat.write_model(name) if name else chat.write_models(who.session.models())


async def list_claude_models(who: Admitted, _: Body, name: str) -> Body:
    return claude.write_model(name) if name else claude.write_models(who.session.models())


async def _answers(who: Admitted, ask: Ask) -> Sequence[Response]:
    responses = await who.session.complete(who.returned.restore(ask))
    if len(responses) != ask.samples:
        raise ValueError(f"{len(responses)} answers to a request for {ask.samples}")
    who.returned.keep(ask, responses)
    return responses


def _endpoint(method: str, path: str, dialect: Dialect, answer: Answer, streams: bool = False) -> Endpoint:
    return Endpoint(method, re.compile(path), dialect, answer, streams)


ENDPOINTS = (
    _endpoint("POST", "/chat/completions", CHAT, complete_chat, streams=True),
    _endpoint("POST", "/responses", RESPONSES, respond, streams=True),
    _endpoint("GET", "/responses/([^/]+)", RESPONSES, show_response),
    _endpoint("DELETE", "/responses/([^/]+)", RESPONSES, delete_response),
    _endpoint("POST", "/embeddings", CHAT, embed),
    _endpoint("POST", "/messages", MESSAGES, complete_message, streams=True),
    _endpoint("POST", "/messages/count_tokens", MESSAGES, count_tokens),
    _endpoint("GET", "/models(?:/(.+))?", MESSAGES, list_claude_models),
    _endpoint("GET", "/models(?:/(.+))?", CHAT, list_models),
)


def find_endpoint(method: str, path: str, dialect: Dialect) -> tuple[Endpoint, str]:
    """The endpoint, and what the path names. Raises Refused (404, 405)."""
    allowed: list[str] = []
    for endpoint in ENDPOINTS:
        if (endpoint.dialect is MESSAGES) != (dialect is MESSAGES):
            continue
        if (found := endpoint.path.fullmatch(path)) is not None:
            if endpoint.method == method:
                return endpoint, (found[1] or "") if endpoint.path.groups else ""
            allowed.append(endpoint.method)
    if allowed:
        told = ", ".join(allowed)
        raise Refused(405, "method_not_allowed", f"This path takes {told}.", headers={"Allow": told})
    raise Refused(404, "not_found", "This gateway serves chat/completions, responses, embeddings, models and messages.")


def dialect_of(path: str, headers: Mapping[str, str]) -> Dialect:
    """Anthropic's for its own paths, and where its clients name the version of their API."""
    if path.startswith("/messages") or "anthropic-version" in headers:
        return MESSAGES
    return RESPONSES if path.startswith("/responses") else CHAT
