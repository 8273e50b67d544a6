"""The columns of some rows: the label, its type and metric, and the inputs for the agent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.errors import SpecError, suggest
from workbench_kit.answers import AnswerType, as_text, guess_type

Row = Mapping[str, Any]

#: Names of the right answer, the likeliest first.
LABELS = (
    *("label", "expected", "expected_output", "expected_answer", "target", "gold", "answer", "category", "class"),
    *("intent", "sentiment", "output", "response", "completion", "result"),
)
#: The metric by the kind of the answer.
_METRICS = {"choice": "exact_match", "number": "numeric", "structure": "json_match", "text": "f1"}


@dataclass(frozen=True)
class Columns:
    """The columns of rows: the one with the right answer, and the others in order.

    found_by: how the label was found. main: of the others, the one with the longest texts. closed: of the others, those
    with few different values, as labels have. is_long: the user named a label with longer texts than all others.
    """

    label: str
    found_by: str
    others: tuple[str, ...]
    main: str
    answers: AnswerType
    closed: tuple[str, ...] = ()
    is_long: bool = False

    @property
    def output(self) -> str:
        """The name of the output."""
        return as_name(self.label)

    @property
    def metric(self) -> str:
        target = "" if self.output == self.label else f", target={self.label!r}"
        return f"{_METRICS[self.answers.kind]}({self.output}{target})"

    def signature(self, inputs: Sequence[str]) -> str:
        kind = f": {self.answers.type}" if self.answers.type else ""
        return f"{', '.join(inputs)} -> {self.output}{kind}"


def as_name(column: str) -> str:
    """Return the name of a field for a column: `Customer text` becomes customer_text."""
    return column if column.isidentifier() else re.sub(r"\W+", "_", column).strip("_").lower() or "input"


def choose_columns(rows: Sequence[Row], named: str | None = None) -> Columns:
    """Choose the label among the columns of some rows. named: by the user. Raises SpecError."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not rows:
        raise SpecError("the rows are empty", hint="Give a file with an input and its right answer in each row.")
    if len(names) < 2:
        raise SpecError(
            f"the rows have one column, {', '.join(names)}, and no right answers",
            hint="Add a column with the right answer, e.g. label, and name it with --label.",
        )
    if named is not None and named not in names:
        raise SpecError(f"the rows have no column '{named}'", hint=suggest(named, names))
    label, found_by = (named, "named by --label") if named else _find_label(names)
    others = tuple(name for name in names if name != label)
    values = {name: [row[name] for row in rows if row.get(name) not in (None, "")] for name in names}
    long = {name: sum(len(as_text(row.get(name, ""))) for row in rows) for name in names}
    main = max(others, key=lambda name: long[name])
    return Columns(
        label=label,
        found_by=found_by,
        others=others,
        main=main,
        answers=guess_type(values[label]),
        closed=tuple(name for name in others if guess_type(values[name]).kind == "choice"),
        is_long=named is not None and long[label] > long[main],
    )


def find_row_in_header(rows: Sequence[Row]) -> str:
    """Return a column name that is also one of its values, as if the first line of a file were a row; "" if none."""
    found = (name for name in rows[0] if sum(row.get(name) == name for row in rows) > 1)
    return next(found, "")


def _find_label(names: Sequence[str]) -> tuple[str, str]:
    known = {re.sub(r"\W+", "_", name.lower()): name for name in names}
    for name in LABELS:
        if name in known:
            return known[name], "the column is named like one"
    return names[-1], "the last column, since none is named like a label (--label NAME says otherwise)"
