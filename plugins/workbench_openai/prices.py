"""Prices of hosted models, from the table that LiteLLM ships, read without importing LiteLLM."""

from __future__ import annotations

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

TABLE = "model_prices_and_context_window_backup.json"


@cache
def _table() -> dict[str, Any]:
    spec = find_spec("litellm")  # finds a top-level package without running it
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / TABLE
        if path.is_file():
            return json.loads(path.read_bytes())
    return {}


def usd_per_token(model: str) -> tuple[float, float] | None:
    """(prompt, completion) prices of one token of an OpenAI model; None if the table does not know it."""
    row = _table().get(model) or {}
    prompt, completion = row.get("input_cost_per_token"), row.get("output_cost_per_token")
    return None if prompt is None or completion is None else (float(prompt), float(completion))
