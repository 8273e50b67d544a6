"""Empty labels: words that stand for nothing in tables, for outputs that may be None."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from workbench.task.dataset import Dataset, Example, SealedRows
from workbench.task.metric import Metric
from workbench.workflow import Field, Signature, Workflow, may_hold_none, read_nothing


def read_empty_labels(dataset: Dataset, workflow: Workflow, metrics: Iterable[Metric]) -> Dataset:
    """Return the rows with None for each label that spells nothing, such as an empty cell or NULL, if the output that a
    metric compares with it may be None."""
    kinds: dict[str, Any] = {}
    for metric in metrics:
        name, target = getattr(metric, "field", None), getattr(metric, "target", None)
        field = output_field(workflow, name) if isinstance(name, str) else None
        if isinstance(target, str) and field is not None and not field.values and may_hold_none(field.type):
            kinds[target] = field.type
    if not kinds:
        return dataset
    train, val, test = (
        [_read(row, kinds) for row in part] for part in (dataset.train, dataset.val, dataset.test.open())
    )
    return replace(dataset, train=tuple(train), val=tuple(val), test=SealedRows(test))


def output_field(workflow: Workflow, name: str) -> Field | None:
    """Return the workflow's final output field of that name, if a node declares its type."""
    for writer in reversed(workflow.last_writers().get(name, [])):
        signature = getattr(workflow.enabled_nodes.get(writer), "signature", None)
        for field in signature.outputs if isinstance(signature, Signature) else ():
            if field.name == name:
                return field
    return None


def _read(row: Example, kinds: Mapping[str, Any]) -> Example:
    found = {name: read_nothing(row[name], kind) for name, kind in kinds.items() if name in row}
    changed = {name: value for name, value in found.items() if value != row[name]}
    return Example(row.id, {**row.fields, **changed}, row.handle) if changed else row
