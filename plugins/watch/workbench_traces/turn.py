"""The common form of all formats: an exchange with a system, its outcome, and where it was recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from workbench.base.type_guards import is_dict, is_list
from workbench.lm import split_thoughts
from workbench_kit.wire import is_thought

#: A message: role and text.
Message = tuple[str, str]


@dataclass
class Turn:
    """An exchange.

    Attributes:
        input, output: the question, and the system's answer.
        messages: the chat before the answer; empty if unknown.
        conversation, user: ids; empty if unknown.
        time: of the beginning, in seconds since 1970; None if unknown.
        scores: outcomes by name, as recorded.
        edit: a human's correction of the answer.
        comments: of humans on the answer.
        source: file, format and id of the record.
        unread: names of the attributes of its spans, if none of them has a known content.
    """

    input: str
    output: str
    messages: list[Message] = field(default_factory=list)
    conversation: str = ""
    user: str = ""
    time: float | None = None
    scores: dict[str, float] = field(default_factory=dict)
    edit: str = ""
    comments: list[str] = field(default_factory=list)
    source: dict[str, str] = field(default_factory=dict)
    unread: list[list[str]] = field(default_factory=list)

    def begin(self, time: float | None) -> None:
        """Note when a record of the exchange began. The first one counts."""
        if time is not None:
            self.time = time if self.time is None else min(time, self.time)

    def add_score(self, name: Any, value: Any) -> None:
        """Note an outcome, if the value is one (`read_score`)."""
        if (score := read_score(value)) is not None:
            self.scores[as_text(name) or "score"] = score

    def read_named(self, place: Mapping[str, Any], wanted: tuple[str, str]) -> None:
        """Note the outcome and the correction in a record, under the names that the user gave."""
        score, edit = (place.get(name) if name else None for name in wanted)
        self.add_score(wanted[0], score)
        self.edit = self.edit or as_text(edit)

    def without_thoughts(self) -> Turn:
        """Return the exchange without the system's thoughts: an answer is scored without them."""
        said = [(role, split_thoughts(text)[1] if role == "assistant" else text) for role, text in self.messages]
        return replace(self, output=split_thoughts(self.output)[1], messages=said)


@dataclass
class Trace:
    """The state of a trace while its records are read.

    rank: of the record with question and answer; the trace itself has the highest. called: start of the model call
    whose chat is kept.
    """

    turn: Turn
    rank: int = 0
    called: float = -1.0

    def take(self, asked: str, said: str, rank: int) -> None:
        """Use question and answer of a record, unless a record of a higher rank had them."""
        if rank >= self.rank:
            self.turn.input, self.turn.output, self.rank = asked, said, rank


class Collector:
    """Collects the turns of records, which may come in any order, from any number of files.

    wanted: the names of the fields with an outcome, and with a human's correction; empty for none.
    """

    def __init__(self, wanted: tuple[str, str] = ("", "")) -> None:
        self.wanted, self.found, self.traces = wanted, list[Turn](), dict[str, Trace]()

    def trace(self, id_: str, source: dict[str, str]) -> Trace:
        """Return the trace with an id, which is a turn. source: of the record."""
        if id_ not in self.traces:
            self.found.append(Turn("", "", source=source))
            self.traces[id_] = Trace(self.found[-1])
        return self.traces[id_]

    def turns(self) -> Iterator[Turn]:
        """Yield the turns, in the order in which they were found."""
        yield from self.found


def first_value(place: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """Return the first nonempty value under these names, as text."""
    return next((as_text(place[name]) for name in names if place.get(name)), "")


def read_messages(value: Any) -> list[Message]:
    """Read the messages of a chat as role and text: of OpenAI, Anthropic, GenAI conventions, LangChain, or JSON text.

    Parts that are not text are named in brackets. A mapping is searched for its messages. Anything but a chat gives
    none.
    """
    value = parsed(value)
    if is_dict(value):
        for name in ("messages", "input_messages", "input", "choices", "generations", "message", "kwargs"):
            if is_list(value.get(name)) or is_dict(value.get(name)):
                return _read_generations(value[name]) if name == "generations" else read_messages(value[name])
        value = [value] if _role(value) else []
    if is_list(value) and len(value) == 1 and is_list(value[0]):  # LangChain has lists of chats
        value = value[0]
    found: list[Message] = []
    for message in value if is_list(value) else ():
        if is_dict(message) and is_dict(message.get("message")):
            message = message["message"]
        if is_dict(message) and (role := _role(message)):
            found.append((role, message_text(message)))
    return found


def _read_generations(value: Any) -> list[Message]:
    """Return the first of LangChain's answers, with or without a list for each prompt: a message, or only a text."""
    first = value
    while is_list(first):
        first = first[0] if first else None
    found = read_messages([first])
    text = first.get("text") if is_dict(first) else None
    return found or ([("assistant", text)] if isinstance(text, str) and text else [])


_LANGCHAIN = {"human": "user", "ai": "assistant", "HumanMessage": "user", "AIMessage": "assistant"}
_LANGCHAIN |= {"AIMessageChunk": "assistant", "SystemMessage": "system", "ToolMessage": "tool", "model": "assistant"}


def _role(message: Mapping[str, Any]) -> str:
    """Return the role of a message; empty if the value is not a message."""
    role = message.get("role")
    if not isinstance(role, str) and ("content" in message or "kwargs" in message or "data" in message):
        kind = message.get("id") if is_list(message.get("id")) else message.get("type")
        role = str(kind[-1]) if is_list(kind) and kind else kind
    return _LANGCHAIN.get(role, role) if isinstance(role, str) else ""


def message_text(message: Mapping[str, Any]) -> str:
    """Return the text of a message, with its calls of tools."""
    for inner in ("kwargs", "data"):  # serialized by LangChain
        if is_dict(message.get(inner)) and "content" in message[inner]:
            return message_text(message[inner])
    texts = list(_parts(message.get("parts", message.get("content"))))
    for call in listed(message.get("tool_calls")):
        named = call.get("function", call) if is_dict(call) else {}
        if is_dict(named):
            texts.append(f"calls {named.get('name')}({as_text(named.get('arguments', named.get('args')))})")
    return "\n".join(filter(None, texts))


def _parts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif is_list(content):
        for part in content:
            yield _part(part)
    elif is_dict(content):
        yield _part(content)


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not is_dict(part) or is_thought(part):
        return ""
    kind = part.get("type")
    if kind in ("tool_call", "tool_use"):
        return f"calls {part.get('name')}({as_text(part.get('arguments', part.get('input')))})"
    for name in ("text", "content", "response", "result"):
        if name in part:
            return as_text(part[name]) if not is_list(part[name]) else "\n".join(_parts(part[name]))
    return f"[{kind}]" if isinstance(kind, str) else ""


def parsed(value: Any) -> Any:
    """Parse a text that is a JSON object or list; return any other value unchanged."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def listed(value: Any) -> list[Any]:
    """Return a list unchanged; an empty one for any other value."""
    return value if is_list(value) else []


def as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


#: Names under which the only text of a mapping is the question, or the answer.
_ASKED = ("input", "question", "query", "prompt", "text", "message")
_SAID = ("output", "answer", "response", "result", "text", "content", "generation")


def asked_text(value: Any) -> str:
    """Return the question in a recorded input: the last message of a user, a known field, or all of it."""
    value = parsed(value)
    users = [text for role, text in read_messages(value) if role == "user"]
    return users[-1] if users else _field(_message_within(value, _ASKED), _ASKED)


def said_text(value: Any) -> str:
    """Return the answer in a recorded output: the last message of a model, a known field, or all of it."""
    value = parsed(value)
    said = [text for role, text in read_messages(value) if role == "assistant"]
    return said[-1] if said else _field(_message_within(value, _SAID), _SAID)


#: Fields of a message, including LangChain's additional ones.
_OF_MESSAGE = frozenset(
    "content type role name id kwargs data lc additional_kwargs response_metadata usage_metadata tool_calls example "
    "invalid_tool_calls refusal annotations parts reasoning_content".split()
)
#: Maximum depth to look for a message, and names of the levels between.
_DEEPEST, _BETWEEN = 5, ("outputs", "inputs", "data", "messages", "message", "kwargs", "lc_kwargs", "choices")


def _message_within(value: Any, names: tuple[str, ...], depth: int = 0) -> Any:
    """Return the text of the last message inside a recorded value; the value itself if there is none."""
    value = parsed(value)
    if depth and is_dict(value) and value.keys() & {"content", "parts"} and value.keys() <= _OF_MESSAGE:
        return message_text(value)
    if depth and (found := read_messages(value)):
        return found[-1][1]
    if depth and is_list(value) and value and all(is_dict(part) and is_text_part(part) for part in value):
        return message_text({"content": value})
    if is_list(value) and len(value) == 1 and depth < _DEEPEST:
        inner = _message_within(value[0], names, depth + 1)
        return inner if isinstance(inner, str) and inner is not value[0] else value
    if not is_dict(value) or depth >= _DEEPEST:
        return value
    for name in (*names, *_BETWEEN):
        part: Any = parsed(value.get(name))
        if is_dict(part) or is_list(part):
            inner = _message_within(part, names, depth + 1)
            if isinstance(inner, str):
                return inner
    return value


def is_text_part(part: Mapping[str, Any]) -> bool:
    """Return True for a part of a message that is text."""
    return part.get("type") in ("text", "output_text") and isinstance(part.get("text"), str)


def _field(value: Any, names: tuple[str, ...]) -> str:
    if is_dict(value):
        found = next((value[name] for name in names if isinstance(value.get(name), str)), None)
        found = next(iter(value.values())) if found is None and len(value) == 1 else found
        return as_text(value if found is None else found)
    return as_text(value)


def read_time(value: Any) -> float | None:
    """Return a time in seconds since 1970, from ISO 8601, or from seconds, milli-, micro- or nanoseconds."""
    if isinstance(value, bool) or value in (None, ""):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        try:
            made = datetime.fromisoformat(str(value))
            return (made if made.tzinfo else made.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    for scale in (1.0, 1e3, 1e6, 1e9):
        if 0 < number / scale < 1e11:
            return number / scale
    return None


def read_score(value: Any) -> float | None:
    """Return a recorded outcome as a number, with true as 1; None if it is not a number."""
    if isinstance(value, bool):
        return float(value)
    try:
        number = float(value) if isinstance(value, int | float | str) else None
    except (ValueError, OverflowError):
        return None
    return number if number is not None and abs(number) < 1e12 else None
