"""The common part of vendors with their own API: requests written for it pass unchanged."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from yarl import URL

from workbench.lm import Request, is_loopback
from workbench.plugins import plugins
from workbench_kit.lms.prices import ModelPrice
from workbench_kit.wire import Rates
from workbench_openai.server import Server, base_url


class VendorLM:
    """An LM of a vendor. The common client of all providers does everything but requests written for the vendor's API.

    hosted: the vendor's own base. path: an address may end with it. header: carries the key. told: further headers of
    each request, unless the settings have them.
    """

    hosted: str
    path: str
    header: str
    told: Mapping[str, str] = {}

    def __init__(self, model: str, settings: Any, key_variable: str):
        """Create an LM. Raise SpecError for an invalid address or settings.

        key_variable: used if the settings name none and the address is no stranger's.
        """
        self._other = plugins().get("lms", "*")(settings.model, settings)
        base = base_url(self._find_address(settings), self.path)
        hosted = base.origin() == URL(self.hosted).origin()
        usual = not settings.api_base or hosted or is_loopback(str(base))
        extra = dict(settings.extra or {})
        given = {**(extra.pop("headers", None) or {}), **(extra.pop("extra_headers", None) or {})}
        headers = {name: os.path.expandvars(str(value)) for name, value in given.items()}
        own = {*map(str.lower, headers)}
        self._server = Server(
            model,
            base,
            headers,
            settings.api_key_env or (key_variable if usual else None),
            key_needed=bool(settings.api_key_env) or (hosted and self.header not in own),
            concurrency=self.concurrency,
            write_key=lambda key: (self.header, key),
            told={name: value for name, value in self.told.items() if name not in own},
        )
        self._addressed, self._extra = bool(settings.api_base), extra
        self._price = ModelPrice(settings.price, self._other.assumed_free, self._find_rates, extra)

    def __getattr__(self, name: str) -> Any:
        if name == "_other":  # if it could not be created
            raise AttributeError(name)
        return getattr(self._other, name)

    def _find_address(self, settings: Any) -> str:
        raise NotImplementedError

    def _find_rates(self) -> Rates | None:
        raise NotImplementedError

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        return self._price.usual(prompt_tokens, completion_tokens)

    def max_usd(self, request: Request, prompt_tokens: int) -> float | None:
        """Return the worst-case cost of a request in US dollars; None if unknown."""
        return self._price.most(request, prompt_tokens)

    async def aclose(self) -> None:
        await self._server.aclose()
        await self._other.aclose()
