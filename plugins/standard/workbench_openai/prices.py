"""Prices of the models of OpenAI and Anthropic."""

from __future__ import annotations

from workbench_kit.lms.prices import find_rates
from workbench_kit.wire import Rates


def usd_per_token(model: str) -> Rates | None:
    """The prices of a model of OpenAI or Anthropic; None if the table does not know it."""
    return find_rates(model, "openai", "text-completion-openai", "anthropic")
