"""The event loop of a run, and jobs that run at once in it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Collection, Coroutine, Iterable
from typing import Any, TypeVar, cast

from workbench.errors import NodeError

T = TypeVar("T")

#: New objects between two looks of the garbage collector (Python: 700). What a call makes is freed by counting
#: references; the collector only looks at it, over and over, which took 5% of the time of a run against a fast server.
OBJECTS = 20_000


def run_in_loop(course: Coroutine[Any, Any, T]) -> T:
    """asyncio.run, with a garbage collector that looks less often."""
    before = gc.get_threshold()
    gc.set_threshold(max(OBJECTS, before[0]) if before[0] else 0, *before[1:])
    try:
        return asyncio.run(course)
    finally:
        gc.set_threshold(*before)


async def gather_all(jobs: Iterable[Awaitable[T]]) -> list[T]:
    """All results. All jobs come to their end before an error is raised: what they have under way is paid, so it is
    recorded, and a replay sees the same. An error that is no NodeError goes before one that is."""
    outcomes = await asyncio.gather(*jobs, return_exceptions=True)
    errors = [o for o in outcomes if isinstance(o, BaseException)]
    if errors:
        raise next((e for e in errors if not isinstance(e, NodeError)), errors[0])
    return cast(list[T], outcomes)


async def gather_answered(jobs: Iterable[Awaitable[T]], fatal: Collection[str] = ()) -> list[T]:
    """What those gave that did not fail. Raises the first NodeError if all failed, or if it is of a kind that is fatal,
    and any other error."""
    outcomes = await asyncio.gather(*jobs, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and (not isinstance(outcome, NodeError) or outcome.kind in fatal):
            raise outcome
    answers = [o for o in outcomes if not isinstance(o, BaseException)]
    if not answers:
        raise next(o for o in outcomes if isinstance(o, NodeError))
    return answers
