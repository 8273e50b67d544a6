"""Permission for tool calls: by the policies of a row and its earlier calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from workbench.errors import NodeError
from workbench.runtime import Context
from workbench.spec import MadeCall, PolicySpec, strictest_verdict


class MadeCalls:
    """The tool calls of a row so far, for rules about order and time."""

    def __init__(self) -> None:
        self.calls = list[MadeCall]()

    @classmethod
    def of(cls, ctx: Context) -> MadeCalls:
        """Return the calls of the row and of the node's sample: each sample has its own."""
        return ctx.row.get((cls, ctx.draw.replica), cls)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


@asynccontextmanager
async def permitted(
    ctx: Context, tool: str, arguments: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> AsyncGenerator[None]:
    """Wrap a tool call: raise like `check_policy`, and record the call for rules on later ones."""
    await check_policy(ctx, tool, arguments, defaults)
    if not ctx.restricted:
        yield
        return
    made = MadeCall(tool)
    MadeCalls.of(ctx).calls.append(made)
    try:
        yield
        made.done = True
    except BaseException:
        made.done = False
        raise


def is_permitted(ctx: Context, tool: str) -> bool:
    """Return True if the policies may allow a call of a tool now, with some arguments."""
    earlier = MadeCalls.of(ctx).calls
    return all(policy.permits(tool, earlier) for policy in (ctx.program.runtime.policy, *ctx.policies))


async def check_policy(
    ctx: Context, tool: str, arguments: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> None:
    """Raise NodeError("policy") for a call refused by a policy, or by the user if asked.

    The policies are those of the workflow file and, for an inner workflow, of its own file.
    """
    runtime, earlier = ctx.program.runtime, MadeCalls.of(ctx).calls if ctx.restricted else ()
    policies = (runtime.policy, *ctx.policies)
    await check_call(policies, tool, arguments, runtime.consent, ctx.effect, defaults, earlier)


async def check_call(
    policies: Iterable[PolicySpec],
    tool: str,
    arguments: Mapping[str, Any],
    consent: Callable[[str, Mapping[str, Any]], bool] | None,
    effect: Callable[[str, Any, Callable[[], Awaitable[bool]]], Awaitable[bool]],
    defaults: Mapping[str, Any] | None = None,
    earlier: Sequence[MadeCall] = (),
) -> None:
    """Raise NodeError("policy") for a call refused by one of the policies, or by the user if a policy says `ask`.

    Args:
        policies: all of them must allow the call.
        tool: its name.
        arguments: of the call.
        consent: asks the user; None if nobody is present, which refuses.
        effect: journals the user's answer.
        defaults: values of omitted arguments, which rules treat as given.
        earlier: the calls of the row before it.
    """
    try:
        given = {**(defaults or {}), **arguments}
        verdict, why = strictest_verdict(policy.verdict(tool, given, earlier) for policy in policies)
    except RecursionError:
        raise NodeError("policy", f"the arguments of {tool} are nested too deeply to be checked") from None
    if verdict == "ask" and consent is not None:

        async def ask() -> bool:
            return await asyncio.to_thread(consent, tool, arguments)

        if not await effect("consent", [tool, dict(arguments)], ask):
            raise NodeError("policy", f"the user did not allow {tool}{f': {why}' if why else ''}")
    elif refused := refusal(tool, verdict, why):
        raise NodeError("policy", refused)


def refusal(tool: str, verdict: str, why: str) -> str | None:
    """Return why a call is refused if nobody can be asked; None if it is allowed."""
    reason = f": {why}" if why else ""
    if verdict == "ask":
        return f"{tool} needs a person's consent, and nobody is here to ask{reason}"
    return f"{tool} is not allowed here{reason}" if verdict == "deny" else None
