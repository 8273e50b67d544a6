"""The price of a call: by its length, service tier, cache lifetimes and other conditions.

`Rates.of(call)` is used by the bill, by the reservation (`Rates.most`) and by `estimate`. A condition without a known
price makes the price unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple

from workbench_kit.wire.off_peak import OffPeak

#: Tiers at the usual price, and other names of tiers.
_TIERS: dict[str, str] = dict.fromkeys(
    ("auto", "default", "standard", "standard_only", "on_demand", "none", "global"), ""
)
_TIERS |= {"fast": "priority", "on_demand_priority": "priority", "on_demand_flex": "flex", "batch": "batches"}


def tier_name(name: str) -> str:
    """Return a service tier's name in tables of prices; "" for the usual one."""
    plain = name.strip().lower().removeprefix("service_tier_")
    return _TIERS.get(plain, plain)


class Billed(NamedTuple):
    """A call as its price sees it: tokens and conditions.

    thoughts: of the completion. cached, cache_write: of the prompt. cache_write_1h, cache_write_12h: of cache_write,
        the tokens stored for that long. tier: None if neither the request nor the answer names one. conditions:
        `image`, `audio`, `video`, `hosted tool`, `explicit cache`, `region NAME`, `speed NAME`, `location NAME`. at:
        time of the answer; None: at any time.
    """

    prompt: int
    completion: int
    cached: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    cache_write_12h: int = 0
    thoughts: int = 0
    tier: str | None = None
    conditions: frozenset[str] = frozenset()
    at: datetime | None = None


class PriceStep(NamedTuple):
    """US dollars per token for prompts in one range of lengths; None: unknown."""

    input: float
    output: float
    cached: float | None
    cache_write: float | None
    cache_write_1h: float | None
    cache_write_12h: float | None
    thoughts: float

    def price(self, call: Billed) -> float | None:
        usual = call.cache_write - call.cache_write_1h - call.cache_write_12h
        total = (call.prompt - call.cached - call.cache_write) * self.input
        total += (call.completion - call.thoughts) * self.output + call.thoughts * self.thoughts
        for tokens, rate in (
            (call.cached, self.cached),
            (usual, self.cache_write),
            (call.cache_write_1h, self.cache_write_1h),
            (call.cache_write_12h, self.cache_write_12h),
        ):
            if tokens:
                if rate is None:
                    return None
                total += tokens * rate
        return total


@dataclass(frozen=True)
class Rates:
    """The prices of one model.

    tiers: by service tier, the usual one under `""`: (tokens above which it applies, step), shortest first, None if a
        length has no known price. any_tier: an unlisted tier has the usual price, since a single stated price applies
        to all calls. factors: by condition. apart: kinds of conditions without a known price.
    """

    tiers: Mapping[str, tuple[tuple[int, PriceStep | None], ...]]
    any_tier: bool = False
    per_call: float = 0.0
    factors: Mapping[str, float] = field(default_factory=dict[str, float])
    apart: frozenset[str] = frozenset()
    off_peak: OffPeak | None = None

    def of(self, call: Billed) -> float | None:
        """Return the cost of a call in US dollars; None if one of its conditions has no known price."""
        steps = self.tiers.get(tier_name(call.tier or ""))
        if steps is None:
            steps = self.tiers[""] if self.any_tier else ()
        step = next((step for above, step in reversed(steps) if call.prompt > above or not above), None)
        if step is not None and self.off_peak is not None and call.at is not None and self.off_peak.holds(call.at):
            step = step._replace(**self.off_peak.rates)
        price = None if step is None else step.price(call)
        for condition in call.conditions:
            if condition in self.factors and price is not None:
                price *= self.factors[condition]
            elif condition.split(" ")[0] in self.apart:
                return None
        return None if price is None else price + self.per_call

    def price(self, prompt: int, completion: int, cached: int = 0, cache_write: int = 0) -> float | None:
        """Return the cost in US dollars of a call without other conditions."""
        return self.of(Billed(prompt, completion, cached, cache_write))

    def most(self, call: Billed) -> float | None:
        """Return the maximum cost of a call before its answer is known.

        Its prompt may be written to a cache, its answer be all thoughts, and a server without room in a cheaper tier
        may serve it in the usual one. `call.cache_write_1h` and the like are asked for where they are not 0.
        """
        if (plain := self.of(call._replace(cache_write_1h=0, cache_write_12h=0))) is None:
            return None
        whole, tiers = call.prompt, {call.tier, ""}
        writes = [(0, 0, 0), (whole, 0, 0)]
        writes += [(whole, whole, 0)] if call.cache_write_1h else []
        writes += [(whole, 0, whole)] if call.cache_write_12h else []
        every = [
            self.of(call._replace(tier=tier, thoughts=thoughts, **dict(zip(_WRITES, write, strict=True))))
            for tier in tiers
            for thoughts in (0, call.completion)
            for write in writes
        ]
        if call.cache_write_1h or call.cache_write_12h:
            asked = [self.of(call._replace(**dict(zip(_WRITES, write, strict=True)))) for write in writes[2:]]
            if None in asked:
                return None
        return max(plain, *(price for price in every if price is not None))


_WRITES = ("cache_write", "cache_write_1h", "cache_write_12h")


def parse_price(price: Any) -> Rates | None:
    """Return the rates for settings in dollars per million tokens; None without a price."""
    if price is None:
        return None
    stated = _plain(price)
    usual = _stated_steps(stated)
    tiers = {tier_name(name): _plain(value) for name, value in (stated.get("tiers") or {}).items()}
    steps = {name: _with_gaps(_stated_steps(value), usual) for name, value in tiers.items()}
    return Rates({"": usual, **steps}, any_tier=not tiers)


def _with_gaps(
    steps: Sequence[tuple[int, PriceStep]], usual: Sequence[tuple[int, PriceStep]]
) -> tuple[tuple[int, PriceStep | None], ...]:
    """Return the steps of a tier, with unknown prices from where the usual one rises with length up to where the tier
    states its own."""
    own = min((above for above, _ in steps if above), default=inf)
    return tuple(sorted([*steps, *((above, None) for above, _ in usual if 0 < above < own)], key=itemgetter(0)))


def _stated_steps(stated: Mapping[str, Any]) -> tuple[tuple[int, PriceStep], ...]:
    steps = {0: stated, **{int(above): _plain(rates) for above, rates in (stated.get("above") or {}).items()}}
    return tuple((above, _stated_step(steps[above])) for above in sorted(steps))


def _stated_step(stated: Mapping[str, Any]) -> PriceStep:
    whole, out = float(stated["input"]), float(stated["output"])
    told = {name: float(stated[name]) for name in ("cached", *_WRITES) if stated.get(name) is not None}
    write = told.get("cache_write", whole)
    one, twelve = told.get("cache_write_1h", write), told.get("cache_write_12h", write)
    rates = (whole, out, told.get("cached", whole), write, one, twelve, out)
    return PriceStep(*(rate / 1e6 for rate in rates))


def _plain(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else vars(value)
