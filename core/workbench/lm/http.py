"""What clients of HTTP language models share: loopback addresses, meanings of statuses, redaction of secrets, names of
reasoning models.
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

#: Suffixes of the names of environment variables that hold secrets.
_SECRET = ("_API_KEY", "_TOKEN", "_ACCESS_KEY", "_SECRET")
_SHORTEST_SECRET = 6


def is_loopback(base: str | None) -> bool:
    """Whether the server at an address such as http://127.0.0.1:8000/v1 is on this machine.

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
    """What an HTTP status of 400 and above means."""
    return _KINDS.get(status) or (FailureKind.SERVER if status >= 500 else FailureKind.BAD_REQUEST)


def is_reasoning(model: str) -> bool:
    """Whether the model takes max_completion_tokens, and refuses sampling settings and stops."""
    return _REASONING.match(model.rsplit("/", 1)[-1]) is not None


def redact(text: str, key_variable: str | None = None, headers: Mapping[str, Any] | None = None) -> str:
    """Replace in a text the keys and headers that could have been sent, in every form in which a server could echo
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
    """US dollars per prompt and completion token, from settings in dollars per million tokens; None without a price."""
    if price is None:
        return None
    values = price if isinstance(price, Mapping) else vars(price)
    return float(values["input"]) / 1e6, float(values["output"]) / 1e6
