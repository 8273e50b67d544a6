"""Canonical JSON and short hashes. Equal values give equal results."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical(value: Any) -> str:
    """Return JSON with sorted keys and no spaces. Equal values give equal text."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)


def digest(value: Any) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(canonical(value).encode("utf-8", "backslashreplace")).hexdigest()[:16]
