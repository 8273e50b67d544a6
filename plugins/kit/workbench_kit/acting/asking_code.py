"""Code that asks: it runs in the sandbox again from its start, with the answers so far, up to the next thing it asks.

So code of a model never holds a tool, a model, a key or a connection, and what it asks for is permitted, paid and
journalled as elsewhere. The same inputs and answers must lead to the same questions; the sandbox seeds `random`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from workbench.errors import NodeError
from workbench.runtime import Context

#: Times that code may ask, in all: each runs it again.
MOST_ASKED = 1_000
#: The source has a function `workbench_main(ask, ...)`, and stands first: lines of errors are its own.
_DRIVER = '''

class ToolError(Exception):
    """A call of a tool failed."""


class WorkbenchStop(BaseException):
    """The code waits for an answer, or asked another thing than before."""


class WorkbenchAsk:
    def __init__(self, answers):
        self.answers, self.end = answers, None

    def __call__(self, request):
        import json
        if self.end is None:
            request = json.loads(json.dumps(request, allow_nan=False))
            if not self.answers:
                self.end = {"ask": request}
            elif self.answers[0]["asked"] != request:
                self.end = {"astray": [self.answers[0]["asked"], request]}
        if self.end is not None:  # also where the code caught the stop and went on
            raise WorkbenchStop
        known = self.answers.pop(0)
        if "error" in known:
            raise ToolError(known["error"])
        return known["value"]


def workbench_step(answers, **given):
    ask = WorkbenchAsk(answers)
    try:
        done = workbench_main(ask, **given)
    except WorkbenchStop:
        done = None
    return ask.end or {"done": done}
'''


async def run_asking(
    ctx: Context,
    source: str,
    arguments: Mapping[str, Any],
    answers: list[dict[str, Any]],
    reply: Callable[[Any], Awaitable[dict[str, Any]]],
    *,
    timeout: float = 5.0,
    large: Mapping[str, Any] | None = None,
) -> Any:
    """Run a source to its end and return what its `workbench_main(ask, ...)` returns.

    Args:
        ctx: of the node.
        source: Python; `ask(request)` in it gives the reply, or raises ToolError.
        arguments: of `workbench_main`.
        answers: {asked, value} or {asked, error} each; what is asked beyond them is answered and added.
        reply: answers a request by {value}, or by {error}, which is a ToolError in the code (`answered`).
        timeout: seconds of computing for one step.
        large: further arguments, of which the journal keeps the hash alone.

    Raises NodeError("code") where the source fails, or asks another thing than when it ran before, and
    NodeError("steps") where it asks without end.
    """
    while True:
        step = await ctx.sandboxed(
            source + _DRIVER, "workbench_step", arguments, timeout=timeout, large={**(large or {}), "answers": answers}
        )
        if step["kind"] != "ok":
            line = f" in line {step['line']}" if step["line"] else ""
            raise NodeError("code", f"{step['kind']}{line}: {step['message']}")
        found = step["value"] if isinstance(step["value"], dict) else {}  # of a model's code: anything may come
        if "done" in found:
            return found["done"]
        if "ask" not in found:
            changed = str(found.get("astray"))[:400]
            raise NodeError("code", f"run again, the code asked another thing than before: {changed}")
        if len(answers) >= MOST_ASKED:
            raise NodeError("steps", f"the code asks more than {MOST_ASKED} times")
        answers.append({"asked": found["ask"], **await reply(found["ask"])})


async def answered(call: Awaitable[Any]) -> dict[str, Any]:
    """The reply to code that asks for a call: {value}, or {error} for a NodeError."""
    try:
        return {"value": await call}
    except NodeError as error:
        return {"error": str(error)}
