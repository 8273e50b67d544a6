"""The server behind the quickstarts: it refuses what a vendor's server refuses, and knows one planted gain.

An answer is right where the request holds PLANTED, in a text of any kind, and wrong elsewhere. A request for a better
prompt is answered by the old one and PLANTED, on a line of its own. Tools that look something up are called once
before. The fields of a request are those of the vendors' own clients, and the order of its turns is checked as by the
stand-ins of the tests (tests/helpers/upstream.py, gemini_server.py), which name the pages.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_type_hints

from anthropic.types.beta.message_create_params import MessageCreateParamsStreaming as BetaMessageParams
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming as ChatParams
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming as ResponseParams

from workbench.lm import Response
from workbench_external.gateway import Ask, Gateway, Refused
from workbench_external.slots.discover import schema_of
from workbench_external.trial import make_example

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.helpers.gemini_server import Wrong as WrongForGoogle, check_content
from tests.helpers.upstream import CHECKS, Wrong

#: No vendor's own prompt says it.
PLANTED = "Read it letter by letter."
LABELS = "abcd"
_ROW = re.compile(rf"row \d+: a ([{LABELS}])-thing")
_LOOKS_UP = re.compile(r"look_?up", re.IGNORECASE)
_PATHS = {"chat": "chat/completions"}
_FIELDS = {
    "chat": {*get_type_hints(ChatParams)},
    # Codex sends the last one, which the client's types do not have (codex-rs/codex-api/src/common.rs).
    "responses": {*get_type_hints(ResponseParams), "client_metadata"},
    "messages": {*get_type_hints(BetaMessageParams)} - {"betas"},
}


class Planted:
    """asked: how many requests came. planted: of these, with PLANTED. refused: the words of refusals."""

    passes = True  # all that a vendor's server takes arrives here as it was written

    def __init__(self) -> None:
        self.asked = self.planted = 0
        self.refused: list[str] = []

    async def complete(self, ask: Ask) -> Sequence[Response]:
        assert ask.native is not None
        try:
            check_request(ask.native.api, ask.native.body)
        except Refused as refused:
            self.refused.append(refused.message)
            raise
        if (prompt := _better_prompt(ask)) is not None:
            return [_said(prompt)] * ask.samples
        self.asked += 1
        text = json.dumps(ask.native.body, ensure_ascii=False)
        self.planted += PLANTED in text
        row = _ROW.search(text)
        right = LABELS.index(row[1]) if row is not None else 0
        label = LABELS[right if PLANTED in text else (right + 1) % len(LABELS)]
        return [answer_as_asked(ask, label)] * ask.samples

    async def embed(self, texts: Sequence[str], model: str) -> tuple[Sequence[Sequence[float]], int]:
        return [[1.0] for _ in texts], 0

    def models(self) -> Sequence[str]:
        return ["planted"]


def check_request(api: str, body: Mapping[str, Any]) -> None:
    """Raise Refused for a field that the vendor's own client does not know, and for turns out of order."""
    if api == "gemini":  # whose fields are known to the stand-in of the tests
        try:
            return check_content(dict(body))
        except WrongForGoogle as wrong:
            raise Refused(wrong.code, "bad_request", str(wrong)) from None
    if unknown := sorted({*body} - _FIELDS[api]):
        raise Refused(400, "bad_request", f"Unknown parameter: '{unknown[0]}'.", field=unknown[0])
    try:
        if (check := CHECKS.get(_PATHS.get(api, api))) is not None:
            check(dict(body))
        if api == "responses" and isinstance(body.get("input"), list):
            _check_items(body)
    except Wrong as wrong:
        raise Refused(400, "bad_request", str(wrong)) from None


def _check_items(body: Mapping[str, Any]) -> None:
    """https://platform.openai.com/docs/guides/function-calling: a result belongs to a call, and each call has one. What
    is kept at the server, and only referred to, may hold the call."""
    refers = any(item.get("type") == "item_reference" for item in body["input"])
    kept = refers or bool(body.get("previous_response_id") or body.get("conversation"))
    calls, results = set[str](), set[str]()
    for item in body["input"]:
        kind = str(item.get("type", ""))
        if kind.endswith("_call_output"):
            if item["call_id"] not in calls and not kept:
                raise Wrong(f"No tool call found for function call output with call_id {item['call_id']}.")
            results.add(item["call_id"])
        elif kind.endswith("_call") and "call_id" in item:
            calls.add(item["call_id"])
    if missing := calls - results:
        raise Wrong(f"No tool output found for function call {min(missing)}.")


def _better_prompt(ask: Ask) -> str | None:
    """The prompt, or the part of a message, that an optimizer wants to be better, with PLANTED; None for a request of
    an agent."""
    content = str(ask.messages[-1].get("content")) if ask.messages else ""
    asked = re.search(r"Write a better (part \d+)", content)
    tag = asked[1] if asked else "prompt"
    found = re.search(rf"<{tag}>\n(.*?)\n</{tag}>", content, re.DOTALL)
    return f"<{tag}>\n{found[1]}\n{PLANTED}\n</{tag}>" if found else None


def answer_as_asked(ask: Ask, label: str) -> Response:
    """The label, in the form that the request asks for."""
    functions = [tool.get("function", {}) for tool in ask.tools]
    # smolagents sends what a tool gave as a message of the user, behind one of the model.
    called = any(message.get("role") in ("assistant", "tool") for message in ask.messages)
    lookups = [one for one in functions if _LOOKS_UP.search(str(one.get("name", "")))]
    if lookups and not called:
        return _call(lookups[0], label)
    # What remains are tools of the framework's: that by which an answer is given, if the request wants one called.
    choice = (ask.settings.get("extra") or {}).get("tool_choice")
    named = choice.get("name") or (choice.get("function") or {}).get("name") if isinstance(choice, dict) else None
    giving = [one for one in functions if one not in lookups and named in (None, _name(one))]
    if giving and (named or choice in ("required", "any")):
        return _call(giving[0], label)
    if (form := schema_of(ask.settings.get("response_format"))) is not None:
        return _said(json.dumps(_with_label(make_example(form["parameters"]), label)))
    return _said(json.dumps({"label": label}) if ask.settings.get("response_format") else label)


def _name(function: Mapping[str, Any]) -> str:
    return str(function.get("name", ""))


def _call(function: Mapping[str, Any], label: str) -> Response:
    arguments = json.dumps(_with_label(make_example(function.get("parameters", {})), label))
    call = {"id": "call_1", "name": _name(function), "arguments": arguments}
    return Response("", "tool_calls", 1, 1, 0.0, tool_calls=(call,))


def _with_label(example: Any, label: str) -> Any:
    """The example with the label in place of its texts."""
    if isinstance(example, dict):
        return {name: _with_label(value, label) for name, value in example.items()}
    return label if isinstance(example, str) else example


def _said(text: str) -> Response:
    return Response(text, "stop", 1, 1, 0.0)


@contextmanager
def serving(model: Planted) -> Iterator[dict[str, str]]:
    """The variables of a server behind which the model stands."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    gateway = asyncio.run_coroutine_threadsafe(Gateway.open(), loop).result()
    try:
        yield gateway.environment(gateway.admit(model), {})
    finally:
        asyncio.run_coroutine_threadsafe(gateway.aclose(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
