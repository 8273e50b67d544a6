"""Clusters: rows that count once in the proof, since their scores hang together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from workbench.hashing import digest
from workbench.task.copies import group_copies, normalised_inputs
from workbench.task.dataset import Example
from workbench.task.groups import find_group_field


@dataclass(frozen=True)
class Clusters:
    """The clusters of the rows of a split.

    Attributes:
        of: by id of a row, a key that is equal for the rows of a cluster.
        guessed: the field that groups the rows, if the file does not say so.
        groups: how many values it has.
        copies: rows that are near copies of an earlier one; example: two of them.
        rows: of the split.
    """

    of: Mapping[str, str] = field(default_factory=dict[str, str])
    guessed: str | None = None
    groups: int = 0
    copies: int = 0
    example: tuple[str, str] = ("", "")
    rows: int = 0

    def warnings(self, others: Sequence[Example]) -> Iterator[str]:
        """What the proof takes for one row although nobody said so. others: the rows of the other splits."""
        if self.copies:
            yield (
                f"{self.copies} of the {self.rows} test rows are near copies of others, e.g. {self.example[1]} of "
                f"{self.example[0]}: near copies count once (data: {{cluster: false}} counts each)"
            )
        if self.guessed is not None:
            text = (
                f"the {self.rows} test rows have {self.groups} values of '{self.guessed}', as turns of conversations "
                f"have: rows with one value count once. Write data: {{cluster: {self.guessed}}} if that is right, "
                "data: {cluster: false} if such rows are independent"
            )
            if any(self.guessed in row for row in others):
                text += f"; split: {{by: {self.guessed}}} keeps rows with one value in one split"
            yield text


def cluster_rows(
    rows: Sequence[Example], named: str | Literal[False] | None, inputs: Sequence[str], target: str | None
) -> Clusters:
    """The clusters of rows.

    Args:
        rows: of one split.
        named: the field that the file names (`data: cluster`). Where it names none, near copies are a cluster, and so
            are rows with one value of a field that groups them. False: only rows with the same inputs.
        inputs, target: the fields that the workflow reads, and the one that the metric compares with.
    """
    if named is False:
        return Clusters()
    if named is not None:
        return Clusters({row.id: f"{named}: {row[named]!r}" for row in rows if named in row})
    roots = group_copies(rows, inputs, target)
    exact = [normalised_inputs(row, inputs) for row in rows]
    near = [place for place, root in enumerate(roots) if exact[place] != exact[root]]
    guessed = find_group_field(rows, {*inputs, *([target] if target is not None else [])})
    values = [row.get(guessed) if guessed is not None else None for row in rows]
    joined = _join(roots, values)
    keys = {root: digest(exact[root] or rows[root].id) for root in {*joined}}
    return Clusters(
        {row.id: keys[root] for row, root in zip(rows, joined, strict=True)},
        guessed,
        len({repr(value) for value in values if value is not None}),
        len(near),
        (rows[roots[near[0]]].id, rows[near[0]].id) if near else ("", ""),
        len(rows),
    )


def _join(roots: Sequence[int], values: Sequence[object]) -> list[int]:
    """The roots with those that share a value made one."""
    first, by_value = {root: root for root in roots}, dict[str, int]()

    def root_of(place: int) -> int:
        while first[place] != place:
            place = first[place]
        return place

    for root, value in zip(roots, values, strict=True):
        if value is not None:
            here, there = root_of(root), root_of(by_value.setdefault(repr(value), root))
            first[max(here, there)] = min(here, there)
    return [root_of(root) for root in roots]
