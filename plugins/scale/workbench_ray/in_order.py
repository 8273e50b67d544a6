"""Batches in the order in which they were sent: Ray may run and answer calls of one actor in another."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any


class Outgoing:
    """Numbers batches."""

    def __init__(self) -> None:
        self._number = 0

    def pack(self, batch: list[Any]) -> bytes:
        self._number += 1
        return pickle.dumps((self._number, batch), protocol=pickle.HIGHEST_PROTOCOL)


class Incoming:
    """Gives messages in the order of their batches."""

    def __init__(self) -> None:
        self._next, self._early = 1, dict[int, list[Any]]()

    def unpack(self, packed: bytes) -> Iterator[Any]:
        """The messages that can be read now."""
        number, batch = pickle.loads(packed)
        self._early[number] = batch
        while self._next in self._early:
            yield from self._early.pop(self._next)
            self._next += 1
