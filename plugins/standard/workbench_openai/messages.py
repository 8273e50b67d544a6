"""`anthropic/...`: passes requests written for Anthropic's Messages unchanged. Other requests go through the common
client of all providers.

Source: docs.claude.com/en/api/messages and /en/api/overview (headers).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from workbench.lm import Request, Response
from workbench_kit.wire import Forwarded, Rates
from workbench_openai.passing import Passing
from workbench_openai.prices import usd_per_token
from workbench_openai.vendor import VendorLM

HOSTED = "https://api.anthropic.com/v1"
VERSION = "2023-06-01"
#: Our settings that the API has under the same name.
_OWN = {"thinking", "top_k", "metadata", "service_tier", "output_config", "context_management", "container"}


def anthropic(model: str, settings: Any) -> AnthropicMessages:
    """Create `anthropic/...`: api.anthropic.com, or ANTHROPIC_BASE_URL, or the api_base of the settings."""
    return AnthropicMessages(model, settings)


class AnthropicMessages(VendorLM):
    """An LM behind POST {base}/messages."""

    hosted, path, header = HOSTED, "/messages", "x-api-key"
    told = {"anthropic-version": VERSION}

    def __init__(self, model: str, settings: Any):
        """Create a client. Raise SpecError for an invalid address or settings."""
        super().__init__(model, settings, "ANTHROPIC_API_KEY")
        # Settings with other names are those of chat completions, which the common client translates for this API.
        passes = self._extra.keys() <= _OWN and not settings.omit and not settings.rename
        self._passing = Passing(self._server, {"messages"} if passes else set(), self._price.of, self._extra)

    def _find_address(self, settings: Any) -> str:
        named = os.environ.get("ANTHROPIC_BASE_URL") or os.environ.get("ANTHROPIC_API_BASE")
        return settings.api_base or named or HOSTED

    def _find_rates(self) -> Rates | None:
        return None if self._addressed else usd_per_token(self._server.model)

    @property
    def apis(self) -> set[str]:
        return self._passing.apis

    async def complete(self, request: Request) -> Response:
        """Return the model's response. Raise LMError."""
        if request.native is None:
            return await self._other.complete(request)
        return await self._passing.complete(request, self._other.complete)

    async def forward(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Forwarded:
        """Return the server's answer on any other path. Raise LMError."""
        return await self._passing.forward(method, path, body, headers)
