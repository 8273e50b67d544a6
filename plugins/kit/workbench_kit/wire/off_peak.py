"""Prices that apply at some hours of some days."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, time, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from workbench.base.type_guards import dicts_in, is_list

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(frozen=True)
class OffPeak:
    """The times when the prices apply, and the prices, under the names of `PriceStep`.

    windows: (days, begin, end) in UTC; days are those of a calendar, Monday is 1. A window may go past midnight, and
    one that ends where it begins is the whole day.
    """

    windows: tuple[tuple[frozenset[int], time, time], ...]
    calendar: tzinfo
    rates: Mapping[str, float]

    def holds(self, at: datetime) -> bool:
        day, now = at.astimezone(self.calendar).isoweekday(), at.astimezone(UTC).time()
        return any(day in days and _is_within(now, begin, end) for days, begin, end in self.windows)


def _is_within(now: time, begin: time, end: time) -> bool:
    return begin <= now < end if begin < end else now >= begin or now < end


def read_off_peak(block: Mapping[str, Any], rates: Mapping[str, float]) -> OffPeak | None:
    """Return the hours of a block `off_peak_pricing` of LiteLLM's table; None if they cannot be parsed."""
    rules = [{"hours_utc": block.get("hours_utc")}] if block.get("hours_utc") else []
    rules += dicts_in(block.get("windows"))
    with suppress(ValueError, TypeError, AttributeError, ZoneInfoNotFoundError):
        calendar = ZoneInfo(block["weekday_timezone"]) if block.get("weekday_timezone") else UTC
        windows = [window for rule in rules for window in _read_rule(rule)]
        return OffPeak(tuple(windows), calendar, rates) if windows else None
    return None


def _read_rule(rule: Mapping[str, Any]) -> list[tuple[frozenset[int], time, time]]:
    days = rule.get("weekdays") or range(1, 8)
    numbers = frozenset(d if isinstance(d, int) else _DAYS.index(d.strip().lower()[:3]) + 1 for d in days)
    hours = rule["hours_utc"] if is_list(rule.get("hours_utc")) else [rule["hours_utc"]]
    spans = [[datetime.strptime(end.strip(), "%H:%M").time() for end in span.split("-")] for span in hours]
    return [(numbers, begin, end) for begin, end in spans]
