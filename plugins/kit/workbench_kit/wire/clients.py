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

#: Maximum bytes of an answer that a client reads, compressed and decompressed.
MAX_BODY = 32 * 1024 * 1024

#: Messages of a server that does not have a path.
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

#: With an HTML page, these are the refusal of a firewall or proxy. 401 and 402 are about the key and the account
#: anyway.
_OF_REQUEST = (400, 403, 413, 422)

# o1, o3, gpt-5, gpt-5.1-mini ... but not gpt-5-chat, which is an ordinary model.
_REASONING = re.compile(r"(?:o[1-9](?:-.+)?|gpt-5(?:\.\d+)*(?!-chat)(?:-.+)?)$", re.IGNORECASE)

#: Suffixes of the names of environment variables that hold secrets.
_SECRET = ("_API_KEY", "_TOKEN", "_ACCESS_KEY", "_SECRET")
_SHORTEST_SECRET = 6
#: Prefixes of the key in a header.
_SCHEME = re.compile(r"(?i)\A(?:bearer|basic|token|apikey|api-key|key)\s+")


def kind_of_status(status: int) -> FailureKind:
    """Classify an HTTP status of 300 and above. Only 400, 413 and 422 may be about the request's content."""
    return _KINDS.get(status) or (FailureKind.SERVER if status >= 500 else FailureKind.BLOCKED)


def kind_of_answer(status: int, text: str) -> FailureKind:
    """Classify an answer by its status. An HTML page is from a firewall or proxy if the status allows that."""
    blocked = status in _OF_REQUEST and split_page(text)[1]
    return FailureKind.BLOCKED if blocked else kind_of_status(status)


def is_reasoning(model: str) -> bool:
    """Return True if the model takes max_completion_tokens, and refuses sampling settings and stops."""
    return _REASONING.match(model.rsplit("/", 1)[-1]) is not None


def redact(text: str, key_variable: str | None = None, headers: Mapping[str, Any] | None = None) -> str:
    """Remove from a text the keys and headers that could have been sent, in all forms in which a server could echo
    them."""
    secrets = [value for name, value in os.environ.items() if name.endswith(_SECRET) or name == key_variable]
    return _without(text, _forms((*secrets, *map(str, (headers or {}).values()))))


def body_of(raw: bytes | str) -> Any:
    """Parse the body of an error as JSON, else return it as text."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return raw if isinstance(raw, str) else raw.decode("utf-8", "replace")


def redact_answer(response: Response, key: str | None, headers: Mapping[str, Any] | None = None) -> Response:
    """Remove from an answer the key and headers sent with its request: a server may echo them anywhere. Raises
    LMError("bad_body") for an answer nested too deeply to be searched and stored."""
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
    """Removes the key and headers of a request from an answer that arrives in parts. Each is replaced by as many `*`,
    so that lengths stated in the answer stay right. Only a possible beginning of one is held back."""

    def __init__(self, key: str | None, headers: Mapping[str, Any] | None = None):
        forms = _forms((key or "", *map(str, (headers or {}).values())))
        self._forms, self._held = [form.encode("utf-8", "surrogateescape") for form in forms], b""

    def add(self, part: bytes) -> bytes:
        """Add a part. Returns as much as can be passed on."""
        if not self._forms:
            return part
        read = self._held + part
        for form in self._forms:
            read = read.replace(form, b"*" * len(form))
        begun = max(_begun(form, read) for form in self._forms)
        self._held = read[len(read) - begun :]
        return read[: len(read) - begun]

    def end(self) -> bytes:
        """Return the rest."""
        return self._held


def _begun(form: bytes, read: bytes) -> int:
    """Return the number of bytes at the end of `read` that are the beginning of `form`."""
    return next((n for n in range(min(len(form) - 1, len(read)), 0, -1) if read.endswith(form[:n])), 0)


def header_text(value: str) -> str:
    """Return a header as aiohttp writes it. Bytes that are not UTF-8 are latin-1 (RFC 9110, 5.5), and would be left
    out."""
    return value if value.isascii() else _decoded(value.encode("utf-8", "surrogateescape"))


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


@lru_cache(maxsize=64)
def _forms(secrets: tuple[str, ...]) -> list[str]:
    """Return all forms in which a server could write the secrets, the longest first; for `Bearer KEY` also the key
    alone."""
    every = [part for secret in secrets for part in (secret.strip(), _SCHEME.sub("", secret.strip()))]
    return sorted({form for secret in every for form in _echoes(secret)}, key=len, reverse=True)


def _without(text: str, forms: Iterable[str]) -> str:
    for form in forms:
        text = text.replace(form, "***")
    return text


@lru_cache(maxsize=64)
def _echoes(secret: str) -> frozenset[str]:
    """Return the forms of a secret in a server's text: plain, for an address, in hex, and in base64, alone or after
    text."""
    if len(secret) < _SHORTEST_SECRET:
        return frozenset()
    raw = secret.encode("utf-8", "surrogateescape")
    quoted = quote(secret, safe="", errors="replace")
    forms = {secret, quoted, re.sub("%..", lambda found: found.group().lower(), quoted), raw.hex(), raw.hex().upper()}
    for before in range(3):  # bytes before it shift its base64
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
    """Return a high estimate of the tokens of an answer: one per three characters."""
    return -(-len(said) // 3)


def refused_prompt(request: Request) -> Response:
    """Return the answer if a provider's filter stopped the prompt: nothing is billed."""
    return Response("", "refusal", estimate_tokens(request.messages), usd=0.0, estimated=True)


def storable(text: str) -> str:
    """Return a text with '?' for lone surrogates (\\ud83d alone), which cannot be stored or sent as UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
