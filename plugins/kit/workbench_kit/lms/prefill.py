"""Answers with given first words: a request whose last message is the assistant's is to be continued.

Local models continue it. A server may write a new message instead, with or without these words in front.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def split_prefill(messages: Sequence[Mapping[str, Any]]) -> tuple[Sequence[Mapping[str, Any]], str]:
    """Return (the messages before the answer, the answer's given first words or "")."""
    if messages and messages[-1].get("role") == "assistant" and not messages[-1].get("tool_calls"):
        return messages[:-1], str(messages[-1]["content"])
    return messages, ""


def join_prefill(begun: str, text: str) -> str:
    """Return the whole answer, with the given first words once, even if the model repeated them."""
    return text if text.lstrip().startswith(begun.strip()) else begun + text
