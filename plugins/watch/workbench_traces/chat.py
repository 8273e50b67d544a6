"""Turns of chats: {"messages": [...]}, one per line, as in files for fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.base.type_guards import is_dict
from workbench_traces.turn import Collector, Turn, as_text, read_messages, read_score, read_time

CONVERSATION = ("conversation", "conversation_id", "session_id", "sessionId", "thread_id", "chat_id")
USER = ("user", "user_id", "userId")
_TIME = ("time", "timestamp", "created_at", "created", "date")
#: Numbers that are not outcomes; `repeat` is that of workbench's own rows.
_NO_SCORES = ("id", "repeat", *_TIME)
_EDIT = ("correction", "edit", "edited", "corrected")
_COMMENT = ("comment", "feedback", "note")


class ChatTurns(Collector):
    """Collects the turns of chats. The last answer of a chat is the output, with the earlier messages before it."""

    def add_value(self, value: Any, file: str) -> None:
        """Add one chat."""
        if not is_dict(value):
            return
        messages = read_messages(value.get("messages"))
        last = max((n for n, (role, _) in enumerate(messages) if role == "assistant"), default=0)
        before = messages[:last]
        asked = next((text for role, text in reversed(before) if role == "user"), "")
        metadata = value.get("metadata")
        places = [value, *([metadata] if is_dict(metadata) else [])]
        id_ = as_text(value.get("id")) or f"{len(self.found) + 1}"
        turn = Turn(
            asked,
            messages[last][1] if before else "",
            before,
            first_text(places, CONVERSATION),
            first_text(places, USER),
            read_time(first_text(places, _TIME)),
            read_scores(places),
            first_text(places, (self.wanted[1], *_EDIT)),
            [text] if (text := first_text(places, _COMMENT)) else [],
            {"file": file, "format": "chat", "id": id_},
        )
        self.found.append(turn)


def first_text(places: Sequence[Mapping[str, Any]], names: tuple[str, ...]) -> str:
    """Return the first value of these names in the places, as text."""
    return next((as_text(p[n]) for n in names for p in places if n and p.get(n) not in (None, "")), "")


def read_scores(places: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return all numbers next to the messages, and those under `scores`. The user chooses one by name."""
    found: dict[str, float] = {}
    for place in [*places, *(p["scores"] for p in places if is_dict(p.get("scores")))]:
        for name, value in place.items():
            if isinstance(value, int | float) and name not in _NO_SCORES and (score := read_score(value)) is not None:
                found.setdefault(str(name), score)
    return found
