"""Several jobs at once, some of which may fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterable
from typing import TypeVar

from workbench.errors import NodeError

T = TypeVar("T")


async def gather_answered(jobs: Iterable[Awaitable[T]], fatal: Collection[str] = ()) -> list[T]:
    """Run all jobs and return the results of those that did not fail.

    Raises the first NodeError if all jobs failed. Always raises a NodeError of a fatal kind, and any other error.
    """
    outcomes = await asyncio.gather(*jobs, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and (not isinstance(outcome, NodeError) or outcome.kind in fatal):
            raise outcome
    answers = [o for o in outcomes if not isinstance(o, BaseException)]
    if not answers:
        raise next(o for o in outcomes if isinstance(o, NodeError))
    return answers
