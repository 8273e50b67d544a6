"""Calls of live tools, such as a web search engine: retried after a failure, and never repeated for the same query.

Source: DeepResearcher (arXiv 2504.03160), which trains against real search engines: it retries requests and caches
their results by query. Departures: a result is kept in the journal of the run that asked for it, where the paper's
cache lasts seven days. A call that fails after all attempts is not kept, so a later rollout may try again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from workbench.errors import NodeError
from workbench.runtime import Context
from workbench_kit.acting import Tool, read_arguments

#: Seconds before the second attempt, doubled for each further one, and the maximum pause.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0


class LiveCalls(BaseModel):
    """Calls of a live tool."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cached: bool = Field(
        True,
        description="call once per run for the same arguments; false: for tools with changing results or side effects",
    )
    attempts: int = Field(3, ge=1, le=10, description="attempts at a call that fails; wrong arguments are not retried")

    async def call(self, ctx: Context, tool: Tool, arguments: Mapping[str, Any]) -> Any:
        """Return the tool's result. Raise NodeError("tool") after the last attempt."""
        read_arguments(tool, arguments)

        async def ask() -> Any:
            return await self._attempt(tool, arguments, ctx.program.runtime.timeout)

        if not self.cached:
            return await ask()
        return await ctx.shared_effect("live tool", [tool.source, dict(arguments)], ask)

    async def _attempt(self, tool: Tool, arguments: Mapping[str, Any], timeout: float) -> Any:
        for failed in range(1, self.attempts):
            try:
                return await tool(arguments, timeout)
            except NodeError:
                # Jitter spreads rollouts that failed together; no result depends on it.
                await asyncio.sleep(min(FIRST_PAUSE * 2 ** (failed - 1), LONGEST_PAUSE) * random.uniform(1.0, 1.25))
        return await tool(arguments, timeout)
