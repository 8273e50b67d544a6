"""Clusters: rows that count as one in the proof, since their scores depend on each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from workbench.base.hashing import digest
from workbench.task.copies import RowRule, first_of_groups, group_copies
from workbench.task.dataset import Example
from workbench.task.groups import find_continuations, find_group_field, find_groups_of_ids
from workbench.task.tokens import normalised_inputs


@dataclass(frozen=True)
class Clusters:
    """The clusters of the rows of a split.

    Attributes:
        of: by row id, a key that is equal for the rows of a cluster.
        notes: sentences about rows that the proof counts as one although the file does not say so.
        guessed: the field that groups the rows, if the file names none.
    """

    of: Mapping[str, str] = field(default_factory=dict[str, str])
    notes: tuple[str, ...] = ()
    guessed: str | None = None

    def warnings(self, others: Sequence[Example]) -> Iterator[str]:
        """Yield the notes. others: the rows of the other splits."""
        yield from self.notes
        if self.guessed is not None and any(self.guessed in row for row in others):
            field = self.guessed
            yield f"rows with one '{field}' may be in several splits; split: {{by: {field}}} keeps them in one"


def cluster_rows(
    rows: Sequence[Example],
    named: str | Literal[False] | None,
    inputs: Sequence[str],
    target: str | None,
    rule: RowRule | None = None,
) -> Clusters:
    """Find the clusters of rows.

    Args:
        rows: of one split.
        named: the field that the file names (`data: cluster`). None: near copies are a cluster, and so are the turns of
            a conversation, i.e. rows with the same value of a grouping field or with grouping ids, and rows that
            continue others. False: only rows with the same inputs.
        inputs, target: the fields that the workflow reads, and the field that the metric compares with.
        rule: the file's; None: derived from these rows.
    """
    if named is False:
        return Clusters()
    if named is not None:
        of = {row.id: digest(f"{named}: {row[named]!r}") for row in rows if named in row}
        return Clusters(of if len({*of.values()}) < len(of) else {})  # a field that numbers the rows groups none
    roots, later = group_copies(rows, inputs, target, rule), find_continuations(rows, inputs)
    known = {*inputs, *([target] if target is not None else [])}
    guessed = find_group_field(rows, known)
    groups: Sequence[object]
    groups = find_groups_of_ids(rows, known) if guessed is None else [row.get(guessed) for row in rows]
    exact = [normalised_inputs(row, inputs) for row in rows]
    joined = _join(_join(roots, later), groups or [None] * len(rows))
    keys = {root: digest(exact[root] or rows[root].id) for root in {*joined}}
    of = {row.id: keys[root] for row, root in zip(rows, joined, strict=True)}
    near = [(place, root) for place, root in enumerate(roots) if exact[place] != exact[root]]
    further = [(place, root) for place, root in enumerate(later) if roots[place] != roots[root]]
    notes = (
        *_note_pairs(rows, near, "are near copies of others: near copies"),
        *_note_pairs(rows, further, "begin with all of another row, as a later turn of a conversation does: they"),
        *_note_groups(groups, guessed),
    )
    return Clusters(of, notes, guessed)


def _note_pairs(rows: Sequence[Example], pairs: Sequence[tuple[int, int]], what: str) -> Iterator[str]:
    if pairs:
        place, root = pairs[0]
        yield (
            f"{len(pairs)} of the {len(rows)} test rows {what} count once (e.g. {rows[place].handle} with "
            f"{rows[root].handle}); data: {{cluster: false}} counts each"
        )


def _note_groups(groups: Sequence[object], field: str | None) -> Iterator[str]:
    count = len({repr(value) for value in groups if value is not None})
    if field is not None:
        yield (
            f"the {len(groups)} test rows have {count} values of '{field}', as turns of conversations have: rows with "
            f"one value count once. Write data: {{cluster: {field}}} if that is right, data: {{cluster: false}} if "
            "such rows are independent"
        )
    elif count:
        yield (
            f"the ids of the {len(groups)} test rows name {count} groups, e.g. {groups[0]}, as turns of conversations "
            "do: rows of one count once. Write data: {cluster: FIELD} with a field that tells them, or data: {cluster: "
            "false} if such rows are independent"
        )


def _join(roots: Sequence[int], values: Sequence[object]) -> list[int]:
    """Merge the roots of rows that share a value."""
    from networkx.utils import UnionFind  # pyright: ignore[reportMissingTypeStubs]

    groups, by_value = cast(Any, UnionFind(roots)), dict[str, int]()
    for root, value in zip(roots, values, strict=True):
        if value is not None:
            groups.union(root, by_value.setdefault(repr(value), root))
    return first_of_groups(groups, roots)
