"""`data: {where: ...}` leaves rows out, and the warning about labels says which rows and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.helpers.messy import mails, rows_of

from workbench.cli import cli
from workbench.errors import SpecError
from workbench.run import prepare

ALL = {"train": 0.3, "val": 0.3, "test": 0.4}


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ({"Class": "damage"}, 27),
        ({"Class": {"one_of": ["billing", "damage"]}}, 29),
        ({"Class": {"one_of": ["billing", "damage"]}, "Body": {"matches": r"\s*\S[\s\S]*"}}, 28),
        ({"topic": "damage"}, 27),  # the new name of a column
        ({"Body": {"max_length": 12}}, 2),
    ],
)
def test_rows_that_do_not_meet_the_conditions_are_left_out_before_the_split(
    where: dict[str, Any], kept: int, tmp_path: Path
) -> None:
    split = ALL if kept > 3 else {"train": 0, "val": 1, "test": 1}
    task = prepare(mails(tmp_path, where=where, fields={"topic": "Class"}, split=split))[2]
    rows = rows_of(task)
    assert task.dataset.left_out == 30 - kept and len(rows) in (kept, kept - 1, kept - 2)
    assert all(row["Class"] in ("billing", "damage") for row in rows) or kept == 2


def test_a_limit_counts_the_rows_that_are_kept(tmp_path: Path) -> None:
    split = {"train": 1, "val": 1, "test": 1}
    rows = rows_of(prepare(mails(tmp_path, where={"Class": "damage"}, limit=3, split=split))[2])
    assert len(rows) == 3 and {row["Class"] for row in rows} == {"damage"}


@pytest.mark.parametrize(
    ("where", "message", "hint"),
    [
        ({"Clas": "damage"}, "no row has the field 'Clas'", "Did you mean 'Class'?"),
        ({"Class": "other"}, "no row of 30 meets the conditions", "Cells of a CSV file are text"),
        ({"Class": {}}, "a condition needs one of one_of", ""),
        ({"Class": {"matches": "("}}, "is not a regular expression", ""),
    ],
)
def test_conditions_that_keep_nothing_are_refused(
    where: dict[str, Any], message: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        prepare(mails(tmp_path, where=where))
    assert hint in str(caught.value) and caught.value.line is not None


def test_validate_counts_them_and_its_warnings_can_be_pasted(tmp_path: Path) -> None:
    split = {"train": 8, "val": 8, "test": 14}
    said = CliRunner().invoke(cli, ["validate", str(mails(tmp_path, split=split))]).output
    assert (
        "no answer can be right in 1 of 30 rows: their 'Class' is none of the values that 'Class' may have: "
        "'billling' in mails.csv:8 \"where is it\". Correct them, or leave them out: "
        "data: {where: {Class: {one_of: ["
    ) in said
    pasted = dict[str, Any]()
    for line in said.splitlines():
        if "{where: " in line:
            pasted |= yaml.safe_load(line[line.index("data: {where") :])["data"]["where"]
    assert set(pasted) == {"Class", "Body"} and set(pasted["Class"]["one_of"]) == {"billing", "damage"}
    said = CliRunner().invoke(cli, ["validate", str(mails(tmp_path, where=pasted, split=ALL))]).output
    assert "; 2 left out by data: {where: ...}" in said and "leave them out" not in said


def test_rows_left_out_change_no_key_of_the_others(tmp_path: Path) -> None:
    ids = {row.id for row in rows_of(prepare(mails(tmp_path, split={"train": 8, "val": 8, "test": 14}))[2])}
    rows = rows_of(prepare(mails(tmp_path, where={"Class": "damage"}, split={"train": 8, "val": 8, "test": 11}))[2])
    assert len(rows) == 27 and {row.id for row in rows} <= ids
