"""Labels that no answer can match, as where the data have numbers and the workflow names."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from workbench.task.dataset import Example
from workbench.task.metric import Metric, as_score
from workbench.workflow import Field, Signature, Workflow


def out_of_reach(workflow: Workflow, metric: Metric, rows: Sequence[Example], *, all_: bool = False) -> str | None:
    """A warning of labels that no value of a Literal matches, by the metric itself; None if there are none.

    all_: warn only if no row has a label that one matches.
    """
    name, target = getattr(metric, "field", None), getattr(metric, "target", None)
    field = _closed_field(workflow, name) if isinstance(name, str) else None
    if field is None or not isinstance(target, str) or getattr(metric, "needs_lm", False):
        return None
    values, scores = field.allowed, dict[str, float]()

    def is_lost(row: Example) -> bool:
        gold = repr(row[target])
        if gold not in scores:
            scores[gold] = 1.0
            if row[target] not in values:
                with suppress(Exception):  # a metric that wants more than this field says so when it runs
                    scores[gold] = max(as_score(metric(row, {field.name: v}, None)).value for v in values)
        return scores[gold] == 0.0

    rows = [row for row in rows if target in row and not is_empty(row[target])]
    if all_ and not all(map(is_lost, rows)):
        return None
    if not (lost := [row for row in rows if is_lost(row)]):
        return None
    shown = ", ".join(dict.fromkeys(repr(row[target]) for row in lost[:50]))
    return (
        f"no answer can be right in {len(lost)} of {len(rows)} rows: their '{target}' is none of the values that "
        f"'{field.name}' may have, e.g. {shown[:120]}"
    )


def _closed_field(workflow: Workflow, name: str) -> Field | None:
    """The output field that the metric reads, if its values are listed."""
    for writer in reversed(workflow.last_writers().get(name, [])):
        signature = getattr(workflow.enabled_nodes.get(writer), "signature", None)
        for field in signature.outputs if isinstance(signature, Signature) else ():
            if field.name == name and field.values:
                return field
    return None


def is_empty(value: Any) -> bool:
    """Whether a value is there and holds nothing."""
    return value is None or (
        isinstance(value, str | list | dict) and not (value.strip() if isinstance(value, str) else value)
    )
