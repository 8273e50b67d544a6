"""Prompts and answers as attributes. They are sent only if OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT is
`true`, `span_only`, `event_only` or `span_and_event`.

Messages have the form of the GenAI conventions (a role and parts) and, on spans, also that of OpenInference (an
attribute for each message).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.lm import Message, Response
from workbench_otel.redaction import Redaction

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
#: Maximum messages in OpenInference's form, the latest ones: a span keeps only its latest 128 attributes.
_MAX_MESSAGES = 16
_FINISH = {"tool_calls": "tool_call", "refusal": "content_filter", "empty": "stop"}


@dataclass(frozen=True)
class Capture:
    """Where content may be sent."""

    spans: bool = False
    events: bool = False

    @classmethod
    def from_environment(cls) -> Capture:
        """Read the standard variable. An unknown value means no."""
        value = os.environ.get(CAPTURE, "").strip().lower()
        return cls(value in ("true", "1", "span_only", "span_and_event"), value in ("event_only", "span_and_event"))


def finish_reason(finish: str) -> str:
    """Return the conventions' name for the end of an answer."""
    return _FINISH.get(finish, finish)


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


class Content:
    """Makes attributes of texts, without secrets."""

    def __init__(self, redact: Redaction):
        self.redact = redact

    def genai(self, messages: Sequence[Message], answer: Response | None) -> dict[str, Any]:
        """Return gen_ai.input.messages and gen_ai.output.messages, each as JSON text."""
        found = {"gen_ai.input.messages": as_json(self.redact([_as_parts(one) for one in messages]))}
        if answer is not None:
            told = {"role": "assistant", "content": answer.text, "tool_calls": answer.tool_calls}
            out = {**_as_parts(told), "finish_reason": finish_reason(answer.finish)}
            found["gen_ai.output.messages"] = as_json([self.redact(out)])
        return found

    def openinference(self, messages: Sequence[Message], answer: Response | None) -> dict[str, Any]:
        """Return llm.input_messages.N and llm.output_messages.0, and both as input.value and output.value."""
        found: dict[str, Any] = {}
        first = max(0, len(messages) - _MAX_MESSAGES)
        for number, message in enumerate(messages[first:], first):
            prefix = f"llm.input_messages.{number}.message"
            found[f"{prefix}.role"] = str(message.get("role", ""))
            found[f"{prefix}.content"] = self.redact(_text(message.get("content")))
        found |= self.value("input", {"messages": list(messages)})
        if answer is not None:
            prefix = "llm.output_messages.0.message"
            found |= {f"{prefix}.role": "assistant", f"{prefix}.content": self.redact(answer.text)}
            for number, call in enumerate(answer.tool_calls):
                part, where = _call_part(call), f"{prefix}.tool_calls.{number}.tool_call"
                found[f"{where}.function.name"] = str(part["name"])
                found[f"{where}.function.arguments"] = self.redact(as_json(part["arguments"]))
            found |= {"output.value": self.redact(answer.text), "output.mime_type": "text/plain"}
        return found

    def value(self, which: str, value: Any) -> dict[str, Any]:
        """Return `input.value` or `output.value`, as JSON."""
        return {f"{which}.value": as_json(self.redact(value)), f"{which}.mime_type": "application/json"}


def _as_parts(message: Mapping[str, Any]) -> dict[str, Any]:
    role, content = str(message.get("role", "")), message.get("content")
    if role == "tool":
        part = {"type": "tool_call_response", "id": message.get("tool_call_id"), "response": content}
        return {"role": role, "parts": [part]}
    parts: list[dict[str, Any]] = [{"type": "text", "content": text}] if (text := _text(content)) else []
    parts += [_call_part(call) for call in message.get("tool_calls") or ()]
    return {"role": role, "parts": parts}


def _call_part(call: Mapping[str, Any]) -> dict[str, Any]:
    inner = call.get("function")
    body: Mapping[str, Any] = inner if isinstance(inner, Mapping) else call
    arguments = body.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            pass
    return {"type": "tool_call", "id": call.get("id"), "name": body.get("name"), "arguments": arguments}


def _text(content: Any) -> str:
    """Return the text of a message, with [image] for images, which are large, and which no backend shows."""
    if isinstance(content, str) or content is None:
        return content or ""
    parts = [part.get("text", "[image]") if isinstance(part, Mapping) else str(part) for part in content]
    return "\n".join(parts)
