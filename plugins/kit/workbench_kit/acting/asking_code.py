"""Code that asks: it is rerun in the sandbox from its start, with the answers so far, up to its next request.

So a model's code never holds a tool, a model, a key or a connection, and its requests are permitted, paid and
journalled as usual. The same inputs and answers must lead to the same requests; the sandbox seeds `random`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from workbench.errors import NodeError
from workbench.runtime import Context

#: Maximum number of requests of a program: each one reruns it.
MAX_ASKED = 1_000
#: The source has a function `workbench_main(ask, ...)`, and comes first, so that line numbers in errors are its own.
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

    Run a source to its end and return the result of its `workbench_main(ask, ...)`.

    Args:
        ctx: of the node.
        source: Python; `ask(request)` in it returns the reply, or raises ToolError.
        arguments: of `workbench_main`.
        answers: {asked, value} or {asked, error} each; further requests are answered and added.
        reply: answers a request by {value}, or by {error}, which becomes a ToolError in the code (`answered`).
        timeout: seconds of computing for one step.
        large: further arguments, of which the journal keeps only the hash.

    Raises NodeError("code") if the source fails, or makes other requests than before, and NodeError("steps") if it
    never stops asking.
    """
    while True:
        step = await ctx.sandboxed(
            source + _DRIVER, "workbench_step", arguments, timeout=timeout, large={**(large or {}), "answers": answers}
        )
        if step["kind"] != "ok":
            line = f" in line {step['line']}" if step["line"] else ""
            raise NodeError("code", f"{step['kind']}{line}: {step['message']}")
        found = step["value"] if isinstance(step["value"], dict) else {}  # from a model's code: it may be anything
        if "done" in found:
            return found["done"]
        if "ask" not in found:
            changed = str(found.get("astray"))[:400]
            raise NodeError("code", f"run again, the code asked another thing than before: {changed}")
        if len(answers) >= MAX_ASKED:
            raise NodeError("steps", f"the code asks more than {MAX_ASKED} times")
        answers.append({"asked": found["ask"], **await reply(found["ask"])})


async def answered(call: Awaitable[Any]) -> dict[str, Any]:
    """Return the reply to code that requests a call: {value}, or {error} for a NodeError."""
    try:
        return {"value": await call}
    except NodeError as error:
        return {"error": str(error)}
