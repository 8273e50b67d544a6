"""A connection to a database of a test."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def connected(path: str | Path, **more: Any) -> Iterator[sqlite3.Connection]:
    """Commit at the end, and close: its own `with` block leaves it open, which Python 3.13 warns of."""
    with closing(sqlite3.connect(path, **more)) as connection, connection:
        yield connection
