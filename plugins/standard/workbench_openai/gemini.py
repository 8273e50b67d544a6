"""`gemini/...`: passes requests written for Gemini's generateContent unchanged. Other requests go through the common
client of all providers.

Source: ai.google.dev/api/generate-content, /api/tokens and /api/all-methods (paths).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from yarl import URL

from workbench.base.type_guards import is_dict
from workbench.lm import Request, Response
from workbench_kit.lms.prices import find_rates
from workbench_kit.wire import Forwarded, Rates
from workbench_openai import wire
from workbench_openai.passing import send_native
from workbench_openai.vendor import VendorLM

HOSTED = "https://generativelanguage.googleapis.com/v1beta"
#: Environment variables of its key and its address; the first that is set counts. Google's client and LiteLLM read
#: them.
_KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
_ADDRESSES = ("GOOGLE_GEMINI_BASE_URL", "GEMINI_API_BASE")
#: The name of a model in a path.
_NAMED = re.compile(r"^models/[^:/?]+")


def gemini(model: str, settings: Any) -> GeminiContents:
    """Create `gemini/...`: generativelanguage.googleapis.com, or GOOGLE_GEMINI_BASE_URL, or the settings' api_base."""
    return GeminiContents(model, settings)


class GeminiContents(VendorLM):
    """An LM behind POST {base}/models/NAME:generateContent."""

    hosted, path, header = HOSTED, "/models", "x-goog-api-key"

    def __init__(self, model: str, settings: Any):
        """Create a client. Raise SpecError for an invalid address or settings."""
        super().__init__(model, settings, next((name for name in _KEYS if os.environ.get(name)), _KEYS[0]))
        # Settings are those of chat completions, which the common client translates for this API.
        self.apis = set[str]() if self._extra or settings.omit or settings.rename else {"gemini"}

    def _find_address(self, settings: Any) -> str:
        address = settings.api_base or next(filter(None, map(os.environ.get, _ADDRESSES)), HOSTED)
        # Clients add the version of the API to an address without one.
        return address if URL(address).path.strip("/") else f"{address.rstrip('/')}/v1beta"

    def _find_rates(self) -> Rates | None:
        return None if self._addressed else find_rates(self._server.model, "gemini")

    async def complete(self, request: Request) -> Response:
        """Return the model's response. Raise LMError."""
        native = request.native
        if native is None or native.api not in self.apis:
            return await self._other.complete(request if native is None else request.converted())
        url = self._server.url(f"models/{self._server.model}:{native.method}")
        return await send_native(self._server, url, wire.encode(native.body), request, self._price.of)

    async def forward(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Forwarded:
        """Return the server's answer on any other path. Raise LMError.

        body: bytes, whole or streamed, pass unchanged. A body that was parsed here is sent to this model.

        body: bytes, whole or as they come, pass as they are. What was read here is asked of this model.
        """
        if is_dict(body):
            path = _NAMED.sub(f"models/{self._server.model}", path)
            if is_dict(asked := body.get("generateContentRequest")):
                body = {**body, "generateContentRequest": {**asked, "model": f"models/{self._server.model}"}}
            body = wire.encode(body)
        return await self._server.fetch(method, path, body, headers)
