"""Asking for JSON, and reading it. What cannot be read is asked for once more and then counted, never guessed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

from workbench.errors import FailureKind, LMError, WorkbenchError
from workbench.lm import Response
from workbench_kit.answers import find_keyed
from workbench_kit.logs import Log, step_text

T = TypeVar("T")
Messages = list[dict[str, str]]

#: How often an answer is asked for: the second time at a temperature.
TRIES, SECOND_TEMPERATURE = 2, 0.7


class Unreadable(WorkbenchError):
    """An answer that does not say what was asked for. kind: as a failure of a node."""

    def __init__(self, kind: FailureKind, text: str):
        super().__init__(text)
        self.kind = kind


class Send(Protocol):
    """Sends messages to a model. replica: of the sample; role: under which it is billed. Raises LMError."""

    def __call__(self, messages: Messages, *, replica: int, role: str, temperature: float) -> Awaitable[Response]: ...


class Asker:
    """Asks a model, and reads its answers. unread: those that could not be read, by the kind of failure; why: what was
    wrong with the last of them."""

    def __init__(self, send: Send):
        self.send, self.unread, self.why = send, Counter[str](), ""

    async def ask(self, messages: Messages, role: str, read: Callable[[str], T]) -> T:
        """Ask, and return what `read` makes of the answer.

        A failed call of which the server is to blame, or a rejected key, is raised as LMError: the same command asks
        again. One of which the prompt is to blame is an answer that cannot be read.

        Raises:
            Unreadable: neither of TRIES answers could be read.
            LMError, BudgetSpent: no answer came.
        """
        for attempt in range(TRIES):
            try:
                return read(await self._text(messages, attempt, role))
            except Unreadable as error:
                self.unread[str(error.kind)] += 1
                self.why = str(error)
                if attempt + 1 == TRIES or error.kind in (FailureKind.BAD_REQUEST, FailureKind.TOO_LONG):
                    raise
        raise AssertionError("unreachable")

    async def _text(self, messages: Messages, attempt: int, role: str) -> str:
        heat = SECOND_TEMPERATURE if attempt else 0.0
        try:
            response = await self.send(messages, replica=attempt, role=role, temperature=heat)
        except LMError as error:
            if error.kind not in (FailureKind.BAD_REQUEST, FailureKind.TOO_LONG):
                raise
            raise Unreadable(error.kind, str(error)) from error
        if response.finish == "refusal":
            raise Unreadable(FailureKind.REFUSED, f"the model refused: {response.text[:200]!r}")
        if response.finish == "length":  # a list that was cut would pass for a shorter one
            raise Unreadable(FailureKind.CUT, "the answer was cut at its highest number of tokens")
        return response.text


def read_json(text: str, key: str) -> Mapping[str, Any]:
    """The JSON object with a key in an answer, whatever stands around it. Raises Unreadable."""
    if (found := find_keyed(text, key)) is None:
        raise Unreadable(FailureKind.UNPARSED, f"the answer has no JSON object with '{key}': {text[:200]!r}")
    return found


def read_list(text: str, key: str) -> list[Mapping[str, Any]]:
    """The list of objects under a key of an answer. Raises Unreadable."""
    value = read_json(text, key)[key]
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise Unreadable(FailureKind.UNPARSED, f"'{key}' is not a list of objects: {text[:200]!r}")
    return value


def read_number(value: Any) -> int | None:
    """A whole number, also as a text such as `Step 3` or `+1`; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, int):
        return value
    found = re.fullmatch(r"\s*(?:[A-Za-z]+\s*)?([-+−]?\d{1,9})\s*", value) if isinstance(value, str) else None
    return int(found[1].replace("−", "-")) if found else None


def read_sign(value: Any) -> int | None:
    """1 for good and -1 for bad, in the words that models have for them; None for anything else."""
    if isinstance(value, bool):
        return 1 if value else -1
    if isinstance(value, int | float):
        return int(value) if value in (1, -1) else None
    word = str(value).strip().casefold()
    if word in ("+", "+1", "1", "positive", "good"):
        return 1
    return -1 if word in ("-", "−", "-1", "negative", "bad") else None


def read_text(value: Any) -> str:
    """A text in one line; empty for what is none. Half of a character, as JSON can write it, becomes a question mark:
    no file can hold it."""
    return " ".join(value.encode(errors="replace").decode().split()) if isinstance(value, str) else ""


def find_quote(log: Log, step: int | None, quote: str) -> bool:
    """Return True if a step of the log says the quoted words: at least one word, in one piece or, around `...`, in
    several in their order. Case, white space and the form of quotation marks do not count."""
    if step is None or not 0 <= step < len(log.steps):
        return False
    said, place = _plain(step_text(log.steps[step])), 0
    parts = [part for raw in re.split(r"\.{3,}|…", quote) if (part := _plain(raw).strip(" \"'.,;:!?"))]
    if not any(re.search(r"\w", part) for part in parts):
        return False
    for part in parts:
        found = said.find(part, place)
        if found < 0:
            return False
        place = found + len(part)
    return True


def _plain(text: str) -> str:
    straight = text.translate({0x201C: '"', 0x201D: '"', 0x2018: "'", 0x2019: "'"})
    return " ".join(straight.casefold().split())
