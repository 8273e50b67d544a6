"""The event loop of a run."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

#: New objects between two looks of the garbage collector (Python: 700). What a call makes is freed by counting references;
#: the collector only looks at it, over and over, which took 5% of the time of a run against a fast server.
OBJECTS = 20_000


def run_course(course: Coroutine[Any, Any, T]) -> T:
    """asyncio.run, with a garbage collector that looks less often."""
    before = gc.get_threshold()
    gc.set_threshold(max(OBJECTS, before[0]) if before[0] else 0, *before[1:])
    try:
        return asyncio.run(course)
    finally:
        gc.set_threshold(*before)
