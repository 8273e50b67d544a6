"""Requests and answers that pass unchanged, when the model's server speaks the agent's API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from urllib.parse import urljoin

from workbench.base.type_guards import is_dict, is_list
from workbench.errors import LMError
from workbench.lm import Message, Native, NotCarried, Request, max_tokens
from workbench_external.gateway import fields as f
from workbench_external.gateway.access import Admitted
from workbench_external.gateway.asks import Ask, Refused
from workbench_external.gateway.replaced import replace_texts, without_places
from workbench_external.gateway.table import INERT
from workbench_external.gateway.view import PLACE, View, read_view
from workbench_external.gateway.writing import Asked
from workbench_kit.wire import Forwarded, body_of as loaded, header_text, is_stream, join_events, plain_message

#: Headers of an agent that change an answer.
_HEADERS = ("anthropic-beta", "anthropic-version", "openai-beta")
#: Headers of its connection to the gateway (RFC 9110, 7.6.1), those that the new request sets itself, and its secret.
_NOT_PASSED = frozenset(
    "connection keep-alive proxy-authorization proxy-connection te trailer transfer-encoding upgrade expect host "
    "content-length accept accept-encoding content-type authorization x-api-key api-key x-goog-api-key".split()
)


@dataclass(frozen=True, slots=True)
class Passed:
    """An answer of a server."""

    raw: bytes
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    status: int = 200

    @classmethod
    def of_model(cls, raw: bytes, headers: Mapping[str, str]) -> Passed:
        """Return the answer to a model request. The content type is derived, as it is not stored."""
        kind = "text/event-stream; charset=utf-8" if is_stream(raw) else "application/json"
        return cls(raw, {"content-type": kind, **headers})


def passed_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Select the headers that pass with a request, by lowercase name. Repeated ones are joined to a list (RFC 9110,
    5.3)."""
    found: dict[str, str] = {}
    for name, value in headers.items():
        if (own := name.lower()) not in _NOT_PASSED:
            found[own] = f"{found[own]}, {header_text(value)}" if own in found else header_text(value)
    return found


def headers_below(answer: Forwarded, own: str) -> Iterator[tuple[str, str]]:
    """Yield the headers of an answer. URLs below the server's base are changed to ours, so that a client that follows a
    redirect, or requests a next page, comes back here with the key for here."""
    for name, value in answer.headers:
        place = urljoin(answer.url, value) if name.lower() == "location" else value
        yield name, place.replace(f"{answer.base}/", f"{own}/")


def pass_ask(
    who: Admitted,
    api: str,
    asked: Asked,
    read: Callable[[Mapping[str, Any]], Ask],
    earlier: Sequence[Message] = (),
) -> Ask | None:
    """Return the request unchanged, for a session that takes it so; None for another one.

    read: converts a body to an Ask in the form of chat completions; raises Refused if something would be lost. earlier:
    the conversation that the request continues. Raises Refused (400).
    """
    if not getattr(who.session, "passes", False):
        return None
    body = asked.body
    model = f.as_name(body.get("model"), "model", "Send the name of a model.")
    samples = 1 if body.get("n") is None else f.as_whole(body["n"], "n", 1, f.MAX_SAMPLES)
    view = read_view(api, body, earlier)
    settings: dict[str, Any] = {"max_tokens": max_tokens(api, body), "response_format": view.form}
    if isinstance(body.get("temperature"), int | float):
        settings["temperature"] = float(body["temperature"])
    if body.get("logprobs") is True:
        settings["logprobs"] = True
    if (choice := body.get("tool_choice")) is not None:
        settings["extra"] = {"tool_choice": "auto" if choice == {"type": "auto"} else choice}
    sent = passed_headers(asked.headers)
    matter = {name: sent.pop(name) for name in _HEADERS if name in sent}
    native = Native(api, body, matter, INERT[api], sent, restored=partial(_restored, who, api))
    streams = body.get("stream") is True
    given = {name: value for name, value in settings.items() if value is not None}
    messages, tools = tuple(view.messages), tuple(view.tools)
    return Ask(model, messages, tools, given, samples, streams, native, view, RestoringReader(who, read), asked.pieces)


class RestoringReader:
    """Reads bodies for servers of another API. last: the latest one, with its turns as the agent sent them."""

    def __init__(self, who: Admitted, read: Callable[[Mapping[str, Any]], Ask]):
        self._who, self._read = who, read
        self.last: Ask | None = None

    def __call__(self, body: Mapping[str, Any]) -> Ask:
        """Read a body, and put back what providers added to earlier turns. Raises Refused."""
        self.last = self._read(body)
        return self._who.returned.restore(self.last)


def _restored(who: Admitted, api: str, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    sent = body.get("messages") if api == "chat" else None
    messages = who.returned.restore_messages(sent) if is_list(sent) else None
    return None if messages is None else {"messages": messages}


def as_it_is_sent(
    ask: Ask,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    form: Mapping[str, Any] | None,
    changed: Mapping[str, Any],
    make: Callable[[Ask], Request],
) -> Native:
    """Return the request with its texts replaced.

    Args:
        messages, tools, form: changed copies of those of the `ask`, perhaps with further ones.
        changed: settings that override the agent's: `temperature`, `max_tokens`, `n`; None removes one.
        make: makes the request for a server of another API.
    """
    native, view, read = ask.native, ask.view, ask.read
    assert native is not None and view is not None and read is not None
    sent = _not_kept_there(view, messages)
    own = replace(native, body=replace_texts(view, native.body, sent, tools, form))
    for name, value in changed.items():
        own = own.with_setting(name, value)

    def convert(body: Mapping[str, Any]) -> Request:
        """Convert to another API. Turns that the agent has not seen stay as received, and none is stored elsewhere."""
        own = {_ids(message): message for message in messages if PLACE not in message and message.get("tool_calls")}
        replaced = [*_said_before(view, messages)]
        if len(sent) < len(messages):
            body = {**body, "input": replace_texts(view, native.body, messages)["input"]}
        if own and native.api == "chat":
            body = {**body, "messages": [plain_message(m) if _ids(m) in own else m for m in body["messages"]]}
        try:
            found = read(body)
            turns = [own.get(_ids(message), message) if own else message for message in found.messages]
            turns = [next((new for old, new in replaced if old == message), message) for message in turns]
            return make(replace(found, messages=tuple(turns)))
        except Refused as refused:
            raise NotCarried(refused.message, refused.field, refused.status) from None

    return replace(own, convert=convert, ours=frozenset(changed))


def _not_kept_there(view: View, messages: Sequence[Message]) -> Sequence[Message]:
    """Drop our messages before the ones that the body only refers to. The server that stores those received ours with
    them."""
    if not view.earlier:
        return messages
    before = [n for n, m in enumerate(messages) if view.is_earlier(m)]
    ours = messages[: before[-1]] if before else ()
    kept = [m for m in ours if PLACE in m or m.get("role") == "system"]
    return [*kept, *messages[before[-1] :]] if len(kept) < len(ours) else messages


def _said_before(view: View, messages: Sequence[Message]) -> Iterator[tuple[Message, Message]]:
    """Yield (stored message, changed copy) for each replaced message that the body only refers to."""
    for message in messages:
        if view.is_earlier(message):
            old, new = without_places([view.messages[message[PLACE]], message])
            if old != new:
                yield old, new


def _ids(message: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(call.get("id")) for call in message.get("tool_calls") or ())


def read_passed(ask: Ask, found: Passed) -> tuple[str, tuple[Message, ...]] | None:
    """Return (id of another server's answer, the conversation up to it), for the traces of later requests; None if it
    cannot be read."""
    try:
        body = join_events("responses", found.raw) or loaded(found.raw)
    except LMError:
        return None
    if not is_dict(body) or not isinstance(body.get("id"), str):
        return None
    said = read_view("responses", {"input": body.get("output")}).messages
    return body["id"], (*conversation_of(ask), *without_places(said))


def conversation_of(ask: Ask) -> tuple[Message, ...]:
    """Extract the conversation of a passed request, without its instructions."""
    return tuple(without_places([m for m in ask.messages if m["role"] not in ("system", "developer")]))
