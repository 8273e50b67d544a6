"""Warnings of labels that no answer can match, e.g. numbers where the workflow has names, and of wrong demos."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from workbench.spec import LMSpec
from workbench.task.dataset import Example
from workbench.task.handles import LISTED
from workbench.task.metric import Metric, as_score
from workbench.task.nothing import output_field
from workbench.workflow import Field, Surroundings, Workflow, may_be_none

#: Most values to spell out in a hint; the condition of a text that is not blank; words that YAML reads as other values.
SPELT = 12
FILLED = r"matches: '\s*\S[\s\S]*'"
_YAML_WORDS = frozenset("y n yes no on off true false null".split())


def out_of_reach(workflow: Workflow, metric: Metric, rows: Sequence[Example]) -> str | None:
    """Return a warning of labels that no value of an output matches, or None. For a closed output (listed values, or
    numbers), the metric scores its values. An output that may not be None matches no empty label."""
    name, target = getattr(metric, "field", None), getattr(metric, "target", None)
    field = output_field(workflow, name) if isinstance(name, str) else None
    if field is None or not isinstance(target, str) or getattr(metric, "needs_lm", False):
        return None
    scores, kinds = dict[str, float](), _closed_kinds(field)

    def is_lost(row: Example) -> bool:
        if may_be_none(field.type) and (row[target] is None or not kinds):
            return False
        if not kinds:
            return row[target] is None or (isinstance(row[target], str) and not row[target].strip())
        gold = repr(row[target])
        if gold not in scores:
            scores[gold], values = 1.0, [value for kind in kinds for value in _values_like(row[target], kind)]
            if row[target] not in values:
                with suppress(Exception):  # a metric that needs more than this field reports it when it runs
                    scores[gold] = max(as_score(metric(row, {field.name: v}, None)).value for v in values)
        return scores[gold] == 0.0

    rows = [row for row in rows if target in row]
    if not (lost := [row for row in rows if is_lost(row)]):
        return None
    distinct = list({repr(row[target]): row for row in reversed(lost)}.values())[::-1]
    shown = ", ".join(f"{row[target]!r:.40} in {row.handle}" for row in [*dict.fromkeys([*distinct, *lost])][:LISTED])
    more = f" and {len(lost) - LISTED} more" if len(lost) > LISTED else ""
    right = [*dict.fromkeys(row[target] for row in rows if not is_lost(row))]
    condition = FILLED if not kinds else r"matches: '[^\d]*\d[\s\S]*'"
    if field.values:
        condition = f"one_of: [{', '.join(map(_plain, right))}]" if len(right) <= SPELT else "one_of: [...]"
    leave_out = f". Correct them, or leave them out: {where_text(target, condition)}" if right else ""
    return (
        f"no answer can be right in {len(lost)} of {len(rows)} rows: their '{target}' is none of the values that "
        f"'{field.name}' may have: {shown}{more}{leave_out}"
    )


def where_text(name: str, condition: str = FILLED) -> str:
    """Return what to write to read only the rows whose field meets a condition; default: those in which it is not
    blank."""
    return f"data: {{where: {{{_plain(name)}: {{{condition}}}}}}}"


def _plain(value: Any) -> str:
    """Return a value as YAML on one line."""
    plain = isinstance(value, str) and re.fullmatch(r"[A-Za-z][\w -]*", value) and value.casefold() not in _YAML_WORDS
    return value.strip() if plain else json.dumps(value, ensure_ascii=False)


def _closed_kinds(field: Field) -> list[Any]:
    """Return the types of a closed output (for an optional one, the types of its values); empty for a free output."""
    if field.values:
        return [Literal[field.values]]  # pyright: ignore[reportInvalidTypeArguments, reportInvalidTypeForm]
    either = get_args(field.type) if get_origin(field.type) in (Union, UnionType) else (field.type,)
    kinds = [kind for kind in either if kind is not type(None)]
    closed = all(kind in (int, float, bool) or get_origin(kind) is Literal for kind in kinds)
    return kinds if closed and get_origin(field.type) is not Literal else []


def _values_like(label: Any, kind: Any) -> list[Any]:
    """Return the values of a closed type that a label may be: all listed ones, or its numbers; any if none."""
    if get_origin(kind) is Literal:
        return [*get_args(kind)]
    if kind is bool:
        return [True, False]
    found: list[Any] = re.findall(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", str(label).replace(",", ""))
    exact = [kind(label)] if isinstance(label, int | float) and math.isfinite(label) else []
    return [*exact, *(kind(float(number)) for number in found)] or [kind(0)]


def wrong_demos(workflow: Workflow, lm: LMSpec) -> list[str]:
    """Return warnings of demos whose fields or values do not fit their node. lm: the file's model."""
    return [
        f"node '{node.name}': {defect.message}. {defect.hint}"
        for node in workflow.walk()
        if getattr(node.config, "demos", None)
        for defect in node.defects(Surroundings(lm))
        if defect.path[:1] == ("demos",)
    ]


def is_empty(value: Any) -> bool:
    """Return True if a value exists but is empty."""
    return value is None or (
        isinstance(value, str | list | dict) and not (value.strip() if isinstance(value, str) else value)
    )
