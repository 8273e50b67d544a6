"""Headers of settings: those that answers may depend on, and the target of a redirect."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

from workbench.base.hashing import digest

#: Names of headers with credentials, and of variables with them.
_CREDENTIAL = re.compile(
    r"(?i)auth|secret|token(?!s)|passw|credential|cookie|signature|"
    r"(?:api|access|subscription|app|private|license|master|virtual|functions|shared|account)[-_]?key|\A(?:x-)?key\Z"
)


def headers_key(headers: Mapping[str, Any]) -> str:
    """Return a hash of the headers that select the answering service: tenants, routes, betas. "" if there are none.

    Credentials are not part of it, so that another key of the same account finds the same answers.

    Args:
        headers: as the settings write them, with $NAME for variables.
    """
    chosen = {
        name.lower(): os.path.expandvars(str(value)).strip()
        for name, value in headers.items()
        if not _CREDENTIAL.search(name) and not any(map(_CREDENTIAL.search, re.findall(r"\$\{?(\w+)", str(value))))
    }
    return digest(dict(sorted(chosen.items()))) if chosen else ""


def describe_redirect(status: int, headers: Mapping[str, str], asked: str) -> str:
    """Describe a redirect, which is never followed: it could carry the key elsewhere. "" for other answers."""
    if not 300 <= status < 400:
        return ""
    place = next((value for name, value in headers.items() if name.lower() == "location"), "")
    if not place:
        return " (a redirect, which is not followed)"
    target = urlsplit(urljoin(asked, place))
    shown = target._replace(netloc=target.netloc.rpartition("@")[2], query="", fragment="").geturl()
    base = re.sub(r"/(?:chat/completions|messages|responses|completions|embeddings)/?\Z", "", shown)
    why = "which is not followed, as the key would be sent there"
    advice = f"; if that is right, write api_base: {base}" if target.netloc else ""  # `asked` may be unknown
    return f" (it redirects to {shown}, {why}{advice})"
