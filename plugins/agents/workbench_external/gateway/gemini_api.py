"""Gemini's generateContent: a request -> Ask, an answer -> its body or events, errors; no I/O.

Only a server of the same API answers, so nothing is translated. Sources: https://ai.google.dev/api/generate-content,
https://ai.google.dev/gemini-api/docs/troubleshooting and https://google.aip.dev/193 (errors).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs

from workbench.base.type_guards import is_dict
from workbench.lm import Native, Piece, Response, max_tokens
from workbench_external.gateway import fields as f
from workbench_external.gateway.access import Admitted
from workbench_external.gateway.asks import Ask, Refused
from workbench_external.gateway.passed import passed_headers
from workbench_external.gateway.table import INERT
from workbench_external.gateway.view import read_view
from workbench_external.gateway.writing import Asked, Event

#: Names of HTTP statuses (https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto).
_STATUSES = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    504: "DEADLINE_EXCEEDED",
}
_CHOICES = {"ANY": "required", "NONE": "none"}
_ENDS = {"length": "MAX_TOKENS", "refusal": "SAFETY"}


def method_of(path: str) -> str:
    """Return the part of a path after the name of the model, with `alt=sse` of its query, which changes an answer."""
    path, _, query = path.partition("?")
    method = path.rpartition(":")[2]
    return f"{method}?alt=sse" if "sse" in parse_qs(query).get("alt", ()) else method


def is_stream(path: str) -> bool:
    """Return True if the answer is sent as events. Without `alt=sse` it is an array, which is sent as a whole."""
    return method_of(path) == "streamGenerateContent?alt=sse"


def pass_ask(who: Admitted, asked: Asked) -> Ask:
    """Return the request unchanged. Raises Refused (400), also for a session that takes no requests unchanged."""
    body = asked.body
    if not getattr(who.session, "passes", False):
        return _refuse(body)
    view = read_view("gemini", body)
    settings: dict[str, Any] = {"max_tokens": max_tokens("gemini", body), "response_format": view.form}
    config = _in(body, "generationConfig", "generation_config") or {}
    if isinstance(config.get("temperature"), int | float):
        settings["temperature"] = float(config["temperature"])
    calling = _in(_in(body, "toolConfig", "tool_config"), "functionCallingConfig", "function_calling_config") or {}
    if (choice := _CHOICES.get(str(calling.get("mode")))) is not None:
        settings["extra"] = {"tool_choice": choice}
    samples = config.get("candidateCount", config.get("candidate_count"))
    samples = 1 if samples is None else f.as_whole(samples, "generationConfig.candidateCount", 1, f.MAX_SAMPLES)
    sent = passed_headers(asked.headers)
    native = Native("gemini", body, {}, INERT["gemini"], sent, method=method_of(asked.path))
    given = {name: value for name, value in settings.items() if value is not None}
    messages, tools = tuple(view.messages), tuple(view.tools)
    streams = is_stream(asked.path)
    return Ask(asked.named, messages, tools, given, samples, streams, native, view, _refuse, asked.pieces)


def _refuse(body: Mapping[str, Any]) -> Ask:
    """Refuse a request for a model whose server has another API. Raises Refused."""
    instead = "Set lm: gemini/NAME in the workflow file, or a model of Google's for this name under models."
    raise Refused(400, "unsupported", f"The model of this agent does not speak Gemini's API. {instead}")


def _in(body: Any, *names: str) -> Any:
    return next((body[name] for name in names if is_dict(body) and is_dict(body.get(name))), None)


class GeminiWriter:
    """Writes parts of an answer, or all of it. A call is written when its arguments are complete."""

    def __init__(self, body: Mapping[str, Any]):
        self._parts: dict[int, list[dict[str, Any]]] = {}
        self._calls: dict[int, list[list[str]]] = {}
        self._ends: list[dict[str, Any]] = []
        self._more: dict[str, Any] = {}

    def expect(self, responses: Sequence[Response]) -> None:
        """Do nothing: the beginning does not depend on the answers."""

    def add(self, piece: Piece, sample: int = 0) -> Iterator[Event]:
        """Write the event of a piece."""
        if piece.kind == "call":
            calls = self._calls.setdefault(sample, [])
            if piece.place == len(calls):
                calls.append([piece.name, piece.id, ""])
            calls[piece.place][2] += piece.text
            return
        part = {"text": piece.text, **({"thought": True} if piece.kind == "thoughts" else {})}
        parts = self._parts.setdefault(sample, [])
        if parts and parts[-1].get("thought") == part.get("thought"):
            parts[-1] = {**part, "text": parts[-1]["text"] + piece.text}
        else:
            parts.append(part)
        yield {"candidates": [_candidate(sample, [part])]}

    def end(self, responses: Sequence[Response]) -> Iterator[Event]:
        """Write the event with the calls, the ends and the tokens."""
        for sample, response in enumerate(responses):
            made = [
                {"functionCall": {"id": number, "name": name, "args": _loaded(arguments)}}
                for name, number, arguments in self._calls.get(sample, ())
            ]
            self._parts.setdefault(sample, []).extend(made)
            self._ends.append({**_candidate(sample, made), "finishReason": _ENDS.get(response.finish, "STOP")})
        prompt = max((response.prompt_tokens for response in responses), default=0)  # read once for all answers
        answer = sum(response.completion_tokens for response in responses)
        counts = {"promptTokenCount": prompt, "candidatesTokenCount": answer, "totalTokenCount": prompt + answer}
        self._more = {"usageMetadata": counts, "modelVersion": "workbench", "responseId": f.make_id("")}
        yield {"candidates": self._ends, **self._more}

    def body(self) -> dict[str, Any]:
        """Return the whole answer."""
        ends = [{**end, **_candidate(n, self._parts[n])} for n, end in enumerate(self._ends)]
        return {"candidates": ends, **self._more}


def _candidate(sample: int, parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {"content": {"role": "model", "parts": parts}, "index": sample}


def _loaded(arguments: str) -> Any:
    try:
        return found if is_dict(found := json.loads(arguments or "{}")) else {}
    except (ValueError, RecursionError):
        return {}


def write_error(refused: Refused) -> dict[str, Any]:
    """Return the body of an error."""
    usual = "INVALID_ARGUMENT" if refused.status < 500 else "UNAVAILABLE"
    status = _STATUSES.get(refused.status, usual)
    return {"error": {"code": refused.status, "message": refused.message, "status": status}}
