"""Provider data of earlier calls, put back when an agent sends a turn again.

Providers refuse the next request without the data that they added: signatures, thoughts, blocks of thinking. Agents
drop it, since no API of the gateway has a place for it.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from workbench.base.type_guards import is_dict
from workbench.lm import Message, Response
from workbench_external.gateway import fields as f
from workbench_external.gateway.asks import Ask
from workbench_kit.wire import TURN, as_it_came

#: Maximum turns of one session to keep; the oldest are dropped first.
MAX_KEPT = 1024


class ReturnedTurns:
    """Turns of models with calls, as their providers sent them, by the calls that an agent sees.

    Each conversation may reuse ids of calls, so a turn is first looked up after the same messages.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Message] = OrderedDict()

    def keep(self, ask: Ask, responses: Sequence[Response]) -> None:
        """Keep the turns of the answers to a request. ask: the request as the agent sent it."""
        for sample, response in enumerate(responses):
            if response.message is None or not response.tool_calls:
                continue
            seen = f.calls_with_ids(response, ask.messages, sample)
            told = zip(response.tool_calls, seen, strict=True)
            kept = {name: value for name, value in response.message.items() if name != TURN}
            turn = as_it_came(kept, [{**call, "id": shown["id"]} for call, shown in told])
            for key in _keys(_digests(ask.messages)[-1], seen):
                self._kept[key] = turn
                self._kept.move_to_end(key)
        while len(self._kept) > 2 * MAX_KEPT:
            self._kept.popitem(last=False)

    def restore(self, ask: Ask) -> Ask:
        """Return the request with the kept turns in place of the agent's versions."""
        if not self._kept:
            return ask
        found, before = list(ask.messages), _digests(ask.messages)
        for place, message in enumerate(ask.messages):
            if message["role"] == "assistant" and message.get("tool_calls"):
                sent = [{"id": call["id"], **call["function"]} for call in message["tool_calls"]]
                kept = (self._kept[key] for key in _keys(before[place], sent) if key in self._kept)
                found[place] = next(kept, message)
        return replace(ask, messages=tuple(found))

    def restore_messages(self, messages: Sequence[Any]) -> list[Any] | None:
        """Return an agent's messages with kept turns, found by their calls; None if there are none."""
        found = [self._find(message) or message for message in messages]
        return found if found != [*messages] else None

    def _find(self, message: Any) -> Message | None:
        calls = message.get("tool_calls") if is_dict(message) else None
        if not calls or not all(is_dict(call) and is_dict(call.get("function")) for call in calls):
            return None
        functions = [{"id": call.get("id"), **call["function"]} for call in calls]
        said = [{**one, "arguments": str(one.get("arguments", ""))} for one in functions if "name" in one]
        return self._kept.get(_keys("", said)[1])


def _digests(messages: Sequence[Message]) -> list[str]:
    """Return a digest of the messages before each place, and of all. Each builds on the one before, since a
    conversation may have hundreds of turns."""
    return list(accumulate(messages, lambda before, message: _digest([before, dict(message)]), initial=""))


def _keys(before: str, calls: Sequence[Mapping[str, str]]) -> list[str]:
    """Return keys for the calls of a turn: after the earlier messages, and alone, as an agent may shorten the messages.

    before: the digest of those messages.
    """
    said = [[call["id"], call["name"], _loaded(call["arguments"])] for call in calls]
    return [_digest([before, said]), _digest(said)]


def _loaded(arguments: str) -> Any:
    """Parse arguments for comparison: an agent may rewrite their JSON."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=dict).encode()).hexdigest()
