"""Prices of a model by its row of LiteLLM's table.

Each price in a row is either understood, or irrelevant to text calls, or makes the price of the model unknown.

Source: github.com/BerriAI/litellm (model_prices_and_context_window.json, and how it is read:
litellm_core_utils/llm_cost_calc).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from workbench.base.type_guards import dicts_in, is_dict, is_list
from workbench_kit.wire.off_peak import OffPeak, read_off_peak
from workbench_kit.wire.rates import PriceStep, Rates, tier_name

_BASES = {
    "input_cost_per_token": "input",
    "output_cost_per_token": "output",
    "output_cost_per_reasoning_token": "thoughts",
    "cache_read_input_token_cost": "cached",
    "cache_creation_input_token_cost": "cache_write",
}
_RATE = re.compile(
    rf"({'|'.join(_BASES)})(?:_above_(1|12)hr)?(?:_above_(\d+)(k?)_tokens)?(?:_(?!above|cache)([a-z]+))?"
)
#: Prices that are apart from those of text, by what they are of. What is made (images, speech, videos) and what other
#: calls do (pages read by OCR, searches, transcripts) costs nothing in a call that answers with text.
_KINDS = (
    (re.compile(r"image|pixel"), "image"),
    (re.compile(r"audio"), "audio"),
    (re.compile(r"video"), "video"),
    (re.compile(r"per_query|per_session|file_search|computer_use|vector_store|per_1k_calls"), "hosted"),
    (re.compile(r"explicit_cache"), "explicit"),
)
#: Prices that no call of text and tokens has: the same in Databricks' units, by characters (older models have both), by
#: reserved capacity or duration, of other services, and what a source said before it was converted.
_OTHER = re.compile(
    r"\w+_dbu_cost_per_token|\w+_cost_per_character\w*|(?:\w+_)?cost_per_second\w*|\w+_cost_per_(?:page|credit)\w*|"
    r"guardrail_cost_per_unit|input_cost_per_text_message"
)
_PRICED = re.compile(r"cost|pric(?:e|ing)|multiplier")
#: Factors for endpoints and regions: none applies to a model with its usual name and address.
_ELSEWHERE = re.compile(r"regional_processing_uplift_multiplier_\w+|fedramp_uplift_multiplier")


def read_rates(row: Mapping[str, Any]) -> Rates | None:
    """Return the prices of a model by its row of LiteLLM's table; None without token prices, or with one that is not
    understood."""
    found: dict[tuple[str, int], dict[str, float]] = {}
    apart, factors, fee = {"region", "speed", "hosted", "video"}, dict[str, float](), 0.0
    off_peak: OffPeak | None = None
    inclusive = row.get("litellm_provider") == "xai"  # its higher price begins at the threshold itself
    for name, value in row.items():
        if not _PRICED.search(name) or value is None:
            continue
        number = _number(value)
        if (rate := _RATE.fullmatch(name)) and number is not None:
            base, hours, above, thousands, tier = rate.groups()
            length = int(above or 0) * (1000 if thousands else 1) - (inclusive and above is not None)
            place = found.setdefault((tier_name(tier or ""), length), {})
            place[_BASES[base] + (f"_{hours}h" if hours else "")] = number
        elif name == "input_cost_per_token_cache_hit" and number is not None:
            found.setdefault(("", 0), {}).setdefault("cached", number)
        elif name == "input_cost_per_request" and number is not None:
            fee = number
        elif name == "tiered_pricing":
            for one in dicts_in(value):
                if not _add_range(one, found):
                    return None
        elif name == "search_context_cost_per_query" and row.get("litellm_provider") == "perplexity":
            return None  # its models search in every call
        elif name == "off_peak_pricing":
            if (off_peak := _read_off_peak(value, row)) is None:
                return None
        elif kind := next((kind for pattern, kind in _KINDS if pattern.search(name)), None):
            if name.startswith(("input", "cache", "explicit")) and number != _number(row.get("input_cost_per_token")):
                apart.add(kind)
        elif name == "regional_endpoint_uplift_multiplier":
            apart.add("location")
        elif not (_OTHER.fullmatch(name) or _ELSEWHERE.fullmatch(name)):
            return None
    if is_dict(special := row.get("provider_specific_entry")):
        names = {"us": "region us", "fast": "speed fast"}
        factors = {names[k]: n for k, v in special.items() if k in names and (n := _number(v)) is not None}
    usual = found.get(("", 0), {})
    if not {"input", "output"} <= usual.keys():
        return None
    tiers = {tier: tuple(_steps(tier, found)) for tier in {tier for tier, _ in found}}
    return Rates(tiers, per_call=fee, factors=factors, apart=frozenset(apart), off_peak=off_peak)


def _read_off_peak(block: Any, row: Mapping[str, Any]) -> OffPeak | None:
    rates = {_BASES[name]: n for name, value in block.items() if name in _BASES and (n := _number(value)) is not None}
    if block.keys() - _BASES.keys() - {"hours_utc", "windows", "weekday_timezone"}:
        return None
    if "output_cost_per_reasoning_token" not in row and "output" in rates:
        rates.setdefault("thoughts", rates["output"])
    return read_off_peak(block, rates)


def _add_range(one: Mapping[str, Any], found: dict[tuple[str, int], dict[str, float]]) -> bool:
    """Add the prices of one range of prompt lengths. Return False if it cannot be parsed."""
    bounds = one.get("range")
    above = _number(bounds[0]) if is_list(bounds) and bounds else None
    if above is None:
        return False
    place = found.setdefault(("", int(above)), {})
    for name, value in one.items():
        if name == "range":
            continue
        rate, number = _RATE.fullmatch(name), _number(value)
        if rate is None or number is None or rate[3] or rate[5]:
            return False
        place[_BASES[rate[1]] + (f"_{rate[2]}h" if rate[2] else "")] = number
    return True


def _steps(tier: str, found: Mapping[tuple[str, int], Mapping[str, float]]) -> Iterator[tuple[int, PriceStep | None]]:
    """Yield the steps of a tier. A price that a longer prompt does not change is inherited from the step before.

    A price that the tier lacks and the usual one has is unknown.
    """
    own = dict[str, float]()
    for above in sorted({0, *(above for name, above in found if name in ("", tier))}):
        told = found.get((tier, above), {})
        own |= told
        missing = tier and not told and found.get(("", above))
        if missing or not {"input", "output"} <= own.keys():
            yield above, None
            continue
        usual = found.get(("", 0), {}) if tier else {}
        rates = {name: own.get(name, None if name in usual else own["input"]) for name in ("cached", "cache_write")}
        longer = {name: own.get(name) for name in ("cache_write_1h", "cache_write_12h")}
        thoughts = own.get("thoughts", own["output"])
        yield above, PriceStep(own["input"], own["output"], **rates, **longer, thoughts=thoughts)


def _number(value: Any) -> float | None:
    """Return a rate as a table writes it; None for anything else."""
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        return None
    return number if 0 <= number < math.inf else None
