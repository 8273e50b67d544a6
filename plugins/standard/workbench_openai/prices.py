"""Prices of the models of OpenAI and Anthropic."""

from __future__ import annotations

from workbench_kit.lms.prices import find_rates
from workbench_kit.wire import Rates


def usd_per_token(model: str) -> Rates | None:
    """Return the prices of a model of OpenAI or Anthropic; None if it is not in the table."""
    return find_rates(model, "openai", "text-completion-openai", "anthropic")
