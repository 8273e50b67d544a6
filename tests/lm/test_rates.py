"""A price is a function of the call: of its length, tier, cache and other conditions."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from workbench.lm import Request
from workbench.spec import lm_spec
from workbench_kit.lms.prices import find_rates, read_table
from workbench_kit.wire import Billed, Rates, answered_call, asked_call, parse_price, read_rates, read_usage

#: Prices as LiteLLM states those of gpt-5.4, in dollars for a million.
LONG = {
    "litellm_provider": "openai",
    "input_cost_per_token": 2.5e-6,
    "output_cost_per_token": 15e-6,
    "cache_read_input_token_cost": 0.25e-6,
    "input_cost_per_token_above_272k_tokens": 5e-6,
    "output_cost_per_token_above_272k_tokens": 22.5e-6,
    "cache_read_input_token_cost_above_272k_tokens": 0.5e-6,
    "input_cost_per_token_priority": 5e-6,
    "output_cost_per_token_priority": 30e-6,
    "input_cost_per_token_flex": "1.25e-6",
    "output_cost_per_token_flex": 7.5e-6,
    "input_cost_per_token_above_272k_tokens_flex": 2.5e-6,
    "output_cost_per_token_above_272k_tokens_flex": 11.25e-6,
    "input_cost_per_token_batches": 1.25e-6,
    "output_cost_per_token_batches": 7.5e-6,
    "search_context_cost_per_query": {"search_context_size_low": 0.01},
    "regional_processing_uplift_multiplier_eu": 1.1,
}
CLAUDE = {
    "litellm_provider": "anthropic",
    "input_cost_per_token": 3e-6,
    "output_cost_per_token": 15e-6,
    "cache_read_input_token_cost": 0.3e-6,
    "cache_creation_input_token_cost": 3.75e-6,
    "cache_creation_input_token_cost_above_1hr": 6e-6,
    "provider_specific_entry": {"us": 1.1, "fast": 2},
}
M = 1_000_000


def rates(row: Any) -> Rates:
    found = read_rates(row)
    assert found is not None
    return found


def test_the_price_of_a_call_depends_on_its_conditions(subtests: pytest.Subtests) -> None:
    long, claude = rates(LONG), rates(CLAUDE)
    table: list[tuple[Rates, Billed, float | None]] = [
        (long, Billed(300_000, 1_000), 1.5225),
        (long, Billed(272_000, 1_000), 0.695),  # up to the threshold, the lower prices hold
        (long, Billed(272_001, 0), 1.360005),
        (long, Billed(300_000, 1_000, cached=100_000), 1.0725),
        (long, Billed(M // 10, 1_000, tier="priority"), 0.53),
        (long, Billed(M // 10, 1_000, tier="fast"), 0.53),
        (long, Billed(300_000, 0, tier="priority"), None),  # no such price is stated
        (long, Billed(M // 10, 1_000, tier="flex"), 0.1325),
        (long, Billed(300_000, 1_000, tier="flex"), 0.76125),
        (long, Billed(M // 10, 1_000, tier="batch"), 0.1325),
        (long, Billed(M // 10, 1_000, cached=10, tier="flex"), None),  # of that tier, cached tokens have no price
        (long, Billed(M // 10, 1_000, tier="scale"), None),
        (long, Billed(M // 10, 1_000, tier="default"), 0.265),
        (long, Billed(M // 10, 1_000, conditions=frozenset(["hosted tool"])), None),
        (long, Billed(M // 10, 1_000, conditions=frozenset(["image"])), 0.265),
        (long, Billed(M // 10, 1_000, conditions=frozenset(["speed fast"])), None),
        (claude, Billed(100_000, 0, cache_write=100_000), 0.375),
        (claude, Billed(100_000, 0, cache_write=100_000, cache_write_1h=40_000), 0.465),
        (claude, Billed(100_000, 0, conditions=frozenset(["region us"])), 0.33),
        (claude, Billed(100_000, 0, conditions=frozenset(["region eu"])), None),
        (claude, Billed(100_000, 0, conditions=frozenset(["region us", "speed fast"])), 0.66),
        (claude, Billed(0, 0), 0.0),
    ]
    for known, call, usd in table:
        with subtests.test(call=call):
            assert known.of(call) == (None if usd is None else pytest.approx(usd))


def test_other_forms_of_prices_by_length(subtests: pytest.Subtests) -> None:
    base = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}
    ranges = [{"range": [0, 32_000], **base}, {"range": [32_000, 1e6], "input_cost_per_token": 3e-6}]
    above = {"input_cost_per_token_above_128k_tokens": 4e-6}
    table: list[tuple[dict[str, Any], int, float]] = [
        ({**base, "tiered_pricing": ranges}, 32_000, 0.032),
        ({**base, "tiered_pricing": ranges}, 32_001, 0.096003),
        ({**base, **above}, 128_000, 0.128),
        ({**base, **above}, 128_001, 0.512004),
        ({**base, **above, "litellm_provider": "xai"}, 128_000, 0.512),
        ({**base, "input_cost_per_request": 0.005}, 1_000, 0.006),
    ]
    for row, prompt, usd in table:
        with subtests.test(row=row, prompt=prompt):
            assert rates(row).price(prompt, 0) == pytest.approx(usd)


def test_prices_of_some_hours_hold_in_them() -> None:
    windows = [
        {"hours_utc": ["10:00-00:00"], "weekdays": [1, 2, 3, 4, 5]},
        {"hours_utc": "00:00-00:00", "weekdays": [6, 7]},
    ]
    block = {"input_cost_per_token": 1e-6, "windows": windows}
    known = rates({"input_cost_per_token": 2e-6, "output_cost_per_token": 4e-6, "off_peak_pricing": block})
    monday, sunday = datetime(2026, 11, 23, tzinfo=UTC), datetime(2026, 11, 22, tzinfo=UTC)
    for at, usd in ((monday.replace(hour=9), 2.0), (monday.replace(hour=10), 1.0), (sunday, 1.0), (None, 2.0)):
        assert known.of(Billed(M, 0, at=at)) == pytest.approx(usd)


def test_every_price_of_the_table_is_understood_or_makes_it_unknown() -> None:
    unknown = {
        name
        for name, row in read_table().items()
        if row.get("mode") in ("chat", "responses") and {"input_cost_per_token", "output_cost_per_token"} <= row.keys()
        if row["output_cost_per_token"] is not None and row["input_cost_per_token"] is not None
        if read_rates(row) is None
    }
    assert {name.partition("/")[0] for name in unknown} <= {"perplexity"}  # its models search in each call
    assert read_rates({**LONG, "moon_phase_cost_per_token": 1.0}) is None
    assert read_rates({**LONG, "citation_cost_per_token": 1.0}) is None


def test_a_reservation_is_the_worst_case_of_what_is_asked(subtests: pytest.Subtests) -> None:
    claude, long = rates(CLAUDE), rates(LONG)
    kept = {
        "role": "user",
        "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
    }
    plain, asked = Request(({"role": "user", "content": "a"},), max_tokens=0), Request((kept,), max_tokens=0)
    assert claude.most(asked_call(plain, M, {})) == pytest.approx(3.75)  # all of it may be written to the cache
    assert claude.most(asked_call(asked, M, {})) == pytest.approx(6.0)
    assert long.most(asked_call(plain, 100_000, {"service_tier": "flex"})) == pytest.approx(0.25)  # without room: usual
    assert long.most(asked_call(plain, 100_000, {"service_tier": "priority"})) == pytest.approx(0.5)
    assert long.most(asked_call(plain, 100_000, {"service_tier": "scale"})) is None
    assert long.most(asked_call(plain, 300_000, {})) == pytest.approx(1.5)


def test_what_an_answer_says_of_its_price_is_read(subtests: pytest.Subtests) -> None:
    request = Request(({"role": "user", "content": "a"},), extra={"service_tier": "flex"})
    details = {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 30}
    counts = {"input_tokens": 100, "output_tokens": 5, "cache_creation_input_tokens": 40, "cache_read_input_tokens": 7}
    table: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {"tier": "flex"}),
        ({"service_tier": "default"}, {"tier": "default"}),
        ({"usage": {**counts, "service_tier": "priority"}}, {"tier": "priority", "prompt": 147, "cached": 7}),
        ({"usage": {**counts, "cache_creation": details}}, {"cache_write": 40, "cache_write_1h": 30}),
        ({"usage": {**counts, "server_tool_use": {"web_search_requests": 2}}}, {"conditions": {"hosted tool"}}),
        ({"usage": {**counts, "server_tool_use": {"web_search_requests": 0}}}, {"conditions": set()}),
        ({"usage": {**counts, "inference_geo": "us"}}, {"conditions": {"region us"}}),
        ({"usage": {"prompt_tokens": 9, "prompt_tokens_details": {"audio_tokens": 4}}}, {"conditions": {"audio"}}),
        ({"usageMetadata": {"trafficType": "ON_DEMAND_PRIORITY"}}, {"tier": "ON_DEMAND_PRIORITY"}),
    ]
    for body, found in table:
        with subtests.test(body=body):
            usage = read_usage(body.get("usage"), True, 10**9)
            call = answered_call(usage, usage.prompt or 1, usage.completion or 1, request, body)
            seen = {**call._asdict(), "conditions": {c for c in call.conditions if "location" not in c}}
            assert {name: seen[name] for name in found} == found


def test_a_price_in_a_file_can_state_the_same_conditions() -> None:
    stated: dict[str, Any] = {
        "input": 2.5,
        "output": 15,
        "cached": 0.25,
        "above": {272_000: {"input": 5, "output": 22.5}},
        "tiers": {"flex": {"input": 1.25, "output": 7.5}, "batch": {"input": 1, "output": 7}},
    }
    price = lm_spec({"model": "openai/m", "price": json.loads(json.dumps(stated))}).price
    known = parse_price(price)
    assert known is not None and known.price(300_000, 1_000) == pytest.approx(1.5225)
    assert known.price(100_000, 0) == pytest.approx(0.25)
    assert known.of(Billed(100_000, 0, tier="flex")) == pytest.approx(0.125)
    assert known.of(Billed(100_000, 0, tier="batches")) == pytest.approx(0.1)
    assert known.of(Billed(100_000, 0, tier="priority")) is None
    assert known.of(Billed(300_000, 0, tier="flex")) is None, "flex has no price above 272,000"
    own = {**stated["tiers"], "flex": {"input": 1.25, "output": 7.5, "above": {272_000: {"input": 2.5, "output": 9}}}}
    longer = parse_price({**stated, "tiers": own})
    assert longer is not None and longer.of(Billed(300_000, 0, tier="flex")) == pytest.approx(0.75)
    own = {"flex": {"input": 1.25, "output": 7.5, "above": {500_000: {"input": 9, "output": 9}}}}
    gap = parse_price({**stated, "tiers": own})
    assert gap is not None and gap.of(Billed(300_000, 0, tier="flex")) is None, "nor between 272,000 and its own step"
    assert gap.of(Billed(M, 0, tier="flex")) == pytest.approx(9.0)
    assert gap.of(Billed(100_000, 0, tier="flex")) == pytest.approx(0.125)
    single = parse_price({"input": 1, "output": 2})  # of the calls that are made, whatever their tier
    assert single is not None and single.of(Billed(M, 0, tier="priority")) == pytest.approx(1.0)


def test_the_review_s_call_costs_what_its_table_says() -> None:
    known = find_rates("gpt-5.4", "openai")
    assert known is not None and known.price(300_000, 1_000) == pytest.approx(1.5225)
    assert find_rates("gpt-5.4", "anthropic") is None and find_rates("no-such-model", "openai") is None
