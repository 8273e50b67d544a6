"""Runs the command line and kills it (SIGKILL) at a named step: WORKBENCH_KILL_AT="step:count" python kill_at.py ...

Steps: commit-before, commit-after (a transaction of the store), send-before, send-after (a request), evaluated
(a candidate was evaluated), report-before, report-after (the end of a run), replace-before, replace-after (the result
file is written but not yet in its place; is there). The step is reached `count` times before the kill. Nothing in core
knows of this.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

STEPS = (
    "commit-before",
    "commit-after",
    "send-before",
    "send-after",
    "evaluated",
    "report-before",
    "report-after",
    "replace-before",
    "replace-after",
)


def install(step: str, count: int) -> None:
    from workbench.run import session
    from workbench.store import database as store
    from workbench_openai.server import Server

    reached = 0

    def here() -> None:
        nonlocal reached
        reached += 1
        if reached >= count:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if step.endswith("-before"):
                here()
            result = function(*args, **kwargs)
            if not step.endswith("-before"):
                here()
            return result

        return wrapped

    def around_async(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            if step.endswith("-before"):
                here()
            result = await function(*args, **kwargs)
            if not step.endswith("-before"):
                here()
            return result

        return wrapped

    if step.startswith("commit"):
        store.Store._commit = around(store.Store._commit)  # type: ignore[method-assign]
    elif step.startswith("send"):
        Server._post = around_async(Server._post)  # type: ignore[method-assign]
    elif step == "evaluated":
        session.Session._on_evaluation = around_async(session.Session._on_evaluation)  # type: ignore[method-assign]
    elif step.startswith("report"):
        session.Session._finish = around(session.Session._finish)  # type: ignore[method-assign]
    elif step.startswith("replace"):
        os.replace = around(os.replace)
    else:
        sys.exit(f"unknown step {step}; known: {', '.join(STEPS)}")


if __name__ == "__main__":
    name, _, times = os.environ.get("WORKBENCH_KILL_AT", "").partition(":")
    if name:
        install(name, int(times or 1))
    from workbench.cli import main

    main()
