"""Rows as people call them: by file and line with the first words, or by a column of theirs."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.helpers.messy import MAILS, mails, rows_of

from workbench.cli import cli
from workbench.errors import SpecError, StoreError
from workbench.evaluation import failed_rows
from workbench.run import prepare
from workbench.store import ReadOnlyStore, read_report
from workbench.task import Example, find_row, read_rows


def places(rows: list[Any]) -> list[str]:
    return [row.place for row in rows]


@pytest.mark.parametrize(
    ("name", "content", "lines"),
    [
        ("a.csv", MAILS, [2, 4, 7, 8]),
        ("a.csv", "sep=;\nBody;Class\n\nx;y\n", [4]),
        ("a.jsonl", '{"a": 1}\n\n{"a": NaN}\n', [1, 3]),
        ("a.json", '[\n {"a": 1},\n {"a": NaN,\n  "b": 2},\n {"a": 3}]', [2, 3, 5]),
        ("a.json", '[{"a": 1}, {"a": 2}, {"a": 3}]', [1, 2, 3]),  # one line: the number of the row
    ],
)
def test_a_row_is_placed_where_it_begins_in_its_file(name: str, content: str, lines: list[int], tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    assert places(read_rows(name, tmp_path, {})) == [f"{name}:{line}" for line in lines]


def test_tables_without_lines_are_numbered_also_when_few_rows_are_drawn(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    from workbench.task import RowDraw

    (tmp_path / "shards").mkdir()
    for name, first in (("a", 0), ("b", 10)):
        pandas.DataFrame({"n": range(first, first + 10)}).to_parquet(tmp_path / "shards" / f"{name}.parquet")
    rows = read_rows("shards", tmp_path, {}, RowDraw(5))
    assert places(rows) == [f"shards/{'ab'[row['n'] // 10]}.parquet:{row['n'] % 10 + 1}" for row in rows]


def test_splits_of_a_file_keep_its_lines_and_quote_the_first_words(tmp_path: Path) -> None:
    rows = rows_of(prepare(mails(tmp_path, split={"train": 10, "val": 10, "test": 10}))[2])
    handles = {row["Ticket"] + row["Class"]: row.handle for row in rows}
    assert handles["T-1billing"] == 'mails.csv:2 "HELLO!!! You took 80 EUR from my..."'
    assert handles["T-3billing"] == "mails.csv:7"
    assert handles["T-9damage"] == 'mails.csv:14 "plain mail about 81 things"'


def test_a_column_names_rows_unless_its_value_is_repeated_or_empty(tmp_path: Path) -> None:
    rows = rows_of(prepare(mails(tmp_path, id="Ticket", split={"train": 10, "val": 10, "test": 10}))[2])
    handles = {row["Ticket"] + row["Class"]: row.handle for row in rows}
    assert handles["T-1billing"] == "T-1" and handles["T-3billing"] == "mails.csv:7"
    with pytest.raises(SpecError, match="no row has the field 'Tickets'") as caught:
        prepare(mails(tmp_path, id="Tickets"))
    assert caught.value.hint == "Did you mean 'Ticket'?" and caught.value.line is not None


def test_a_handle_is_no_part_of_a_row(tmp_path: Path) -> None:
    plain, named = (prepare(mails(tmp_path, **more))[2] for more in ({}, {"id": "Ticket"}))
    assert plain.data_hash == named.data_hash
    one, other = plain.dataset.val[0], named.dataset.val[0]
    assert one == other and hash(one) == hash(other) and one.id == other.id and one.handle != other.handle
    assert pickle.loads(pickle.dumps(one)).handle == one.handle
    assert Example("7", {}).handle == "7"


HANDLES = {"train:a1b2": 'a.csv:2 "x"', "val:a1b3": 'a.csv:20 "y"', "c4": "T-7"}


@pytest.mark.parametrize(
    ("asked", "found"),
    [("a.csv:2", "train:a1b2"), ('a.csv:20 "y"', "val:a1b3"), ("T-7", "c4"), ("c4", "c4"), ("a1b3", "val:a1b3"),
     ("tr", "train:a1b2")],
)  # fmt: skip
def test_a_row_is_found_by_its_handle_or_its_id(asked: str, found: str) -> None:
    assert find_row(asked, HANDLES, "run r1") == found


def test_a_row_that_is_not_there_is_refused_with_one_that_is() -> None:
    with pytest.raises(StoreError, match=r'run r1 has no row \'a\.csv:3\'.*3 rows, e\.g\. a\.csv:2 "x"'):
        find_row("a.csv:3", HANDLES, "run r1")


def test_commands_and_junit_call_rows_by_their_handles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = mails(tmp_path)

    def said(*arguments: str) -> str:
        found = CliRunner().invoke(cli, [*arguments], catch_exceptions=False)
        return found.output

    assert "the input 'Body' is empty in 1 of 26 rows: mails.csv:7." in said("validate", str(path))
    said("eval", str(path), "--split", "all", "--junit", "j.xml", "-q")
    assert 'name="mails.csv:14 &quot;plain mail about 81 things&quot;"' in (tmp_path / "j.xml").read_text()
    shown = said("show", "last", "--row", "mails.csv:14")
    assert shown.startswith('row mails.csv:14 "plain mail about 81 things" of ')
    assert 'mails.csv:14 "plain' in said("show", "last", "--failures")
    with ReadOnlyStore("workbench.db") as store:
        row = store.find_run("last")
        one = failed_rows(store, row, read_report(row))[0]
        assert len(one["example"]) == 16 and one["handle"].startswith("mails.csv:"), "the key stays in JSON"
        assert said("show", "last", "--row", one["example"]).startswith(f"row {one['handle']} of")


def test_runs_of_before_call_rows_by_their_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.store import Store

    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(cli, ["eval", str(mails(tmp_path)), "-q"], catch_exceptions=False)
    with Store("workbench.db") as store:
        store.execute("delete from events where kind = 'rows_named'")
        row = store.find_run("last")
        found = failed_rows(store, row, read_report(row))
    assert found and all(one["handle"] == one["example"] for one in found)
