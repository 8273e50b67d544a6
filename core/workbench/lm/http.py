"""What all language models behind HTTP have in common: which servers are on this machine, what a status means, which
secrets an error text must not show, and which models are of the reasoning kind.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address
from typing import Any
from urllib.parse import quote, urlsplit

from workbench.failures import FailureKind

_KINDS = {
    401: FailureKind.AUTH,
    402: FailureKind.AUTH,
    403: FailureKind.AUTH,
    408: FailureKind.TIMEOUT,
    413: FailureKind.TOO_LONG,
    429: FailureKind.RATE_LIMIT,
}

# o1, o3, gpt-5, gpt-5.1-mini ... but not gpt-5-chat, which is an ordinary model.
_REASONING = re.compile(r"(?:o[1-9](?:-.+)?|gpt-5(?:\.\d+)*(?!-chat)(?:-.+)?)$", re.IGNORECASE)

#: Variables whose names end so hold secrets.
_SECRET = ("_API_KEY", "_TOKEN", "_ACCESS_KEY", "_SECRET")
_SHORTEST_SECRET = 6


def is_loopback(base: str | None) -> bool:
    """Whether the server at an address such as http://127.0.0.1:8000/v1 is on this machine.

    By the address itself: a name may begin with `127.` and lead anywhere.
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
    """What an HTTP status of 400 and above means."""
    return _KINDS.get(status) or (FailureKind.SERVER if status >= 500 else FailureKind.BAD_REQUEST)


def is_reasoning(model: str) -> bool:
    """Whether the model takes max_completion_tokens, and refuses sampling settings and stops."""
    return _REASONING.match(model.rsplit("/", 1)[-1]) is not None


def redact(text: str, key_variable: str | None = None, headers: Mapping[str, Any] | None = None) -> str:
    """A text without the keys and headers that could have been sent, in every form in which a server could echo
    them."""
    secrets = [value for name, value in os.environ.items() if name.endswith(_SECRET) or name == key_variable]
    forms: set[str] = set()
    for secret in (*secrets, *map(str, (headers or {}).values())):
        if len(secret := secret.strip()) >= _SHORTEST_SECRET:
            encoded = base64.b64encode(secret.encode("utf-8", "surrogateescape")).decode()
            forms |= {secret, quote(secret, safe="", errors="replace"), encoded.rstrip("=")}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, "***")
    return text


def parse_price(price: Any) -> tuple[float, float] | None:
    """US dollars per token in and out, of the settings' dollars per million tokens; None where the settings have
    none."""
    if price is None:
        return None
    values = price if isinstance(price, Mapping) else vars(price)
    return float(values["input"]) / 1e6, float(values["output"]) / 1e6
