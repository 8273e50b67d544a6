"""Answers that begin with given words: a request whose last message is the assistant's is to be continued.

Local models continue it. A server may write a message of its own instead, with or without these words in front.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def split_prefill(messages: Sequence[Mapping[str, Any]]) -> tuple[Sequence[Mapping[str, Any]], str]:
    """(the messages before the answer, the words that it begins with; "" where none are given)."""
    if messages and messages[-1].get("role") == "assistant" and not messages[-1].get("tool_calls"):
        return messages[:-1], str(messages[-1]["content"])
    return messages, ""


def join_prefill(begun: str, text: str) -> str:
    """The whole answer: the words that it begins with once, also where the model repeated them."""
    return text if text.lstrip().startswith(begun.strip()) else begun + text
