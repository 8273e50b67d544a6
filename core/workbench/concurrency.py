"""The event loop of a run, and running several jobs at once."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Collection, Coroutine, Iterable
from typing import Any, TypeVar, cast

from workbench.errors import NodeError

T = TypeVar("T")

#: Allocations between two passes of the garbage collector (Python: 700). The objects of a call are freed by reference
#: counting; scanning them again and again took 5% of the time of a run against a fast server.
ALLOCATIONS = 20_000


def run_in_loop(course: Coroutine[Any, Any, T]) -> T:
    """asyncio.run, with fewer passes of the garbage collector."""
    before = gc.get_threshold()
    gc.set_threshold(max(ALLOCATIONS, before[0]) if before[0] else 0, *before[1:])
    try:
        return asyncio.run(course)
    finally:
        gc.set_threshold(*before)


async def gather_all(jobs: Iterable[Awaitable[T]]) -> list[T]:
    """The results of all jobs.

    All jobs finish before an error is raised: their calls are paid for, so they are recorded, and a replay sees the
    same. Of several errors, the first that is not a NodeError is raised, or else the first.
    """
    outcomes = await asyncio.gather(*jobs, return_exceptions=True)
    errors = [o for o in outcomes if isinstance(o, BaseException)]
    if errors:
        raise next((e for e in errors if not isinstance(e, NodeError)), errors[0])
    return cast(list[T], outcomes)


async def gather_answered(jobs: Iterable[Awaitable[T]], fatal: Collection[str] = ()) -> list[T]:
    """The results of the jobs that did not fail.

    Raises the first NodeError if all jobs failed, a NodeError of a fatal kind in any case, and so any other error.
    """
    outcomes = await asyncio.gather(*jobs, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and (not isinstance(outcome, NodeError) or outcome.kind in fatal):
            raise outcome
    answers = [o for o in outcomes if not isinstance(o, BaseException)]
    if not answers:
        raise next(o for o in outcomes if isinstance(o, NodeError))
    return answers
