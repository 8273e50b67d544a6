"""Inputs of rows that are files, such as images: found and read before anything is sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.errors import NodeError, SpecError
from workbench.spec import DataSpec
from workbench.task.dataset import Dataset, Example, SealedRows
from workbench.task.rows import data_folder
from workbench.workflow import NodeKind, Workflow

#: The most rows with an unreadable input to list.
_LISTED = 3


def resolve_files(workflow: Workflow, dataset: Dataset, data: DataSpec) -> Dataset:
    """Return the rows with their files in the form that the nodes read. Raises SpecError with the rows and paths of
    files that cannot be read, before any call is paid for."""
    readers = [*file_readers(workflow)]
    if not readers:
        return dataset
    wrong, total = list[str](), 0
    parts = list[tuple[Example, ...]]()
    splits = {"train": dataset.train, "val": dataset.val, "test": tuple(dataset.test.open())}
    for split, rows in splits.items():
        folder = data_folder(data.file or getattr(data, split) or "", workflow.base)
        read, total = list[Example](), total + len(rows)
        for row in rows:
            fields = row.fields
            found, error = resolve_row(readers, fields, folder)
            wrong += [f"{row.handle}: {error}"] if error else []
            read.append(row if found is fields else Example(row.id, found, row.handle))
        parts.append(tuple(read))
    if wrong:
        more = f"; and {len(wrong) - _LISTED} more" if len(wrong) > _LISTED else ""
        raise SpecError(
            f"an input cannot be read in {len(wrong)} of the {total} rows: {'; '.join(wrong[:_LISTED])}{more}",
            hint="A path counts from the folder of the workflow file, or from that of its data inside that folder.",
            path=("data",),
        )
    train, val, test = parts
    return replace(dataset, train=train, val=val, test=SealedRows(test))


def file_readers(workflow: Workflow) -> Iterator[tuple[NodeKind, str]]:
    """Yield (node, input) for each input of the workflow that a node reads as a file."""
    inputs = set(workflow.input_fields)
    for node in workflow.walk():
        yield from ((node, name) for name in node.file_inputs if name in inputs)


def resolve_row(
    readers: Sequence[tuple[NodeKind, str]], row: Mapping[str, Any], folder: Path
) -> tuple[Mapping[str, Any], str]:
    """Return (the row as its nodes read it, an error or "")."""
    changed = dict[str, Any]()
    for node, name in readers:
        if name in row:
            try:
                changed[name] = node.resolve_input(name, row[name], folder)
            except NodeError as error:
                return row, str(error)
    return ({**row, **changed} if any(row[name] != value for name, value in changed.items()) else row), ""
