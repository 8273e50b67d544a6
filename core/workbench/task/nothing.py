"""Labels that are nothing: the words by which tables spell it, where an output may be nothing."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Union, get_args, get_origin

from workbench.base.text import spells_nothing
from workbench.base.type_guards import is_dict, is_list
from workbench.task.dataset import Dataset, Example, SealedRows
from workbench.task.metric import Metric
from workbench.workflow import Field, Signature, Workflow


def read_nothing(dataset: Dataset, workflow: Workflow, metrics: Iterable[Metric]) -> Dataset:
    """Rows with None for each label that spells nothing, such as an empty cell or NULL, where the output that a metric
    compares with it may be nothing."""
    kinds: dict[str, Any] = {}
    for metric in metrics:
        name, target = getattr(metric, "field", None), getattr(metric, "target", None)
        field = output_field(workflow, name) if isinstance(name, str) else None
        if isinstance(target, str) and field is not None and not field.values and _may_hold_none(field.type):
            kinds[target] = field.type
    if not kinds:
        return dataset
    train, val, test = (
        [_read(row, kinds) for row in part] for part in (dataset.train, dataset.val, dataset.test.open())
    )
    return Dataset(tuple(train), tuple(val), SealedRows(test), dataset.warnings, dataset.data_hash, dataset.holes)


def output_field(workflow: Workflow, name: str) -> Field | None:
    """The output field of that name that the workflow ends with, if a node declares its type."""
    for writer in reversed(workflow.last_writers().get(name, [])):
        signature = getattr(workflow.enabled_nodes.get(writer), "signature", None)
        for field in signature.outputs if isinstance(signature, Signature) else ():
            if field.name == name:
                return field
    return None


def may_be_none(kind: Any) -> bool:
    """Return True if a value of a type may be None."""
    return kind is Any or kind is type(None) or (_is_union(kind) and any(map(may_be_none, get_args(kind))))


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


def _may_hold_none(kind: Any, depth: int = 0) -> bool:
    if kind is not Any and may_be_none(kind):
        return True
    inner = [*get_args(kind), *_fields_of(kind).values()] if depth < 10 and get_origin(kind) is not Literal else []
    return any(_may_hold_none(one, depth + 1) for one in inner)


def _fields_of(kind: Any) -> Mapping[str, Any]:
    """The types of an object's fields, by name."""
    models = getattr(kind, "model_fields", None)
    if isinstance(kind, type) and is_dict(models):
        return {name: field.annotation for name, field in models.items()}
    return getattr(kind, "__annotations__", {}) if isinstance(kind, type) else {}


def _read(row: Example, kinds: Mapping[str, Any]) -> Example:
    changed = {
        name: read for name, kind in kinds.items() if name in row and (read := _value(row[name], kind)) != row[name]
    }
    return Example(row.id, {**row.fields, **changed}) if changed else row


def _value(value: Any, kind: Any) -> Any:
    """A value with None for each text in it that spells nothing where the type may be None."""
    if isinstance(value, str):
        return None if may_be_none(kind) and spells_nothing(value) and value.strip() not in _listed(kind) else value
    kinds = get_args(kind) if _is_union(kind) else (kind,)
    if is_list(value):
        items = [get_args(one)[0] for one in kinds if get_origin(one) is list and get_args(one)]
        return [_value(one, items[0] if items else kind) for one in value]  # without one: accepted values
    if is_dict(value):
        of = next((get_args(one)[1] for one in kinds if get_origin(one) is dict and len(get_args(one)) == 2), None)
        known = {name: inner for one in kinds for name, inner in _fields_of(one).items()}
        return {name: _value(one, known.get(name, of)) for name, one in value.items()}
    return value


def _listed(kind: Any) -> tuple[Any, ...]:
    """The values of the Literals in a union."""
    return tuple(v for one in get_args(kind) if get_origin(one) is Literal for v in get_args(one))
