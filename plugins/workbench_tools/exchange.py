"""The messages between a question and its answer: from a model's response to a demo and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from workbench.errors import SpecError
from workbench.workflow import EXCHANGE


def check_exchange(exchange: Any, path: tuple[str | int, ...]) -> None:
    """Raise SpecError if a demo's exchange is not a list of messages."""
    roles = ("assistant", "user", "tool")
    messages = exchange if isinstance(exchange, list) else [exchange]
    for message in messages:
        if (
            not isinstance(message, dict)
            or message.get("role") not in roles
            or not isinstance(message.get("content"), str)
        ):
            raise SpecError(
                f"{EXCHANGE} is a list of messages, not {str(message)[:80]}",
                path=path,
                hint="Write e.g. {role: assistant, content: 'call: {...}'}, {role: user, content: 'result: 7'}.",
            )


def replay_message(message: Mapping[str, Any], native: bool) -> dict[str, Any]:
    """A message of a demo for replay. For an agent without native tools, native calls and results become text."""
    if native or (message["role"] != "tool" and not message.get("tool_calls")):
        return dict(message)
    functions = [call["function"] for call in message.get("tool_calls", ())]
    lines = [f'call: {{"tool": {json.dumps(f["name"])}, "arguments": {f["arguments"]}}}' for f in functions]
    role = "user" if message["role"] == "tool" else message["role"]
    return {"role": role, "content": "\n".join(part for part in (message["content"], *lines) if part)}
