"""Convert the chunks of a streamed chat completion to pieces of an answer, for a client that uses another API."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from workbench.base.type_guards import dicts_in, is_dict
from workbench.lm import Piece, Request, Response, SaidInPieces, call_id, prompt_text
from workbench_kit.wire.clients import storable
from workbench_kit.wire.dialects import read_content, read_thoughts
from workbench_kit.wire.events import StreamedCalls


class ChunkReader:
    """Reads the chunks of a streamed chat completion, and adds its pieces to those of the request."""

    def __init__(self, request: Request):
        assert request.pieces is not None
        self._pieces = request.pieces
        self._said = SaidInPieces(request.stop, prompt_text(request))
        self._calls = _CallsInTurn(len(request.messages))

    def add(self, chunk: Any) -> None:
        """Add a chunk. Raise LMError for content that cannot be read."""
        for choice in dicts_in(chunk.get("choices")) if is_dict(chunk) else ():
            delta = choice.get("delta") or choice.get("message")
            if not choice.get("index") and is_dict(delta):  # of several answers, only the first
                self._tell(self._read(delta))

    def end(self) -> None:
        """Add the pieces held back, which might have continued."""
        self._tell((*self._of_text("", last=True), *self._calls.flush(last=True)))

    def with_ids(self, response: Response) -> Response:
        """Return the answer, with its calls under the ids that the client has seen."""
        ids = self._calls.ids
        if len(ids) != len(response.tool_calls):
            return response
        calls = tuple({**call, "id": ids[n]} for n, call in enumerate(response.tool_calls))
        return replace(response, tool_calls=calls)

    def _tell(self, found: Iterable[Piece]) -> None:
        if told := [*found]:
            if not self._pieces.begun:
                self._pieces.begin({})
            self._pieces.add(*told)

    def _read(self, delta: Mapping[str, Any]) -> Iterator[Piece]:
        text, within = read_content(delta.get("content"))
        if thoughts := storable(read_thoughts(delta) or within):
            yield Piece("thoughts", thoughts)
        if text:
            yield from self._of_text(storable(text))
        if isinstance(refusal := delta.get("refusal"), str) and refusal:
            yield Piece("refusal", storable(refusal))
        if delta.get("tool_calls"):
            yield from self._calls.add(delta["tool_calls"])

    def _of_text(self, text: str, last: bool = False) -> Iterator[Piece]:
        thoughts, said = self._said.add(text, last)
        if thoughts:
            yield Piece("thoughts", thoughts)
        if said:
            yield Piece("text", said)


class _CallsInTurn:
    """The calls of a stream one after the other. Pieces of the next call wait until the arguments of the one before are
    complete: servers may interleave them, and clients read one at a time. turn: distinguishes our ids from those of
    others.
    """

    def __init__(self, turn: int):
        self._turn, self._calls, self._open = turn, StreamedCalls(), 0
        self._waiting: list[list[str]] = []  # arguments not sent yet, by call
        self._told: list[list[str]] = []
        self.ids: list[str] = []

    def add(self, pieces: Any) -> Iterator[Piece]:
        for place, given in self._calls.add(pieces):
            while len(self._waiting) <= place:
                self._waiting.append([])
                self._told.append([])
            self._waiting[place].append(given)
        yield from self.flush()

    def flush(self, last: bool = False) -> Iterator[Piece]:
        """Yield the pieces that are ready; last: all the rest."""
        while self._open < len(self._waiting):
            call, place = self._calls.begun[self._open][0], self._open
            if not (name := call["function"].get("name")):
                return  # the server is still sending this one
            if len(self.ids) == place:
                self.ids.append(self._id(call))
                yield Piece("call", "", place, str(name), self.ids[place])
            if text := storable("".join(self._waiting[place])):
                self._told[place].append(text)
                self._waiting[place].clear()
                yield Piece("call", text, place)
            if place + 1 == len(self._waiting) or not (last or _is_whole(self._told[place])):
                return
            self._open += 1

    def _id(self, call: Mapping[str, Any]) -> str:
        number = call.get("id")
        if isinstance(number, str) and number and number not in self.ids:
            return number
        return call_id(self._turn, len(self.ids))


def _is_whole(told: list[str]) -> bool:
    if not told or not told[-1].rstrip().endswith("}"):
        return False
    try:
        return is_dict(json.loads("".join(told)))
    except (ValueError, RecursionError):
        return False
