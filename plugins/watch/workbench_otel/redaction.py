"""Removes keys and secrets from every text before it is sent."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

MARK = "[redacted]"
#: Names of environment variables whose values are secrets.
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTH|HEADERS|COOKIE", re.IGNORECASE)
#: Shorter values occur in texts by chance.
_SHORTEST = 8
#: Keys of well-known services, tokens, passwords in addresses, private keys.
_PATTERNS = (
    r"\bsk-[A-Za-z0-9_-]{16,}",
    r"\b(?:gh[pousr]|glpat|hf|xox[abprs])[_-][A-Za-z0-9_-]{16,}",
    r"\bgithub_pat_\w{20,}",
    r"\bAKIA[0-9A-Z]{16}\b",
    r"\bAIza[\w-]{30,}",
    r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]+",
    r"(?i:\bbearer\s+)[\w.~+/-]{12,}=*",
    r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
)


class Redaction:
    """Replaces secrets in texts, at any depth of a JSON value.

    environment: its variables are read once; default: that of this process.
    """

    def __init__(self, environment: Mapping[str, str] | None = None):
        given = os.environ if environment is None else environment
        values = {part for name, value in given.items() if _SECRET.search(name) for part in _parts(value)}
        known = [re.escape(value) for value in sorted(values, key=len, reverse=True)]
        self._secrets = re.compile("|".join([*known, *_PATTERNS]))

    def __call__(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._secrets.sub(MARK, value)
        if isinstance(value, Mapping):
            return {str(self(key)): self(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self(item) for item in value]
        return value


def _parts(value: str) -> list[str]:
    """Return a value, and the values inside one such as `api-key=...,x=Bearer ...`."""
    return [part for part in (value, *re.split(r"[=,;\s]+", value)) if len(part) >= _SHORTEST]
