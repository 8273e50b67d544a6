"""Prices of hosted models, from the table that LiteLLM ships, read without importing LiteLLM."""

from __future__ import annotations

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from workbench.lm import Rates

TABLE = "model_prices_and_context_window_backup.json"


@cache
def _table() -> dict[str, Any]:
    spec = find_spec("litellm")  # finds a top-level package without running it
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / TABLE
        if path.is_file():
            return json.loads(path.read_bytes())
    return {}


def usd_per_token(model: str) -> Rates | None:
    """The prices of one token of an OpenAI model; None if the table does not know it."""
    row = _table().get(model) or {}
    prompt, completion = row.get("input_cost_per_token"), row.get("output_cost_per_token")
    if prompt is None or completion is None:
        return None
    cached, written = row.get("cache_read_input_token_cost"), row.get("cache_creation_input_token_cost")
    return Rates(*(float(prompt if rate is None else rate) for rate in (prompt, completion, cached, written)))
