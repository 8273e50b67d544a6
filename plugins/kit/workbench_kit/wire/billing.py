"""Billing of a call: the conditions in its request and answer, and the amount that the biller states.

Sources: openrouter.ai/docs (use-cases/usage-accounting), docs.litellm.ai (proxy/cost_tracking), docs.claude.com
(build-with-claude/prompt-caching, api/service-tiers), platform.openai.com/docs (guides/flex-processing).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from workbench.base.type_guards import dicts_in, is_dict, is_list, walk
from workbench.lm import Request, count_images
from workbench_kit.wire.dialects import Usage
from workbench_kit.wire.rates import Billed

#: The header in which LiteLLM's proxy states the cost of a call.
COST_HEADER = "x-litellm-response-cost"
#: Upper limit for the cost of a call: a larger stated amount is a mistake.
_MAX_USD = 1e6
#: Tools that a provider runs and bills separately.
_HOSTED = re.compile(
    r"(?i)web_?search|code_?(?:execution|interpreter)|file_?search|google_?(?:search|maps)|image_generation|x_search|"
    r"browser_search|enterprise_?web"
)
_DETAILS = ("prompt_tokens_details", "input_tokens_details", "completion_tokens_details", "output_tokens_details")
_GOOGLE_DETAILS = ("promptTokensDetails", "candidatesTokensDetails")
#: Fields of a usage that count calls of hosted tools.
_HOSTED_COUNTS = ("server_tool_use", "server_side_tool_usage_details", "num_search_queries", "num_sources_used")


def stated_usd(usage: Any, headers: Mapping[str, str]) -> float | None:
    """Return the dollars that the biller states for a call; None if it states none, or an invalid amount."""
    if is_dict(usage) and (found := _stated_in(usage)) is not None:
        return found
    return _amount(next((value for name, value in headers.items() if name.lower() == COST_HEADER), None))


def _stated_in(usage: Mapping[str, Any]) -> float | None:
    told = usage.get("cost", usage.get("total_cost", usage.get("estimated_cost")))
    if is_dict(told):
        if str(told.get("currency", "USD")).upper() != "USD":
            return None
        told = told.get("total_cost", told.get("total"))
    if (cost := _amount(told)) is None or str(usage.get("currency", "USD")).upper() != "USD":
        return None
    details = usage.get("cost_details")
    if usage.get("is_byok") is True:  # then `cost` is the gateway's fee, and the provider bills the rest
        upstream = _amount(details.get("upstream_inference_cost")) if is_dict(details) else None
        return None if upstream is None else cost + upstream
    return cost


def _amount(value: Any) -> float | None:
    """Return dollars as a server may write them; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        amount = float(value)
    except (ValueError, OverflowError):
        return None
    return amount if math.isfinite(amount) and 0 <= amount <= _MAX_USD else None


def asked_call(request: Request, prompt: int, extra: Mapping[str, Any]) -> Billed:
    """Describe an unanswered call for its price: with the maximum of its tokens, and everything it requests.

    extra: the provider's settings. The request's own settings override them.
    """
    asked = _asked(request, extra)
    one, twelve = ("1h" in (ttl := _lifetimes(request, asked))), "12h" in ttl
    conditions = {*_asked_conditions(request, asked), *({"hosted tool"} if _asks_hosted(request, asked) else ())}
    most = request.max_tokens
    return Billed(
        prompt,
        most,
        cache_write_1h=prompt if one else 0,
        cache_write_12h=prompt if twelve else 0,
        tier=_named(asked.get("service_tier")),
        conditions=frozenset(conditions),
    )


def answered_call(usage: Usage, prompt: int, completion: int, request: Request, body: Mapping[str, Any]) -> Billed:
    """Describe an answered call for its price.

    Args:
        usage: as counted by the server.
        prompt, completion: the tokens of the call, estimated if the server did not count them.
        request: with the settings of the provider in its `extra`.
        body: of the answer.
    """
    asked, told = _asked(request, {}), body.get("usage")
    told = told if is_dict(told) else {}
    google = body.get("usageMetadata")
    google = google if is_dict(google) else {}
    served = (body.get("service_tier"), told.get("service_tier"), google.get("trafficType"), google.get("serviceTier"))
    tier = next((name for value in served if (name := _named(value)) is not None), _named(asked.get("service_tier")))
    conditions = {*_asked_conditions(request, {**asked, **_only(told, ("inference_geo", "speed"))})}
    conditions |= {"hosted tool"} if _ran_hosted(told, request, asked) else set()
    for details in filter(is_dict, map(told.get, _DETAILS)):
        conditions |= {kind for kind in ("audio", "image", "video") if details.get(f"{kind}_tokens")}
        if details.get("cache_type") == "ephemeral" and usage.cached:
            conditions.add("explicit cache")
    for part in (one for name in _GOOGLE_DETAILS for one in dicts_in(google.get(name)) if one.get("tokenCount")):
        conditions |= {str(part.get("modality")).lower()} & {"audio", "image", "video"}
    one, twelve = _long_writes(usage, told, _lifetimes(request, asked) if usage.written else set())
    thoughts = min(usage.thoughts, completion)
    now = datetime.now(UTC)
    return Billed(
        prompt, completion, usage.cached, usage.written, one, twelve, thoughts, tier, frozenset(conditions), now
    )


def price_fields(
    price: Callable[[Billed], float | None], call: Billed, usage: Any, headers: Mapping[str, str]
) -> dict[str, Any]:
    """Return the price fields of a Response. The biller's amount counts, and ours is stored next to it."""
    computed, stated = price(call), stated_usd(usage, headers)
    if stated is not None:
        return {"usd": stated, "stated": True, "computed_usd": computed}
    return {"usd": computed}


def _asked(request: Request, extra: Mapping[str, Any]) -> Mapping[str, Any]:
    more = extra.get("extra_body")
    native = {} if request.native is None else request.native.body
    return {**extra, **(more if is_dict(more) else {}), **request.extra, **native}


def _named(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _only(values: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: values[name] for name in names if values.get(name)}


def _asked_conditions(request: Request, asked: Mapping[str, Any]) -> Iterator[str]:
    region, speed = asked.get("inference_geo"), asked.get("speed")
    if isinstance(region, str) and region not in ("global", "not_available", ""):
        yield f"region {region.lower()}"
    if isinstance(speed, str) and speed not in ("standard", ""):
        yield f"speed {speed.lower()}"
    location = asked.get("vertex_location") or asked.get("vertex_ai_location")
    if location != "global":
        yield f"location {location or 'usual'}"
    if any(map(count_images, request.messages)):
        yield "image"


def _asks_hosted(request: Request, asked: Mapping[str, Any]) -> bool:
    if asked.get("web_search_options") or asked.get("search_parameters"):
        return True
    tools = asked.get("tools")
    for tool in (*dicts_in(tools if is_list(tools) else []), *request.tools):
        names = [str(tool.get("type") or "")] if tool.get("type") else [*tool]
        if any(map(_HOSTED.match, names)):
            return True
    return False


def _ran_hosted(told: Mapping[str, Any], request: Request, asked: Mapping[str, Any]) -> bool:
    """Return True if hosted tools ran, or may have run if the answer does not count them."""
    counted = [told[name] for name in _HOSTED_COUNTS if name in told]
    if counted:
        return any(isinstance(part, int) and part > 0 for value in counted for part in walk(value))
    return _asks_hosted(request, asked)


def _lifetimes(request: Request, asked: Mapping[str, Any]) -> set[str]:
    """Return the cache lifetimes that a request asks a provider for."""
    found = set[str]()
    for part in walk([asked, [dict(message) for message in request.messages], [*request.tools]]):
        if is_dict(part) and is_dict(control := part.get("cache_control")) and isinstance(control.get("ttl"), str):
            found.add(control["ttl"])
    if asked.get("prompt_cache_retention") in ("12h", "1h"):
        found.add(asked["prompt_cache_retention"])
    return found


def _long_writes(usage: Usage, told: Mapping[str, Any], asked: set[str]) -> tuple[int, int]:
    """Return (tokens stored for an hour, for twelve hours) of those written to a cache."""
    places = [told.get("cache_creation"), told]
    for name in ("prompt_tokens_details", "input_tokens_details"):
        if is_dict(details := told.get(name)):
            places += [details.get("cache_creation_token_details"), details.get("cache_creation"), details]
    counts = next((p for p in places if is_dict(p) and any(n.startswith("ephemeral_") for n in p)), None)
    if counts is None:
        one = usage.written if "1h" in asked else 0
        return one, usage.written - one if "12h" in asked else 0
    one, twelve = (
        n if isinstance(n := counts.get(f"ephemeral_{hours}_input_tokens"), int) and n > 0 else 0
        for hours in ("1h", "12h")
    )
    one = min(one, usage.written)
    return one, min(twelve, usage.written - one)
