"""Text for people: shortened, and safe for a terminal."""

from __future__ import annotations

import json
from typing import Any


def short(value: Any, most: int) -> str:
    """A value as JSON, cut to a number of characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= most else text[: most - 1] + "…"


def visible(text: Any) -> str:
    """Text from data or models with control, escape and bidi characters as visible escapes."""
    return "".join(
        c
        if c in "\n\t" or (c.isprintable() and not 0x202A <= ord(c) <= 0x202E and not 0x2066 <= ord(c) <= 0x2069)
        else f"\\x{ord(c):02x}"
        if ord(c) < 256
        else f"\\u{ord(c):04x}"
        for c in str(text)
    )
