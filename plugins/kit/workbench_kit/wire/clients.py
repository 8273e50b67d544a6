"""Shared code of clients of language models: meanings of statuses, redaction of secrets, names of reasoning models."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from workbench.base.type_guards import is_dict, is_list
from workbench.errors import FailureKind, LMError, SpecError
from workbench.lm import Request, Response, estimate_tokens, split_page

#: Bytes of an answer that a client reads, packed and unpacked.
MAX_BODY = 32 * 1024 * 1024

#: What a server says that does not have a path.
NO_SUCH_PATH = (404, 405, 501)
_KINDS = {
    400: FailureKind.BAD_REQUEST,
    401: FailureKind.AUTH,
    402: FailureKind.AUTH,
    403: FailureKind.AUTH,
    408: FailureKind.TIMEOUT,
    409: FailureKind.SERVER,  # these pass: the model is loading, or busy with the same
    423: FailureKind.SERVER,
    425: FailureKind.SERVER,
    449: FailureKind.SERVER,
    424: FailureKind.SERVER,  # the model behind a cloud failed
    499: FailureKind.SERVER,  # a proxy gave up waiting
    498: FailureKind.SERVER,  # Groq's tier without spare capacity
    413: FailureKind.TOO_LONG,
    422: FailureKind.BAD_REQUEST,
    429: FailureKind.RATE_LIMIT,
}

#: With a page they are the refusal of a firewall or proxy. 401 and 402 are about the key and the account even so.
_OF_REQUEST = (400, 403, 413, 422)

# o1, o3, gpt-5, gpt-5.1-mini ... but not gpt-5-chat, which is an ordinary model.
_REASONING = re.compile(r"(?:o[1-9](?:-.+)?|gpt-5(?:\.\d+)*(?!-chat)(?:-.+)?)$", re.IGNORECASE)

#: Suffixes of the names of environment variables that hold secrets.
_SECRET = ("_API_KEY", "_TOKEN", "_ACCESS_KEY", "_SECRET")
_SHORTEST_SECRET = 6
#: What stands before the key in a header.
_SCHEME = re.compile(r"(?i)\A(?:bearer|basic|token|apikey|api-key|key)\s+")


def kind_of_status(status: int) -> FailureKind:
    """Classify an HTTP status of 300 and above. Only 400, 413 and 422 may be about what was asked."""
    return _KINDS.get(status) or (FailureKind.SERVER if status >= 500 else FailureKind.BLOCKED)


def kind_of_answer(status: int, text: str) -> FailureKind:
    """Classify an answer by its status. One with a page is of a firewall or proxy where it could be of the server."""
    blocked = status in _OF_REQUEST and split_page(text)[1]
    return FailureKind.BLOCKED if blocked else kind_of_status(status)


def is_reasoning(model: str) -> bool:
    """Return True if the model takes max_completion_tokens, and refuses sampling settings and stops."""
    return _REASONING.match(model.rsplit("/", 1)[-1]) is not None


def redact(text: str, key_variable: str | None = None, headers: Mapping[str, Any] | None = None) -> str:
    """Replace in a text the keys and headers that could have been sent, in every form in which a server could echo
    them."""
    secrets = [value for name, value in os.environ.items() if name.endswith(_SECRET) or name == key_variable]
    return _without(text, _forms((*secrets, *map(str, (headers or {}).values()))))


def body_of(raw: bytes | str) -> Any:
    """The body of an error as JSON, else as text."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return raw if isinstance(raw, str) else raw.decode("utf-8", "replace")


def redact_answer(response: Response, key: str | None, headers: Mapping[str, Any] | None = None) -> Response:
    """Replace in an answer the key and headers that were sent with its request: a server may echo them anywhere.

    Raises LMError("bad_body") for one that is nested too deeply to be looked through, and to be stored.
    """
    forms = _forms((key or "", *map(str, (headers or {}).values())))
    if not forms:
        return response

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            return _without(value, forms)
        if is_dict(value):
            return {clean(name): clean(part) for name, part in value.items()}
        return [clean(part) for part in value] if is_list(value) else value

    try:
        calls = tuple(clean(dict(call)) for call in response.tool_calls)
        message = None if response.message is None else clean(dict(response.message))
    except RecursionError:
        raise LMError("bad_body", "an answer that is nested too deeply") from None
    text, thoughts = clean(response.text), clean(response.thoughts)
    native = None if response.native is None else {**response.native, "raw": _without(response.native["raw"], forms)}
    return replace(response, text=text, thoughts=thoughts, tool_calls=calls, message=message, native=native)


def redactor(key: str | None, headers: Mapping[str, Any] | None = None) -> Callable[[str], str]:
    """Return a function that removes the key and headers of a request from texts of its answer."""
    forms = _forms((key or "", *map(str, (headers or {}).values())))
    return lambda text: _without(text, forms)


class Mask:
    """Removes the key and headers of a request from an answer that comes in parts. Each becomes as many `*`: lengths
    that the answer tells stay right. Held back is only what may be the beginning of one."""

    def __init__(self, key: str | None, headers: Mapping[str, Any] | None = None):
        forms = _forms((key or "", *map(str, (headers or {}).values())))
        self._forms, self._held = [form.encode("utf-8", "surrogateescape") for form in forms], b""

    def add(self, part: bytes) -> bytes:
        """Return as much as can be passed on."""
        if not self._forms:
            return part
        read = self._held + part
        for form in self._forms:
            read = read.replace(form, b"*" * len(form))
        begun = max(_begun(form, read) for form in self._forms)
        self._held = read[len(read) - begun :]
        return read[: len(read) - begun]

    def end(self) -> bytes:
        """The rest."""
        return self._held


def _begun(form: bytes, read: bytes) -> int:
    """The number of bytes at the end with which a form begins."""
    return next((n for n in range(min(len(form) - 1, len(read)), 0, -1) if read.endswith(form[:n])), 0)


def header_text(value: str) -> str:
    """A header as aiohttp writes it: bytes that are no UTF-8 are latin-1 (RFC 9110, 5.5), and would be left out."""
    return value if value.isascii() else _decoded(value.encode("utf-8", "surrogateescape"))


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


@lru_cache(maxsize=64)
def _forms(secrets: tuple[str, ...]) -> list[str]:
    """All that a server could write for the secrets, the longest first; of `Bearer KEY` also the key alone."""
    every = [part for secret in secrets for part in (secret.strip(), _SCHEME.sub("", secret.strip()))]
    return sorted({form for secret in every for form in _echoes(secret)}, key=len, reverse=True)


def _without(text: str, forms: Iterable[str]) -> str:
    for form in forms:
        text = text.replace(form, "***")
    return text


@lru_cache(maxsize=64)
def _echoes(secret: str) -> frozenset[str]:
    """A secret as a server could write it: plain, for an address, in hex, and in base64, alone or after other text."""
    if len(secret) < _SHORTEST_SECRET:
        return frozenset()
    raw = secret.encode("utf-8", "surrogateescape")
    quoted = quote(secret, safe="", errors="replace")
    forms = {secret, quoted, re.sub("%..", lambda found: found.group().lower(), quoted), raw.hex(), raw.hex().upper()}
    for before in range(3):  # bytes before it shift what base64 makes of it
        encoded = base64.b64encode(bytes(before) + raw).decode().rstrip("=")
        whole = encoded[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]  # without characters shared with others
        forms |= {whole, whole.replace("+", "-").replace("/", "_")}
    return frozenset(forms)


def check_extra(extra: Mapping[str, Any], model: str) -> None:
    """Raise SpecError for provider settings that belong to requests, as `temperature`."""
    if refused := {"temperature", "max_tokens", "max_completion_tokens"} & extra.keys():
        raise SpecError(
            f"'{min(refused)}' cannot be set for {model}",
            path=("extra",),
            hint="Write temperature and max_tokens under lm, not under extra.",
        )


def estimate_answer(said: str) -> int:
    """A high estimate of the tokens of an answer: one for each three characters."""
    return -(-len(said) // 3)


def refused_prompt(request: Request) -> Response:
    """The answer where a filter of the provider's stopped the prompt: nothing is billed."""
    return Response("", "refusal", estimate_tokens(request.messages), usd=0.0, estimated=True)


def storable(text: str) -> str:
    """A text with '?' for halves of characters (\\ud83d alone), which cannot be stored or sent as UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
