"""Labels that no answer can match, as where the data have numbers and the workflow names, and wrong demos."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from workbench.spec import LMSpec
from workbench.task.dataset import Example
from workbench.task.metric import Metric, as_score
from workbench.task.nothing import may_be_none, output_field
from workbench.workflow import Surroundings, Workflow


def out_of_reach(workflow: Workflow, metric: Metric, rows: Sequence[Example]) -> str | None:
    """A warning of labels that no value of an output matches, by the metric itself if the output is closed: with listed
    values, or numbers. An output that may not be nothing matches no empty label. None if there are none."""
    name, target = getattr(metric, "field", None), getattr(metric, "target", None)
    field = output_field(workflow, name) if isinstance(name, str) else None
    if (
        field is None
        or (not field.values and may_be_none(field.type))
        or not isinstance(target, str)
        or getattr(metric, "needs_lm", False)
    ):
        return None
    scores = dict[str, float]()

    def is_lost(row: Example) -> bool:
        if not field.closed:
            return row[target] is None or (isinstance(row[target], str) and not row[target].strip())
        gold = repr(row[target])
        if gold not in scores:
            scores[gold], values = 1.0, field.allowed or _numbers(row[target], field.type)
            if row[target] not in values:
                with suppress(Exception):  # a metric that wants more than this field says so when it runs
                    scores[gold] = max(as_score(metric(row, {field.name: v}, None)).value for v in values)
        return scores[gold] == 0.0

    rows = [row for row in rows if target in row]
    if not (lost := [row for row in rows if is_lost(row)]):
        return None
    shown = ", ".join(dict.fromkeys(repr(row[target]) for row in lost[:50]))
    return (
        f"no answer can be right in {len(lost)} of {len(rows)} rows: their '{target}' is none of the values that "
        f"'{field.name}' may have, e.g. {shown[:120]}"
    )


def _numbers(label: Any, kind: type[Any]) -> list[Any]:
    """The numbers of a label, one of which an output of numbers may equal; any, if it has none."""
    found = re.findall(r"[-+]?\d+(?:\.\d+)?", str(label).replace(",", ""))
    return [kind(float(number)) for number in found] or [kind(0)]


def wrong_demos(workflow: Workflow, lm: LMSpec) -> list[str]:
    """Warnings of demos whose fields or values are not those of their node. lm: that of the file."""
    return [
        f"node '{node.name}': {defect.message}. {defect.hint}"
        for node in workflow.walk()
        if getattr(node.config, "demos", None)
        for defect in node.defects(Surroundings(lm))
        if defect.path[:1] == ("demos",)
    ]


def is_empty(value: Any) -> bool:
    """Return True if a value is there and holds nothing."""
    return value is None or (
        isinstance(value, str | list | dict) and not (value.strip() if isinstance(value, str) else value)
    )
