"""Metrics on JSON values and on tool calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from workbench.data import Score
from workbench_metrics.base import FieldMetric, short, verdict


class JsonMatch(FieldMetric):
    """1 if both values are equal as JSON. partial: the share of leaves that agree, over all leaves of either side."""

    lists_are_choices = False

    def __init__(self, field: str, target: str | None = None, partial: bool = False):
        super().__init__(field, target)
        self.partial = partial

    def compare(self, given: Any, wanted: Any) -> Score:
        try:
            left, right = parsed(given), parsed(wanted)
        except ValueError as error:
            return Score(0.0, f"not JSON: {error}")
        if not self.partial or left == right:
            return verdict(_same(left, right), given, wanted)
        a, b = dict(_leaves(left)), dict(_leaves(right))
        agree = sum(key in b and _same(a[key], b[key]) for key in a)
        return Score(agree / len(a.keys() | b.keys()), f"expected {short(right)}, got {short(left)}")


class ToolCallMatch(FieldMetric):
    """1 if the tool calls are the expected ones: same functions, and each argument one of its accepted values.

    Calls are written {"name": ..., "arguments": {...}} (or BFCL's {"name": {arguments}}), one or a list of them. A
    list as expected argument holds the accepted values; "" among them means that the argument may be left out.
    ordered: the calls must come in this order.
    """

    lists_are_choices = False

    def __init__(self, field: str, target: str | None = None, ordered: bool = False):
        super().__init__(field, target)
        self.ordered = ordered

    def compare(self, given: Any, wanted: Any) -> Score:
        try:
            calls, expected = _calls(given), _calls(wanted)
        except ValueError as error:
            return Score(0.0, f"no readable tool call: {error}")
        if len(calls) != len(expected):
            return Score(0.0, f"expected {len(expected)} call(s), got {len(calls)}: {short(calls)}")
        rest = list(calls)
        for index, (name, arguments) in enumerate(expected):
            among = [calls[index]] if self.ordered else rest
            hit = next((c for c in among if c[0] == name and _accepted(c[1], arguments)), None)
            if hit is None:
                return Score(0.0, f"expected {name}({short(arguments)}), got {short(calls)}")
            if hit in rest:
                rest.remove(hit)
        return Score(1.0)


def parsed(value: Any) -> Any:
    """A JSON value; texts are parsed, also inside a code fence. Raises ValueError."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.startswith("```"):
        text = text.strip("`").removeprefix("json").strip()
    return json.loads(text)


def _same(a: Any, b: Any) -> bool:
    """Equal as JSON: true is not 1, but 1 is 1.0."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return a == b


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not items or not value:
        yield path, value
    for key, child in items:
        yield from _leaves(child, (*path, key))


def _calls(value: Any) -> list[tuple[str, dict[str, Any]]]:
    value = parsed(value)
    found = []
    for call in value if isinstance(value, list) else [value]:
        if isinstance(call, dict) and isinstance(call.get("name"), str):
            arguments = parsed(call.get("arguments", call.get("args", {})) or {})
            found.append((call["name"], arguments))
        elif isinstance(call, dict) and len(call) == 1 and isinstance(next(iter(call.values())), dict):
            found.append(next(iter(call.items())))
        else:
            raise ValueError(f"{short(call)} has no name")
    return found


def _accepted(given: dict[str, Any], expected: dict[str, Any]) -> bool:
    if set(given) - set(expected):
        return False
    for name, values in expected.items():
        choices = values if isinstance(values, list) else [values]
        if name not in given:
            if "" not in choices:
                return False
        elif not any(_loose(given[name]) == _loose(c) for c in choices) and _loose(given[name]) != _loose(values):
            return False
    return True


def _loose(value: Any) -> Any:
    """Texts without case and spaces around; numbers by value."""
    if isinstance(value, str):
        return value.strip().lower()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, list):
        return [_loose(v) for v in value]
    return {k: _loose(v) for k, v in value.items()} if isinstance(value, dict) else value
