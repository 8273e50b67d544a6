"""OpenAI's Responses API."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.lm import Message

#: Answers of one session that are kept for later requests; the oldest go first.
MOST_KEPT = 256


@dataclass(slots=True)
class StoredAnswers:
    """The latest answers of one session, each with its body and the conversation that it ends."""

    _kept: OrderedDict[str, tuple[Mapping[str, Any], tuple[Message, ...]]] = field(default_factory=OrderedDict)

    def keep(self, body: Mapping[str, Any], conversation: tuple[Message, ...]) -> None:
        self._kept[body["id"]] = (body, conversation)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)

    def body(self, number: str) -> Mapping[str, Any] | None:
        return self._kept[number][0] if number in self._kept else None

    def conversation(self, number: str) -> tuple[Message, ...] | None:
        return self._kept[number][1] if number in self._kept else None

    def item(self, number: str) -> Mapping[str, Any] | None:
        """An item of the output of an answer, by its own id."""
        for body, _ in reversed(self._kept.values()):
            for item in body["output"]:
                if item["id"] == number:
                    return item
        return None

    def drop(self, number: str) -> bool:
        return self._kept.pop(number, None) is not None
