"""Shared code of clients of HTTP language models: loopback addresses, meanings of statuses, redaction of secrets, names
of reasoning models.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Any
from urllib.parse import quote, urlsplit

from workbench.base.type_guards import is_dict, is_list
from workbench.errors import FailureKind, LMError
from workbench.lm.protocol import Response

#: Bytes of an answer that a client reads, packed and unpacked.
MAX_BODY = 32 * 1024 * 1024

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
_PAGE = re.compile(r"<(?:!doctype html|html|head|body|title)\b", re.IGNORECASE)

# o1, o3, gpt-5, gpt-5.1-mini ... but not gpt-5-chat, which is an ordinary model.
_REASONING = re.compile(r"(?:o[1-9](?:-.+)?|gpt-5(?:\.\d+)*(?!-chat)(?:-.+)?)$", re.IGNORECASE)

#: Suffixes of the names of environment variables that hold secrets.
_SECRET = ("_API_KEY", "_TOKEN", "_ACCESS_KEY", "_SECRET")
_SHORTEST_SECRET = 6
#: What stands before the key in a header.
_SCHEME = re.compile(r"(?i)\A(?:bearer|basic|token|apikey|api-key|key)\s+")


def is_loopback(base: str | None) -> bool:
    """Return True if the server at an address such as http://127.0.0.1:8000/v1 is on this machine.

    Only localhost and numeric addresses count: a host name may begin with `127.` and resolve to any address.
    """
    try:
        host = urlsplit(base or "").hostname or ""
        if host == "localhost":
            return True
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def kind_of_status(status: int) -> FailureKind:
    """Classify an HTTP status of 300 and above. Only 400, 413 and 422 may be about what was asked."""
    return _KINDS.get(status) or (FailureKind.SERVER if status >= 500 else FailureKind.BLOCKED)


def split_page(text: str) -> tuple[str, str]:
    """(the words of an error, the web page after them): of whatever stands between, as APIs of models answer in
    JSON."""
    found = _PAGE.search(text)
    return (text, "") if found is None else (text[: found.start()], text[found.start() :])


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
