"""The common part of the writers of the three APIs: each folds the pieces of an answer into events, and into a body.

So an answer that is there as a whole, one that is replayed and one that comes piece by piece are written by the same
lines.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from workbench.lm import Message, Piece, Pieces, Response
from workbench_external.gateway import fields as f

Body = Mapping[str, Any]
Event = Mapping[str, Any] | str
Raw = bytes | AsyncIterable[bytes]


class Writer(Protocol):
    """Writes one answer for a client. Made of the request's body."""

    def __init__(self, body: Body) -> None: ...

    def expect(self, responses: Sequence[Response]) -> None:
        """Note what is to come, where that is known: some answers begin with the number of tokens."""
        ...

    def add(self, piece: Piece, sample: int = 0) -> Iterator[Event]:
        """The events of a piece. sample: of several answers, which one."""
        ...

    def end(self, responses: Sequence[Response]) -> Iterator[Event]:
        """The events of the end. responses: the answers whose pieces were added."""
        ...

    def body(self) -> dict[str, Any]:
        """The answer in one piece, after its end."""
        ...


@dataclass(frozen=True)
class Asked:
    """A request. path: with its query. named: what the path names. raw: the body as it came, or comes where nobody
    reads it here. pieces: takes an answer
    as it comes. write: makes what writes one in the words of the request's API."""

    method: str
    path: str
    body: Mapping[str, Any] = field(default_factory=dict[str, Any])
    named: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    raw: Raw = b""
    pieces: Pieces = field(default_factory=Pieces)
    write: type[Writer] | None = None

    @cached_property
    def writer(self) -> Writer:
        """Made where an answer does not pass as it came."""
        assert self.write is not None, "an endpoint that writes has a writer"
        return self.write(self.body)


def write_events(writer: Writer, messages: Sequence[Message], responses: Sequence[Response]) -> Iterator[Event]:
    """The events of answers that are known as a whole. messages: of the request."""
    writer.expect(responses)
    for sample, response in enumerate(responses):
        for piece in pieces_of(response, messages, sample):
            yield from writer.add(piece, sample)
    yield from writer.end(responses)


def write_body(writer: Writer, messages: Sequence[Message], responses: Sequence[Response]) -> dict[str, Any]:
    """The body of answers that are known as a whole."""
    for _ in write_events(writer, messages, responses):
        pass
    return writer.body()


def pieces_of(response: Response, messages: Sequence[Message], sample: int = 0) -> Iterator[Piece]:
    """The pieces of an answer: a few of each of its texts."""
    for kind, text in (("thoughts", response.thoughts), (_kind_of(response), response.text)):
        yield from (Piece(kind, part) for part in f.pieces_of(text))
    for place, call in enumerate(f.calls_with_ids(response, messages, sample)):
        yield Piece("call", "", place, call["name"], call["id"])
        yield from (Piece("call", part, place) for part in f.pieces_of(call["arguments"]))


def _kind_of(response: Response) -> str:
    return "refusal" if response.finish == "refusal" else "text"


def token_logprobs(asked: bool, response: Response | None) -> list[dict[str, Any]]:
    """The log-probability of each token, by its number; none where the numbers are not known, or nobody asked."""
    ids, values = (response.token_ids or (), response.logprobs or ()) if response else ((), ())
    if not asked or len(ids) != len(values):
        return []
    pairs = zip(ids, values, strict=True)
    return [{"token": f"token_id:{number}", "logprob": value, "top_logprobs": []} for number, value in pairs]
