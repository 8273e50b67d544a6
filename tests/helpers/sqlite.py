"""Connections to databases of tests."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any


class _Closing(sqlite3.Connection):
    def __del__(self) -> None:
        with suppress(sqlite3.ProgrammingError):  # it was never opened
            self.close()


def connect(path: str | Path, **more: Any) -> sqlite3.Connection:
    """Connect as `sqlite3.connect` does. The last reference, in any thread, closes it: Python 3.13 warns of connections
    that are left open."""
    return sqlite3.connect(path, factory=_Closing, check_same_thread=False, **more)
