"""The paths of the three APIs: take a body, return an answer or events; no HTTP."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial

from workbench.errors import LMError
from workbench.lm import Response
from workbench_external.gateway import anthropic_messages as claude, chat, gemini_api as gemini
from workbench_external.gateway.access import Admitted
from workbench_external.gateway.asks import Ask, Refused
from workbench_external.gateway.chat_events import ChatWriter
from workbench_external.gateway.message_events import MessageWriter
from workbench_external.gateway.passed import (
    Passed,
    RestoringReader,
    conversation_of,
    pass_ask,
    passed_headers,
    read_passed,
)
from workbench_external.gateway.response_events import ResponseWriter, as_message, write_failure
from workbench_external.gateway.responses import read_response, refuse_background
from workbench_external.gateway.writing import Asked, Body, Event, Raw, Writer, write_body, write_events
from workbench_kit.wire import NO_SUCH_PATH, Forwarded

Answer = Callable[[Admitted, Asked], Awaitable[Body | Iterator[Event] | Passed | Forwarded]]


@dataclass(frozen=True, slots=True)
class Dialect:
    """The form of errors in an API: as a body, and in a started stream. named: events have names, `event: ...`.
    comments: its clients ignore comments in a stream. key_in_query: they may send their key as `?key=`."""

    write_error: Callable[[Refused], Body]
    fail_stream: Callable[[Refused], Body]
    named: bool
    comments: bool = True
    key_in_query: bool = False


CHAT = Dialect(chat.write_error, chat.write_error, named=False)
RESPONSES = Dialect(chat.write_error, write_failure, named=True)
MESSAGES = Dialect(claude.write_error, claude.write_error, named=True)
GEMINI = Dialect(gemini.write_error, gemini.write_error, named=False, comments=False, key_in_query=True)
#: The dialects of one vendor, which share paths.
_VENDORS = {CHAT: "OpenAI", RESPONSES: "OpenAI", MESSAGES: "Anthropic", GEMINI: "Google"}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path of an API. answer: takes the client and the request; returns a body, the answer of a server of the same
    API, or, if the endpoint streams and the request sets `stream`, events: of the whole answer, or of the end of one
    whose pieces were sent. Events are written lazily. writer: writes answers for this endpoint."""

    method: str
    path: re.Pattern[str]
    dialect: Dialect
    answer: Answer
    streams: bool = False
    writer: type[Writer] | None = None


async def complete_chat(who: Admitted, asked: Asked) -> Body | Iterator[Event] | Passed:
    ask = pass_ask(who, "chat", asked, chat.read_chat) or chat.read_chat(asked.body)
    found = await _answers(who, ask)
    return found if isinstance(found, Passed) else _written(asked, ask, found)


async def complete_text(who: Admitted, asked: Asked) -> Body | Iterator[Event] | Passed:
    """Answer OpenAI's Completions. Only a server of the same API can, since a text to complete is not a chat."""
    ask = pass_ask(who, "completions", asked, chat.refuse_completion)
    found = await _answers(who, ask or chat.refuse_completion(asked.body))
    if not isinstance(found, Passed):
        chat.refuse_completion(asked.body)
    return found


async def respond(who: Admitted, asked: Asked) -> Body | Iterator[Event] | Passed:
    body = asked.body
    if not _passes(who, asked):
        refuse_background(body)
    read = partial(read_response, stored=who.stored)
    ask = pass_ask(who, "responses", asked, lambda body: read(body)[0], who.stored.earlier(body)) or read(body)[0]
    found = await _answers(who, ask)
    if isinstance(found, Passed):
        who.stored.keep_passed(partial(read_passed, ask, found))
        return found
    written = _written(asked, ask, found)

    def kept() -> Iterator[Event]:
        if not isinstance(written, Mapping):
            yield from written
        if body.get("store") is not False:
            try:
                conversation = read(body)[1]
            except Refused:  # answered, though a chat cannot represent all of it
                conversation = conversation_of(ask)
            who.stored.keep(asked.writer.body(), (*conversation, as_message(ask, found[0])))

    if not isinstance(written, Mapping):
        return kept()
    deque(kept(), maxlen=0)
    return written


async def show_response(who: Admitted, asked: Asked) -> Body | Forwarded:
    found = None if who.stored.wrote(asked.named) else await _forwarded(who, asked)
    return found or who.stored.body(asked.named)


async def delete_response(who: Admitted, asked: Asked) -> Body | Forwarded:
    if not who.stored.wrote(asked.named) and (found := await _forwarded(who, asked)) is not None:
        return found
    who.stored.drop(asked.named)
    return {"id": asked.named, "object": "response", "deleted": True}


async def complete_message(who: Admitted, asked: Asked) -> Body | Iterator[Event] | Passed:
    ask = pass_ask(who, "messages", asked, claude.read_messages) or claude.read_messages(asked.body)
    found = await _answers(who, ask)
    return found if isinstance(found, Passed) else _written(asked, ask, found)


async def count_tokens(who: Admitted, asked: Asked) -> Body | Forwarded:
    found = await _forwarded(who, asked, pass_ask(who, "messages", asked, claude.read_messages))
    return _unless_missing(found) or claude.write_count(claude.read_counted(asked.body))


async def generate(who: Admitted, asked: Asked) -> Body | Iterator[Event] | Passed:
    """Answer Gemini's generateContent. Only a server of the same API can."""
    ask = gemini.pass_ask(who, asked)
    found = await _answers(who, ask)
    if isinstance(found, Passed):
        return found
    written = _written(asked, ask, found)
    as_array = isinstance(written, Mapping) and asked.path.partition("?")[0].endswith(":streamGenerateContent")
    return Passed.of_model(json.dumps([written]).encode(), {}) if as_array else written


async def count_contents(who: Admitted, asked: Asked) -> Forwarded:
    return await _forwarded(who, asked, gemini.pass_ask(who, asked)) or _missing(asked)


async def embed(who: Admitted, asked: Asked) -> Body | Forwarded:
    if _passes(who, asked) and (found := await _forwarded(who, asked)) is not None:
        return found
    texts, model = chat.read_embeddings(asked.body)
    vectors, tokens = await who.session.embed(texts, model)
    return chat.write_embeddings(asked.body, vectors, tokens, model)


async def list_models(who: Admitted, asked: Asked) -> Body | Forwarded:
    if (found := await _known_models(who, asked)) is not None:
        return found
    return chat.write_model(asked.named) if asked.named else chat.write_models(who.session.models())


async def list_claude_models(who: Admitted, asked: Asked) -> Body | Forwarded:
    if (found := await _known_models(who, asked)) is not None:
        return found
    return claude.write_model(asked.named) if asked.named else claude.write_models(who.session.models())


async def _known_models(who: Admitted, asked: Asked) -> Forwarded | None:
    """Return the server's models; None if it has no such path or model, which another name may serve, or cannot be
    reached, as in a run replayed from its journal."""
    with suppress(LMError):
        return _unless_missing(await _forwarded(who, asked))
    return None


async def count_input(who: Admitted, asked: Asked) -> Forwarded:
    ask = pass_ask(who, "responses", asked, chat.refuse_completion, who.stored.earlier(asked.body))
    return await _forwarded(who, asked, ask) or _missing(asked)


async def pass_on(who: Admitted, asked: Asked) -> Forwarded:
    """Pass any other path to the server of the session's model."""
    if _passes(who, asked):
        return await _forwarded(who, asked) or _missing(asked)
    told = f"{asked.method} {asked.path.partition('?')[0]} is not passed on in a run: nobody can count what it costs."
    raise Refused(404, "not_found", f"{told} `workbench agent gateway` passes it.")


def _missing(asked: Asked) -> Forwarded:
    shown = asked.path.partition("?")[0]
    raise Refused(404, "not_found", f"The model's server speaks another API than that of {shown}.")


def _passes(who: Admitted, asked: Asked) -> bool:
    passes = getattr(who.session, "passes_path", None)
    return passes is not None and passes(asked.method, asked.path.partition("?")[0], bool(asked.raw))


async def _forwarded(who: Admitted, asked: Asked, ask: Ask | None = None) -> Forwarded | None:
    """Return the answer of the server of the session's model; None if it speaks another API.

    ask: the request, if its texts may be replaced.
    """
    forward = getattr(who.session, "forward", None)
    if forward is None:
        return None
    headers = passed_headers(asked.headers)
    own = ("content-type", "accept", *(() if isinstance(asked.raw, bytes) else ("content-length",)))
    headers |= {name: asked.headers[name] for name in own if name in asked.headers}
    return await forward(asked.method, asked.path, asked.raw or None, headers, ask)


def _unless_missing(found: Forwarded | None) -> Forwarded | None:
    """Return the answer; None if the server has no such path."""
    if found is None or found.status not in NO_SUCH_PATH:
        return found
    found.close()
    return None


def _written(asked: Asked, ask: Ask, responses: Sequence[Response]) -> Body | Iterator[Event]:
    if asked.pieces.source.begun:
        return asked.writer.end(responses)
    write = write_events if ask.stream else write_body
    return write(asked.writer, ask.messages, responses)


async def _answers(who: Admitted, ask: Ask) -> Sequence[Response] | Passed:
    responses = await who.session.complete(ask if ask.native is not None else who.returned.restore(ask))
    read = ask.read.last if isinstance(ask.read, RestoringReader) else None
    who.returned.keep(read or ask, responses)
    if len(responses) == 1 and (native := responses[0].native) is not None:
        return Passed.of_model(native["raw"].encode(), native["headers"])
    if len(responses) != ask.samples:
        raise ValueError(f"{len(responses)} answers to a request for {ask.samples}")
    return responses


def _endpoint(
    method: str,
    path: str,
    dialect: Dialect,
    answer: Answer,
    streams: bool = False,
    writer: type[Writer] | None = None,
) -> Endpoint:
    return Endpoint(method, re.compile(path), dialect, answer, streams or writer is not None, writer)


ENDPOINTS = (
    _endpoint("POST", "/chat/completions", CHAT, complete_chat, writer=ChatWriter),
    _endpoint("POST", "/responses", RESPONSES, respond, writer=ResponseWriter),
    _endpoint("GET", "/responses/((?!input_tokens$)[^/]+)", RESPONSES, show_response),
    _endpoint("DELETE", "/responses/((?!input_tokens$)[^/]+)", RESPONSES, delete_response),
    _endpoint("POST", "/responses/input_tokens", RESPONSES, count_input),
    _endpoint("POST", "/completions", CHAT, complete_text, streams=True),
    _endpoint("POST", "/embeddings", CHAT, embed),
    _endpoint("POST", "/messages", MESSAGES, complete_message, writer=MessageWriter),
    _endpoint("POST", "/messages/count_tokens", MESSAGES, count_tokens),
    _endpoint("POST", "/models/([^/:]+):(?:streamG|g)enerateContent", GEMINI, generate, writer=gemini.GeminiWriter),
    _endpoint("POST", "/models/([^/:]+):countTokens", GEMINI, count_contents),
    _endpoint("GET", "/models(?:/(.+))?", MESSAGES, list_claude_models),
    _endpoint("GET", "/models(?:/(.+))?", CHAT, list_models),
)


def asked_of(
    endpoint: Endpoint, path: str, body: Body, named: str, headers: Mapping[str, str], raw: Raw = b""
) -> Asked:
    """Return a request to an endpoint."""
    asked = Asked(endpoint.method, path, body, named, headers, raw, write=endpoint.writer)
    asked.pieces.wanted = endpoint.streams and (body.get("stream") is True or gemini.is_stream(path))
    return asked


def find_endpoint(method: str, path: str, dialect: Dialect, *, forwards: bool = False) -> tuple[Endpoint, str]:
    """Return the endpoint, and the name in the path. forwards: for a session that has other paths, too. Raises Refused
    (404, 405)."""
    allowed: list[str] = []
    if ".." in path.split("/"):  # also hidden as %2F: the URL would lose its base, and keep its key
        raise Refused(404, "not_found", "A path here has no '..'.")
    for endpoint in ENDPOINTS:
        if _VENDORS[endpoint.dialect] != _VENDORS[dialect]:
            continue
        if (found := endpoint.path.fullmatch(path)) is not None:
            if endpoint.method == method:
                return endpoint, (found[1] or "") if endpoint.path.groups else ""
            allowed.append(endpoint.method)
    if forwards:
        return _endpoint(method, "", dialect, pass_on), ""
    if allowed:
        told = ", ".join(allowed)
        raise Refused(405, "method_not_allowed", f"This path takes {told}.", headers={"Allow": told})
    served = "chat/completions, responses, embeddings, models, messages and models/NAME:generateContent"
    raise Refused(404, "not_found", f"This gateway serves {served}.")


#: A path of Google's API: a collection, a name, and a method.
_METHOD = re.compile(r"/\w+/[^/]+:\w+")


@lru_cache(maxsize=256)
def _dialects_of(path: str) -> frozenset[Dialect]:
    return frozenset(endpoint.dialect for endpoint in ENDPOINTS if endpoint.path.fullmatch(path) is not None)


def dialect_of(path: str, headers: Mapping[str, str]) -> Dialect:
    """Return the dialect of a path. If several APIs have it, or none, Anthropic's clients are recognized by their
    version header, and Google's by their key, or by the method after the model's name."""
    having = _dialects_of(path)
    if len(having) == 1:
        return next(iter(having))
    if path.startswith("/messages") or "anthropic-version" in headers:
        return MESSAGES
    if "x-goog-api-key" in headers or _METHOD.match(path):
        return GEMINI
    return RESPONSES if path.startswith("/responses") else CHAT
