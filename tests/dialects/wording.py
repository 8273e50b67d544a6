"""How servers say what a model thought, in its message of chat completions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.dialects.dialect import Json

Wording = Callable[[Json, str], None]


def field(name: str) -> Wording:
    """Beside the text, e.g. as `reasoning_content`."""

    def put(message: Json, thoughts: str) -> None:
        message[name] = thoughts

    return put


def within(opening: str, ending: str) -> Wording:
    """In the text, between marks. An empty opening: it stood in the prompt."""

    def put(message: Json, thoughts: str) -> None:
        message["content"] = f"{opening}{thoughts}{ending}{message.get('content') or ''}"

    return put


def harmony(message: Json, thoughts: str) -> None:
    """gpt-oss as its tokens are, without a parser on the server."""
    final = f"<|start|>assistant<|channel|>final<|message|>{message['content']}<|return|>"
    message["content"] = f"<|channel|>analysis<|message|>{thoughts}<|end|>{final}"


def parts(part: Callable[[str], Json]) -> Wording:
    """As a part of the content, before that with the text."""

    def put(message: Json, thoughts: str) -> None:
        said: list[Any] = [{"type": "text", "text": message["content"]}] if message.get("content") else []
        message["content"] = [part(thoughts), *said]

    return put


def details(message: Json, thoughts: str) -> None:
    """OpenRouter: as a text, and as details that have to come back with calls."""
    message["reasoning"] = thoughts
    message["reasoning_details"] = [
        {
            "type": "reasoning.text",
            "text": thoughts,
            "signature": "c2lnbmVk",
            "format": "anthropic-claude-v1",
            "index": 0,
        }
    ]


def silent(message: Json, thoughts: str) -> None:
    """Not at all: only the count shows that there are some."""


def both(*wordings: Wording) -> Wording:
    """In several ways at once."""

    def put(message: Json, thoughts: str) -> None:
        for wording in wordings:
            wording(message, thoughts)

    return put
