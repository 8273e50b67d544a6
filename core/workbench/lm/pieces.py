"""An answer on its way to a client: the server's bytes if both speak one API, otherwise piece by piece."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an answer, independent of any API.

    kind: `thoughts`, `text`, `refusal`, or `call`, whose text is a part of the arguments. The first piece of a call has
    its name and id. place: the number of the call; calls follow one another.
    """

    kind: str
    text: str
    place: int = 0
    name: str = ""
    id: str = ""


class Pieces:
    """The pieces of an answer on their way to a client: the call adds them, the client's connection reads them.

    wanted: the client reads a stream. begun: the server has begun to answer, so the request cannot be sent again.
    whole: the server's own stream was passed on completely.
    """

    def __init__(self) -> None:
        self.headers: Mapping[str, str] = {}
        self.wanted = self.begun = self.whole = False
        self._parts: list[bytes | Piece] = []
        self._source = self
        self._followers: list[Pieces] = []
        self._news = False
        self._waiting: asyncio.Future[None] | None = None

    def begin(self, headers: Mapping[str, str]) -> None:
        """Set the headers of the answer, before its first piece."""
        self.headers, self.begun = headers, True
        self.wake()

    def add(self, *parts: bytes | Piece) -> None:
        self._parts += parts
        self.wake()

    def end(self) -> None:
        self.whole = True

    def follow(self, other: Pieces) -> None:
        """Read the pieces of another request: a client that hung up has sent the same request again."""
        self._source = other._source
        self._source._followers.append(self)
        self.wake()

    @property
    def source(self) -> Pieces:
        """Return the object that the call adds to."""
        return self._source

    def after(self, place: int) -> tuple[list[bytes | Piece], int]:
        """Return (the parts after the first `place`, the number of parts so far)."""
        parts = self._source._parts
        return parts[place:], len(parts)

    async def wait(self) -> None:
        """Wait until something has changed, or `wake` is called. For one reader."""
        if not self._news:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        self._news = False

    def wake(self) -> None:
        for one in (self, *self._followers):
            one._news = True
            if one._waiting is not None and not one._waiting.done():
                one._waiting.set_result(None)
