"""Rules that core does not decide: on earlier calls, and with conditions that hold in any spelling."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.base.type_guards import is_dict, is_list
from workbench.spec import Condition, MadeCall, Pattern, Rule, TooSlow
from workbench_kit.acting import Unmatchable, shortest_match
from workbench_policy.likeness import from_json, may_equal, plain_texts
from workbench_policy.past import names_in, parse_formula, was_called


class _Rules:
    """A `workbench.spec.RuleReader`. See there for docstrings."""

    def named(self, rule: Rule) -> list[str]:
        if rule.formula is None:
            return [pattern for pattern in (rule.pattern, rule.before, rule.after) if pattern is not None]
        parse_formula(rule.formula)
        return names_in(rule.formula)

    def is_time(self, rule: Rule, tool: str, earlier: Sequence[MadeCall]) -> bool:
        if rule.formula is not None:
            made = [call.tool for call in earlier if call.done is not False]
            return not parse_formula(rule.formula)([*made, tool])
        surely = rule.allow is not None
        if rule.before is not None and was_called(rule.before, earlier, surely=not surely):
            return False
        return rule.after is None or was_called(rule.after, earlier, surely=surely)

    def may_be_met(self, rule: Rule, arguments: Mapping[str, Any]) -> bool:
        return all(_may_be_met(condition, name, arguments) for name, condition in rule.when.items())

    def impossible(self, rule: Rule) -> list[tuple[str, str]]:
        return [(name, why) for name, condition in rule.when.items() if (why := _find_impossible(condition))]


READER = _Rules()


def may_hold(condition: Condition, value: Any) -> bool:
    """Return True if a value may meet a condition, as rules that deny or ask read it.

    An undecidable case, such as whether a text is a number of at least 100, counts as met. So the rule cannot be evaded
    with another spelling or a value of another type.
    """
    if condition.one_of is not None and not any(may_equal(value, one) for one in condition.one_of):
        return False
    texts = plain_texts(value) if isinstance(value, str) else []
    if condition.matches is not None and texts and not any(_may_match(condition.matches, text) for text in texts):
        return False
    return condition.in_bounds(value) is not False and condition.short_enough(value) is not False


def _find_impossible(condition: Condition) -> str | None:
    """Return why no value can meet a condition; None if one can, or if that is uncertain."""
    if condition.min is not None and condition.max is not None and condition.min > condition.max:
        return f"no number is at least {condition.min:g} and at most {condition.max:g}"
    if condition.one_of == []:
        return "`one_of` lists nothing"
    if condition.matches is None:
        return None
    try:
        shortest = shortest_match(condition.matches)
    except Unmatchable as error:
        return f"nothing matches {condition.matches!r}, since {error}"
    if condition.max_length is not None and condition.max_length < shortest:
        return f"what matches {condition.matches!r} is longer than a max_length of {condition.max_length}"
    listed = condition.one_of or []
    texts = [value for value in listed if isinstance(value, str)]
    # Only words: numbers and JSON may also match in another spelling.
    words = all(text.isalpha() for text in texts) and len(texts) == len(listed) > 0
    if words and not any(_may_match(condition.matches, text) for text in texts):
        return f"{texts[0]!r} does not match {condition.matches!r}"
    return None


def _may_match(pattern: str, text: str) -> bool:
    """Match in any spelling. A search that would take too long counts as a match."""
    try:
        return bool(Pattern(pattern, re.DOTALL | re.IGNORECASE).fullmatch(text))
    except TooSlow:
        return True


def _may_be_met(condition: Condition, name: str, arguments: Mapping[str, Any]) -> bool:
    """Check the argument of that name; for a dotted name also those inside an object, inside the objects of a list, and
    inside JSON written as text. If the name leads through any other value, the condition may be met."""
    values, sure = ([arguments[name]] if name in arguments else []), True
    if "." in name:
        inner: list[Any] = [dict(arguments)]
        for part in name.split("."):
            objects, others = _objects([value for value in inner if value is not None])
            sure = sure and not others
            inner = [found[part] for found in objects if part in found]
        values += inner
    return not sure or any(may_hold(condition, value) for value in values)


def _objects(value: object) -> tuple[list[dict[str, Any]], bool]:
    """Return an object, or those in a list at any depth, and whether there is any other value."""
    if is_dict(value):
        return [value], False
    if not is_list(value):
        return [], True
    found = [_objects(from_json(item)) for item in value]
    return [inner for objects, _ in found for inner in objects], any(others for _, others in found)
