"""A journal for calls that no run replays."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

from workbench.store import Journal


class NoJournal(Journal):
    """A journal that stores nothing, for calls that no run replays."""

    def find_call(self, key: str) -> sqlite3.Row | None:
        return None

    def has_answered(self, lm: str) -> bool:
        return False

    def add_call(self, key: str, **values: Any) -> asyncio.Future[None]:
        return _done()

    def add_effect(self, key: str, kind: str, content: str, result: str, seconds: float) -> asyncio.Future[None]:
        return _done()

    def add_reused_call(self, row: sqlite3.Row, role: str) -> asyncio.Future[None]:
        return _done()

    def delete_call(self, key: str) -> asyncio.Future[None]:
        return _done()

    def add_attempt(self, key: str, role: str, attempt: int, tokens: int, usd: float) -> asyncio.Future[None]:
        return _done()

    def fail_attempt(
        self, key: str, attempt: int, outcome: str, message: str, tokens: int, usd: float
    ) -> asyncio.Future[None]:
        return _done()

    def delete_attempt(self, key: str, attempt: int) -> asyncio.Future[None]:
        return _done()


def _done() -> asyncio.Future[None]:
    future = asyncio.get_running_loop().create_future()
    future.set_result(None)
    return future
