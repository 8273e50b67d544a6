"""State that lives as long as a run of an example."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast


class OfRow(Protocol):
    """Something that is closed with its row."""

    async def aclose(self) -> None: ...


T = TypeVar("T", bound=OfRow)


class RowScope:
    """Things that all nodes of a row share, and no other row: e.g. its sessions with servers."""

    def __init__(self) -> None:
        self._things: dict[Any, OfRow] = {}

    def get(self, key: Any, make: Callable[[], T]) -> T:
        """The thing of this key, made when it is first asked for."""
        if key not in self._things:
            self._things[key] = make()
        return cast(T, self._things[key])

    async def aclose(self) -> None:
        """Close all of them."""
        things = list(self._things.values())
        self._things.clear()
        await asyncio.gather(*(thing.aclose() for thing in things))
