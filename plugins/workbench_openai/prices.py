"""Prices of hosted models, from the tables that LiteLLM and DSPy ship, read without importing either."""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import Any

from workbench.base.distribution import package_folder
from workbench.lm import Rates

#: (package, file) in the order in which they are looked for: LiteLLM's is the newer one where it is installed.
TABLES = (
    ("litellm", "model_prices_and_context_window_backup.json"),
    ("dspy", "clients/model_metadata/snapshot.json.gz"),
)


@cache
def _table() -> dict[str, Any]:
    for package, name in TABLES:
        folder = package_folder(package)
        if folder is not None and (path := folder / name).is_file():
            raw = path.read_bytes()
            return json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    return {}


def usd_per_token(model: str) -> Rates | None:
    """The prices of one token of a model of OpenAI or Anthropic; None if the table does not know it."""
    row = _table().get(model) or {}
    prompt, completion = row.get("input_cost_per_token"), row.get("output_cost_per_token")
    if prompt is None or completion is None:
        return None
    cached, written = row.get("cache_read_input_token_cost"), row.get("cache_creation_input_token_cost")
    return Rates(*(float(prompt if rate is None else rate) for rate in (prompt, completion, cached, written)))
