"""Prices of hosted models, from the tables that LiteLLM and DSPy ship, without importing either; and the price of each
call."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from functools import cache, cached_property
from typing import Any

from workbench.base.distribution import package_folder
from workbench.base.type_guards import is_dict
from workbench.lm import Request
from workbench_kit.wire import Billed, Rates, asked_call, parse_price, read_rates

#: (package, file) in order of preference: LiteLLM's is the newer one if it is installed.
TABLES = (
    ("litellm", "model_prices_and_context_window_backup.json"),
    ("dspy", "clients/model_metadata/snapshot.json.gz"),
)


@cache
def read_table() -> dict[str, Any]:
    for package, name in TABLES:
        folder = package_folder(package)
        if folder is not None and (path := folder / name).is_file():
            raw = path.read_bytes()
            return json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    return {}


def find_rates(model: str, *providers: str) -> Rates | None:
    """Return the prices of a model; None if it is not in the table.

    Args:
        model: its provider's name for it.
        providers: those whose prices count, by their names in the table; a row may also be named `PROVIDER/MODEL`.
    """
    table = read_table()
    for name in (*(f"{provider}/{model}" for provider in providers), model):
        row = table.get(name)
        if is_dict(row) and _is_of(str(row.get("litellm_provider")), providers):
            return read_rates(row)
    return None


def _is_of(own: str, providers: tuple[str, ...]) -> bool:
    """Return True if a row is a provider's: `bedrock_converse` is of `bedrock`, `vertex_ai-language-models` of
    `vertex_ai`."""
    return any(own == provider or own.startswith((f"{provider}-", f"{provider}_")) for provider in providers)


class ModelPrice:
    """The price of each call of one model: by the settings, else free on this machine, else by a table.

    find: looks the model up; called once. extra: settings that are part of each request.
    """

    def __init__(self, price: Any, free: bool, find: Callable[[], Rates | None], extra: Mapping[str, Any]):
        stated = parse_price(price)
        self.assumed_free = free and stated is None
        self.extra, self._rates, self._find = extra, stated, None if stated is not None or free else find

    @property
    def rates(self) -> Rates | None:
        if self._find is not None:
            self._rates, self._find = self._find(), None
        return self._rates

    def of(self, call: Billed) -> float | None:
        """Return the cost of a call in US dollars; None if unknown."""
        if self.assumed_free:
            return 0.0
        return None if self.rates is None else self.rates.of(call)

    def usual(self, prompt: int, completion: int) -> float | None:
        """Return the cost in US dollars of a call without conditions beyond the settings; None if unknown."""
        return self.of(self._plain._replace(prompt=prompt, completion=completion))

    @cached_property
    def _plain(self) -> Billed:
        """Return a call without tokens, with the conditions of the settings. Cached for the calls of a trace."""
        return asked_call(Request(()), 0, self.extra)

    def most(self, request: Request, prompt: int) -> float | None:
        """Return the worst-case cost of a request in US dollars; None if unknown."""
        if self.assumed_free:
            return 0.0
        return None if self.rates is None else self.rates.most(asked_call(request, prompt, self.extra))
