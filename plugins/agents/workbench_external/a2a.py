"""Client for agents that speak A2A: sends a message, and follows the task that the agent may create for it.

Source: the specification of A2A (Agent2Agent), releases 1.0.0 and 0.3.0 (a2a-protocol.org), over JSON-RPC 2.0.
Departures: a task is polled until it ends, without streams and push notifications; parts of an answer other than text
and data are named and left out; no extended card is requested (`GetExtendedAgentCard`), and no tenant is named.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from workbench.base.type_guards import is_dict
from workbench.errors import NodeError, SpecError
from workbench.workflow import Signature
from workbench_external.cards import Card, card_address, list_of, read_card
from workbench_external.config import ExternalConfig
from workbench_external.service import Row, in_time, request
from workbench_kit.acting import fill_variables
from workbench_kit.answers import as_text
from workbench_kit.wire import redact

#: The input that names the agent to ask, if there are several.
AGENT = "agent"
#: The input and output with the position in a conversation, from which a later message continues: the agent's context
#: id, and the id of a task that waits for input.
CONTEXT = "context"
CARDS = "cards"
#: Seconds between two polls of a task: at first, at most; and the time limit for canceling it.
_LOOK, _LONGEST_LOOK, _CANCEL = 0.05, 2.0, 2.0
_GOING, _ASKING, _DONE = ("submitted", "working"), "input-required", "completed"
_FAILED = ("failed", "canceled", "rejected", "auth-required")


@dataclass(frozen=True)
class _Release:
    """The method names of one release of the protocol."""

    send: str
    get: str
    cancel: str
    is_first: bool = False

    def message(self, text: str, context: str, task: str) -> dict[str, Any]:
        """Return the parameters of `send`. They request an immediate task, because only a task can be canceled."""
        ids = {key: value for key, value in (("contextId", context), ("taskId", task)) if value}
        message: dict[str, Any] = {"messageId": uuid.uuid4().hex, "parts": [{"text": text}], **ids}
        settings: dict[str, Any] = {"acceptedOutputModes": ["text/plain", "application/json"]}
        if not self.is_first:
            return {
                "message": {**message, "role": "ROLE_USER"},
                "configuration": {**settings, "returnImmediately": True},
            }
        message |= {"kind": "message", "role": "user", "parts": [{"kind": "text", "text": text}]}
        return {"message": message, "configuration": {**settings, "blocking": False}}


_FIRST = _Release("message/send", "tasks/get", "tasks/cancel", is_first=True)
_PRESENT = _Release("SendMessage", "GetTask", "CancelTask")


@dataclass(frozen=True)
class Reply:
    """An agent's answer, and its position in the conversation: CONTEXT, or CONTEXT TASK while a task waits."""

    text: str
    context: str


def check_talk(config: ExternalConfig, signature: Signature) -> None:
    """Raise SpecError if no agent can be asked with these fields."""
    inputs, outputs = [f.name for f in signature.inputs], [f.name for f in signature.outputs]
    if config.output == CARDS:
        if config.a2a is None or len(outputs) != 1:
            hint = 'Write e.g. external: "question -> cards: list[dict]" with a2a.'
            raise SpecError("output: cards gives the cards of agents as one field, a list", hint=hint, path=("output",))
        return
    if config.a2a is None:
        return
    if isinstance(config.a2a, list) and AGENT not in inputs:
        problem, hint = f"of several agents, the input '{AGENT}' says which one is asked", "agent, message -> reply"
    elif not _said(config, inputs) or outputs == [CONTEXT]:
        problem, hint = "an agent is told something and answers something", "message, context -> reply, context"
    else:
        return
    raise SpecError(problem, hint=f"Write e.g. external: {hint}.", path=("signature",))


def _said(config: ExternalConfig, inputs: Sequence[str]) -> list[str]:
    """Return the names of the inputs that form the message."""
    apart = {CONTEXT, *([AGENT] if isinstance(config.a2a, list) else [])}
    return [name for name in inputs if name not in apart]


def answered(signature: Signature) -> Signature:
    """Return the signature with only the fields that the agent's text contains."""
    return Signature(signature.inputs, tuple(f for f in signature.outputs if f.name != CONTEXT))


class Line:
    """Conversations with the agents at some addresses. Each agent's card is read once.

    known: the cards by address, shared by all rows.
    """

    def __init__(self, config: ExternalConfig, addresses: Sequence[str], known: MutableMapping[str, Card]):
        self.config, self.addresses, self.known = config, addresses, known
        self.headers = {name: fill_variables(text, "headers") for name, text in config.headers.items()}
        self._open: tuple[Card, str] | None = None  # the task in progress

    async def cards(self) -> list[Card]:
        """Return the cards in the order of the addresses. Raises NodeError."""
        found = await asyncio.gather(*map(self._card, self.addresses))
        if twice := {one.name for one in found if [o.name for o in found].count(one.name) > 1}:
            raise NodeError("start", f"two agents have the name '{min(twice)}': name one of them alone")
        return found

    async def _card(self, address: str) -> Card:
        if address not in self.known:
            place = card_address(address)
            self.known[address] = read_card(self._json(await request(place, None, self._sent)), place)
        return self.known[address]

    async def ask(self, inputs: Mapping[str, Any], row: Row) -> Reply:
        """Send a message and wait for the answer. Raises NodeError."""
        try:
            return await in_time(self.config, row, self._ask(inputs))
        finally:
            if self._open is not None:
                await self._give_up(*self._open)

    async def _ask(self, inputs: Mapping[str, Any]) -> Reply:
        cards = await self.cards()
        card = cards[0] if isinstance(self.config.a2a, str) else _named(cards, as_text(inputs[AGENT]))
        names = _said(self.config, list(inputs))
        text = "\n".join(f"{name}: {as_text(inputs[name])}" for name in names)
        if len(names) == 1:
            text = as_text(inputs[names[0]])
        context, _, task = as_text(inputs.get(CONTEXT, "")).strip().partition(" ")
        release = _release(card)
        found = await self._call(card, release.send, release.message(text, context, task))
        found = next((found[kind] for kind in ("task", "message") if is_dict(found.get(kind))), found)
        return await self._wait(card, found) if "status" in found else _reply(found, found.get("parts"))

    async def _wait(self, card: Card, task: Mapping[str, Any]) -> Reply:
        """Return the answer of a task once it ends or asks for input."""
        pause, number = _LOOK, task.get("id")
        if not isinstance(number, str):
            raise NodeError("unparsed", f"'{card.name}' made a task without an id")
        self._open = card, number
        while (state := _state(task)) in _GOING:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_LOOK)
            task = await self._call(card, _release(card).get, {"id": number})
        self._open = None
        said = task["status"].get("message") if is_dict(task.get("status")) else None
        parts = list_of(said.get("parts")) if is_dict(said) else []
        if state in _FAILED:
            raise NodeError("exit", f"the task of '{card.name}' ended as {state}: {_text(parts)[:300]}")
        if state == _ASKING:
            return _reply(task, parts, number)
        if state != _DONE:
            raise NodeError("unparsed", f"the task of '{card.name}' is in no state of A2A: {state[:50]}")
        made = [part for one in list_of(task.get("artifacts")) if is_dict(one) for part in list_of(one.get("parts"))]
        return _reply(task, made or parts or _last_words(task))

    async def _call(self, card: Card, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Call a method and return its result. Raises NodeError."""
        body = {"jsonrpc": "2.0", "id": uuid.uuid4().hex, "method": method, "params": dict(params)}
        version = {} if _release(card).is_first else {"A2A-Version": "1.0"}
        answer = self._json(await request(card.url, json.dumps(body, ensure_ascii=False), {**self._sent, **version}))
        if is_dict(answer) and is_dict(error := answer.get("error")):
            told = " ".join(str(error.get("message", "")).split())[:300]
            raise NodeError("exit", f"'{card.name}' answered with error {error.get('code')}: {told}")
        if not is_dict(answer) or answer.get("id") != body["id"] or not is_dict(answer.get("result")):
            raise NodeError("unparsed", f"'{card.name}' gave no answer of JSON-RPC to {method}")
        return answer["result"]

    @property
    def _sent(self) -> dict[str, str]:
        return {"Accept": "application/json", **self.headers}

    def _json(self, body: bytes) -> Any:
        """Parse a body as JSON. Values of our headers are redacted, as an agent could repeat them."""
        try:
            return json.loads(redact(body.decode("utf-8", "replace"), headers=self.headers))
        except (ValueError, RecursionError):
            raise NodeError("unparsed", f"the agent's answer is not JSON: {body[:200]!r}") from None

    async def _give_up(self, card: Card, task: str) -> None:
        """Cancel a task that the row no longer waits for."""
        self._open = None
        with suppress(Exception):
            async with asyncio.timeout(_CANCEL):
                await self._call(card, _release(card).cancel, {"id": task})


def _named(cards: Sequence[Card], name: str) -> Card:
    wanted = name.strip().casefold()
    if (found := next((card for card in cards if card.name.casefold() == wanted), None)) is None:
        raise NodeError("start", f"there is no agent '{name[:100]}'; there are {', '.join(c.name for c in cards)}")
    return found


def _release(card: Card) -> _Release:
    return _FIRST if card.version.startswith("0.") else _PRESENT


def _state(task: Mapping[str, Any]) -> str:
    """Return the state of a task in the spelling of release 0.3."""
    status = task.get("status")
    found = str(status.get("state", "") if is_dict(status) else "")
    return found.removeprefix("TASK_STATE_").lower().replace("_", "-")


def _reply(found: Mapping[str, Any], parts: Any, task: str = "") -> Reply:
    context = found.get("contextId")
    return Reply(_text(list_of(parts)), f"{context if isinstance(context, str) else ''} {task}".strip())


def _last_words(task: Mapping[str, Any]) -> Sequence[Any]:
    """Return the parts of the agent's last message, for a task without artifacts."""
    said = [one for one in list_of(task.get("history")) if is_dict(one) and one.get("role") in ("agent", "ROLE_AGENT")]
    return list_of(said[-1].get("parts")) if said else []


def _text(parts: Sequence[Any]) -> str:
    return "\n".join(_text_of(part) for part in parts if is_dict(part))


def _text_of(part: Mapping[str, Any]) -> str:
    if isinstance(part.get("text"), str):
        return part["text"]
    if "data" in part:
        return json.dumps(part["data"], ensure_ascii=False)
    file = part.get("file")
    name = part.get("filename") or (file.get("name") if is_dict(file) else None) or "without a name"
    return f"[a file {str(name)[:100]}, left out]"
