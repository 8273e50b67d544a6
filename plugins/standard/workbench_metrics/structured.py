"""Metrics on JSON values and on tool calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from workbench.base.text import without_unseen
from workbench.lm import split_thoughts
from workbench.task import Score
from workbench_kit.answers import load_loose, read_call, read_expressions, read_text, read_values
from workbench_metrics.base import FieldMetric, score_match, shorten, unreadable


class JsonMatch(FieldMetric):
    """1 if both values are equal as JSON. partial: the share of equal leaves among all leaves of either side."""

    lists_are_choices = False

    def __init__(self, field: str, target: str | None = None, partial: bool = False):
        super().__init__(field, target)
        self.partial = partial

    def compare(self, given: Any, wanted: Any) -> Score:
        right = read_label(parse_json, wanted, self.target)
        try:
            left = parse_json(given, type(right))
        except ValueError as error:
            return Score(0.0, f"not JSON: {error}")
        if not self.partial or _same(left, right):
            return score_match(_same(left, right), left, right)
        a, b = dict(_leaves(left)), dict(_leaves(right))
        agree = sum(key in b and _same(a[key], b[key]) for key in a)
        return Score(agree / len(a.keys() | b.keys()), f"expected {shorten(right)}, got {shorten(left)}")


class ToolCallMatch(FieldMetric):
    """1 if the tool calls are the expected ones: the same functions, and each argument one of its accepted values.

    A value is a call or a list of calls, in the form {"name": ..., "arguments": {...}}, or BFCL's {"name":
    {arguments}}, or OpenAI's. A prediction may also be a text with calls in any form that models write; other texts
    hold no call. A list as expected argument holds the accepted values; "" or null among them makes it optional.
    ordered: the calls must have the expected order.
    """

    lists_are_choices = False

    def __init__(self, field: str, target: str | None = None, ordered: bool = False):
        super().__init__(field, target)
        self.ordered = ordered

    def compare(self, given: Any, wanted: Any) -> Score:
        expected = read_label(_calls, wanted, self.target)
        try:
            calls = _calls_said(given, expected)
        except ValueError as error:
            return Score(0.0, f"no readable tool call: {error}")
        if len(calls) != len(expected):
            return Score(0.0, f"expected {len(expected)} call(s), got {len(calls)}: {shorten(calls)}")
        fits = [
            [c for c, call in enumerate(calls) if (c == e or not self.ordered) and _fits(call, one)]
            for e, one in enumerate(expected)
        ]
        unmet = _unmatched(fits)
        if unmet is None:
            return Score(1.0)
        name, arguments = expected[unmet]
        return Score(0.0, f"expected {name}({shorten(arguments)}), got {shorten(calls)}")


def _unmatched(fits: list[list[int]]) -> int | None:
    """Return the first expected call without a matching call (bipartite matching by augmenting paths), or None.

    Greedy pairing is not enough: f(1) may be the only call for one expected call and one of several for another.
    """
    taken: dict[int, int] = {}

    def place(expected: int, tried: set[int]) -> bool:
        for call in fits[expected]:
            if call not in tried:
                tried.add(call)
                if call not in taken or place(taken[call], tried):
                    taken[call] = expected
                    return True
        return False

    return next((e for e in range(len(fits)) if not place(e, set())), None)


def read_label(read: Callable[[Any], Any], wanted: Any, target: str) -> Any:
    """Read the row's value. Raises NodeError("data")."""
    try:
        return read(wanted)
    except ValueError as error:
        raise unreadable(target, str(error)) from None


def parse_json(value: Any, kind: type = object) -> Any:
    """Return a value as JSON. A text is parsed as a whole, else its first list or object. Raises ValueError.

    kind: list or object: prefer values of this type, e.g. over a citation mark.
    """
    if not isinstance(value, str):
        return value
    text = split_thoughts(value)[1].strip()
    found = load_loose(text)
    if found is None and text != "null":
        values = [one for one, _, _ in read_values(text)]
        found = next((one for one in values if isinstance(one, kind)), values[0] if values else None)
        if found is None:
            raise ValueError(f"there is no JSON in {shorten(text)}")
    _check_depth(found)
    return found


def _check_depth(value: Any, depth: int = 0) -> None:
    if depth > 100:
        raise ValueError("it is nested too deeply")
    if isinstance(value, dict | list):
        for child in value.values() if isinstance(value, dict) else value:
            _check_depth(child, depth + 1)


def _same(a: Any, b: Any) -> bool:
    """Return True if two values are equal as JSON: true is not 1, but 1 is 1.0."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, str) and isinstance(b, str):
        return without_unseen(a) == without_unseen(b)
    return a == b


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not items or not value:
        yield path, value
    for key, child in items:
        yield from _leaves(child, (*path, key))


Call = tuple[str, dict[str, Any]]


def _calls(value: Any) -> list[Call]:
    """Return the calls of a row's value. Raise ValueError if it holds none."""
    value = parse_json(value)
    return [_call(call, {}) for call in (value if isinstance(value, list) else [value])]


def _calls_said(value: Any, expected: Sequence[Call]) -> list[Call]:
    """Return the calls of an answer, in any form that models write.

    Raises ValueError if calls are expected and the text that looks like calls cannot be read.
    """
    tools, calls, why = {name: list(arguments) for name, arguments in expected}, list[Call](), None
    text = split_thoughts(value)[1].strip() if isinstance(value, str) else None
    values = [value] if text is None else [load_loose(text)]
    if text is not None and values[0] is None:
        values = [one for one, _, _ in read_values(text)]
    for one in _flat(values):
        try:
            calls.append(_call(one, tools))
        except ValueError as error:
            why = error
    if not calls and text:
        said = read_expressions(text.strip("` \n"), tools) or read_text(text, tools).calls
        calls = [_call(call, tools) for call in said]
    if why and expected and not calls:
        raise why
    return calls


def _flat(values: Sequence[Any]) -> Iterator[Any]:
    """Yield the calls in nested lists and in a provider's message."""
    for value in values:
        if isinstance(value, list):
            yield from _flat(value)
        elif isinstance(value, dict) and "tool_calls" in value:
            yield from _flat(value["tool_calls"] or [])
        elif value is not None:
            yield value


def _call(body: Any, tools: Mapping[str, list[str]]) -> Call:
    """Return the name and the arguments of a call. Raise ValueError."""
    if call := read_call(body, tools):
        arguments = parse_json(call["arguments"]) if call["arguments"] else {}
        if not isinstance(arguments, dict):
            raise ValueError(f"the arguments of {shorten(call['name'])} are not an object: {shorten(arguments)}")
        return call["name"], arguments
    if isinstance(body, dict) and len(body) == 1 and isinstance(next(iter(body.values())), dict):
        return next(iter(body.items()))
    raise ValueError(f"{shorten(body)} has no name")


def _fits(call: Call, expected: Call) -> bool:
    return call[0] == expected[0] and _accepted(call[1], expected[1])


def _accepted(given: dict[str, Any], expected: dict[str, Any]) -> bool:
    if set(given) - set(expected):
        return False
    for name, values in expected.items():
        if name not in given:
            choices = values if isinstance(values, list) else [values]
            if "" not in choices and None not in choices:  # columns of structs store missing arguments like this
                return False
        elif not is_accepted(given[name], values):
            return False
    return True


def is_accepted(given: Any, values: Any) -> bool:
    """Return True if an argument is the expected value, or one of a list of accepted ones."""
    return any(_equal(given, choice) for choice in (*(values if isinstance(values, list) else ()), values))


def _equal(given: Any, choice: Any) -> bool:
    """Return True if two values are equal up to case and surrounding spaces. In objects, values may be lists of
    accepted values."""
    if isinstance(given, dict) and isinstance(choice, dict) and _accepted(given, choice):
        return True
    return _same(_loose(given), _loose(choice))


def _loose(value: Any) -> Any:
    if isinstance(value, str):
        return without_unseen(value).strip().lower()
    if isinstance(value, list):
        return [_loose(v) for v in value]
    return {k: _loose(v) for k, v in value.items()} if isinstance(value, dict) else value
