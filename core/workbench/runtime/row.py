"""State with the lifetime of an example's run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

from workbench.lm import Pieces


class OfRow(Protocol):
    """An object that is closed with its row."""

    async def aclose(self) -> None: ...


T = TypeVar("T", bound=OfRow)


class RowScope:
    """Objects that all nodes of a row share with no other row, e.g. sessions with servers.

    pieces: receives the answer of the model that the node `writer` asks.
    """

    def __init__(self, pieces: Pieces | None = None, writer: str = "") -> None:
        self.pieces, self.writer = pieces, writer
        self._things: dict[Any, OfRow] = {}

    def get(self, key: Any, make: Callable[[], T]) -> T:
        """Return the object of this key, made on first use."""
        if key not in self._things:
            self._things[key] = make()
        return cast(T, self._things[key])

    async def aclose(self) -> None:
        """Close all objects."""
        things = list(self._things.values())
        self._things.clear()
        await asyncio.gather(*(thing.aclose() for thing in things))
