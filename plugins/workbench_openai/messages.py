"""`anthropic/...`: what a client wrote for Anthropic's Messages goes there as it is; other requests go through the
client that serves all other providers.

Source: docs.claude.com/en/api/messages and /en/api/overview (headers).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from yarl import URL

from workbench.kit.lms.prices import ModelPrice
from workbench.lm import Rates, Request, Response, is_loopback
from workbench.plugins import plugins
from workbench.spec import declares
from workbench_openai.passing import Passing
from workbench_openai.prices import usd_per_token
from workbench_openai.server import Server, base_url

HOSTED = "https://api.anthropic.com/v1"
VERSION = "2023-06-01"
#: Settings of ours that the API has under the same name.
_OWN = {"thinking", "top_k", "metadata", "service_tier", "output_config", "context_management", "container"}


@declares()
def anthropic(model: str, settings: Any) -> AnthropicMessages:
    """`anthropic/...`: api.anthropic.com, or ANTHROPIC_BASE_URL, or the api_base of the settings."""
    return AnthropicMessages(model, settings)


class AnthropicMessages:
    """An LM behind POST {base}/messages. Everything but requests in the words of this API is the other client's."""

    def __init__(self, model: str, settings: Any):
        """Raises SpecError for an address or settings that cannot be used."""
        self._other = plugins().get("lms", "*")(settings.model, settings)
        address = settings.api_base or os.environ.get("ANTHROPIC_BASE_URL") or os.environ.get("ANTHROPIC_API_BASE")
        base = base_url(address or HOSTED, "/messages")
        hosted = base.origin() == URL(HOSTED).origin()
        usual = not settings.api_base or hosted or is_loopback(str(base))
        extra = dict(settings.extra or {})
        given = {**(extra.pop("headers", None) or {}), **(extra.pop("extra_headers", None) or {})}
        headers = {name: os.path.expandvars(str(value)) for name, value in given.items()}
        self._server = Server(
            model,
            base,
            headers,
            settings.api_key_env or ("ANTHROPIC_API_KEY" if usual else None),
            key_needed=bool(settings.api_key_env) or (hosted and "x-api-key" not in map(str.lower, headers)),
            concurrency=self.concurrency,
            write_key=lambda key: ("x-api-key", key),
            told={} if "anthropic-version" in map(str.lower, headers) else {"anthropic-version": VERSION},
        )
        self._addressed = bool(settings.api_base)
        self._price = ModelPrice(settings.price, self._other.assumed_free, self._find_rates, extra)
        # Settings with other names are those of chat completions, which the other client puts into words of this API.
        passes = extra.keys() <= _OWN and not settings.omit and not settings.rename
        self._passing = Passing(self._server, {"messages"} if passes else set(), self._price.of, extra)

    def __getattr__(self, name: str) -> Any:
        if name == "_other":  # where it could not be made
            raise AttributeError(name)
        return getattr(self._other, name)

    @property
    def apis(self) -> set[str]:
        return self._passing.apis

    async def complete(self, request: Request) -> Response:
        """Raises LMError."""
        if request.native is None:
            return await self._other.complete(request)
        return await self._passing.complete(request, self._other.complete)

    async def forward(
        self, method: str, path: str, body: Mapping[str, Any] | bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        """(status, headers, body) of the server's answer on any other path. Raises LMError."""
        return await self._passing.forward(method, path, body, headers)

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        return self._price.usual(prompt_tokens, completion_tokens)

    def most_usd(self, request: Request, prompt_tokens: int) -> float | None:
        """US dollars of a request at worst; None if unknown."""
        return self._price.most(request, prompt_tokens)

    def _find_rates(self) -> Rates | None:
        return None if self._addressed else usd_per_token(self._server.model)

    async def aclose(self) -> None:
        await self._server.aclose()
        await self._other.aclose()
