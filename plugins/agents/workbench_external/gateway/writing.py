"""The common part of the writers of the three APIs. Each turns the pieces of an answer into events, and into a body.

So complete answers, replayed ones and those that arrive in pieces are written by the same code.
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
    """Writes one answer for a client. Created with the request's body."""

    def __init__(self, body: Body) -> None: ...

    def expect(self, responses: Sequence[Response]) -> None:
        """Note the answers in advance, if known: some APIs begin with the number of tokens."""
        ...

    def add(self, piece: Piece, sample: int = 0) -> Iterator[Event]:
        """Write the events of a piece. sample: the index of its answer."""
        ...

    def end(self, responses: Sequence[Response]) -> Iterator[Event]:
        """Write the events of the end. responses: the answers whose pieces were added."""
        ...

    def body(self) -> dict[str, Any]:
        """Return the whole answer, after its end."""
        ...


@dataclass(frozen=True)
class Asked:
    """A request. path: with its query. named: the name in the path. raw: the body as received, or as a stream if
    nothing here reads it. pieces: receives an answer as it arrives. write: class of the writer for the request's API.
    """

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
        """Created only if an answer does not pass unchanged."""
        assert self.write is not None, "an endpoint that writes has a writer"
        return self.write(self.body)


def write_events(writer: Writer, messages: Sequence[Message], responses: Sequence[Response]) -> Iterator[Event]:
    """Write the events of complete answers. messages: of the request."""
    writer.expect(responses)
    for sample, response in enumerate(responses):
        for piece in pieces_of(response, messages, sample):
            yield from writer.add(piece, sample)
    yield from writer.end(responses)


def write_body(writer: Writer, messages: Sequence[Message], responses: Sequence[Response]) -> dict[str, Any]:
    """Return the body of complete answers."""
    for _ in write_events(writer, messages, responses):
        pass
    return writer.body()


def pieces_of(response: Response, messages: Sequence[Message], sample: int = 0) -> Iterator[Piece]:
    """Yield the pieces of an answer: a few of each of its texts."""
    for kind, text in (("thoughts", response.thoughts), (_kind_of(response), response.text)):
        yield from (Piece(kind, part) for part in f.pieces_of(text))
    for place, call in enumerate(f.calls_with_ids(response, messages, sample)):
        yield Piece("call", "", place, call["name"], call["id"])
        yield from (Piece("call", part, place) for part in f.pieces_of(call["arguments"]))


def _kind_of(response: Response) -> str:
    return "refusal" if response.finish == "refusal" else "text"


def token_logprobs(asked: bool, response: Response | None) -> list[dict[str, Any]]:
    """Return the log-probability of each token, by its number; none if the numbers are unknown, or not requested."""
    ids, values = (response.token_ids or (), response.logprobs or ()) if response else ((), ())
    if not asked or len(ids) != len(values):
        return []
    pairs = zip(ids, values, strict=True)
    return [{"token": f"token_id:{number}", "logprob": value, "top_logprobs": []} for number, value in pairs]
