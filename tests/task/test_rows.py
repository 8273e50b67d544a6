"""From a file to rows of a task: readers by their suffix, names of fields, ids, and values that nobody can use."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from workbench.cli import cli
from workbench.errors import SpecError
from workbench.run import prepare
from workbench.task import make_examples, read_rows, reader_of

JSONL, CSV = '{"text": "a"}\n', "text\na\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("UPPER.CSV", CSV),
        ("a.Csv", CSV),
        ("a.TSV", CSV),
        ("a.TAB", CSV),
        ("a.tab", CSV),
        ("a.b.JSONL", JSONL),
        ("a.ndjson", JSONL),
        ("a.NDJSON", JSONL),
        ("a.Json", f"[{JSONL}]"),
        ("a.jsonl.gz", gzip.compress(JSONL.encode(), mtime=0)),
        ("a.CSV.GZ", gzip.compress(CSV.encode(), mtime=0)),
    ],
)
def test_a_suffix_in_any_case_has_its_reader_I5(name: str, content: str | bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert read_rows(name, tmp_path, {}) == [{"text": "a"}]


@pytest.mark.parametrize(
    ("place", "reader"), [("hf:a/b.csv", "hf"), ("x.gz", ""), ("x", ""), (".csv", ""), ("C:x.CSV", "csv")]
)
def test_the_reader_of_a_place_I5(place: str, reader: str) -> None:
    assert reader_of(place) == reader


def test_an_unknown_suffix_is_told_with_the_known_ones_I5(tmp_path: Path) -> None:
    (tmp_path / "a.xls").write_text(CSV)
    with pytest.raises(SpecError, match=r"no reader for 'a\.xls'") as caught:
        read_rows("a.xls", tmp_path, {})
    assert caught.value.hint == "Did you mean 'xlsx'?"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"body": {"title": "x"}, "label": "a"}, "row 9 has no field 'body.content'; its body has: title"),
        ({"label": "a"}, "row 9 has no field 'body.content'; it has: label"),
        ({"body": None, "label": "a"}, "row 9 has no field 'body.content'; its body has: None"),
        ({"body": {}, "label": "a"}, "row 9 has no field 'body.content'; its body has: nothing"),
    ],
)
def test_a_row_without_a_field_is_named_I9(row: Any, message: str) -> None:
    rows = [*({"body": {"content": f"{n}"}, "label": "a"} for n in range(8)), row]
    with pytest.raises(SpecError) as caught:
        make_examples(rows, {"text": "body.content"})
    assert caught.value.message == message and caught.value.path == ("data", "fields")


@pytest.mark.parametrize(
    ("ids", "wanted"),
    [
        (["a", "a", "a#2", "a#2"], ["a", "a#3", "a#2", "a#2#2"]),
        (["a#2", "a", "a"], ["a#2", "a", "a#3"]),
        (["a", "a", "a", "a#3", "a#2"], ["a", "a#4", "a#5", "a#3", "a#2"]),
        (["a#2", "a#2", "a", "a", "a#2#2"], ["a#2", "a#2#3", "a", "a#3", "a#2#2"]),
        ([1, "1", True, "True"], ["1", "1#2", "True", "True#2"]),
        (["a", "a"], ["a", "a#2"]),
    ],
)
def test_each_row_has_an_id_of_its_own_I10(ids: Sequence[Any], wanted: list[str]) -> None:
    assert [row.id for row in make_examples([{"id": id_} for id_ in ids])] == wanted


def workflow(folder: Path, rows: str, signature: str = "text -> label", **more: Any) -> Path:
    (folder / "rows.jsonl").write_text(rows)
    data = {"file": "rows.jsonl", "split": {"train": 3, "val": 3, "test": 3}, **more.pop("data", {})}
    tree = {"data": data, "metric": "exact_match(label)", "nodes": {"sort": {"predict": signature}}, **more}
    (folder / "w.yaml").write_text(json.dumps(tree))
    return folder / "w.yaml"


def lines(last: str) -> str:
    texts = "apple brick cloud drift ember flint grove hinge".split()
    first = (f'{{"text": "{t}", "label": "a", "n": 1, "deep": {{"n": 1, "text": "{t}"}}}}\n' for t in texts)
    return "".join(first) + last + "\n"


@pytest.mark.parametrize(
    ("last", "signature", "more", "refused"),
    [
        ('{"text": "i", "label": "a", "n": NaN}', "text -> label", {}, None),
        ('{"text": "i", "label": "a", "n": NaN}', "text, n -> label", {}, "'n' is NaN"),
        ('{"text": "i", "label": "a", "n": NaN}', "x -> label", {"data": {"fields": {"x": "n"}}}, "'n' is NaN"),
        ('{"text": "i", "label": "a", "n": NaN}', "text -> label", {"data": {"cluster": "n"}}, "'n' is NaN"),
        ('{"text": "i", "label": NaN, "n": 1}', "text -> label", {}, "'label' is NaN"),
        (
            '{"text": "i", "label": "a", "n": NaN}',
            "text -> label",
            {"metric": ["exact_match(label)", "exact_match(label, target=n)"]},
            "'n' is NaN",
        ),
        ('{"text": "i", "label": "a", "deep": {"n": NaN, "text": "i"}}', "text -> label", {}, None),
        (
            '{"text": "i", "label": "a", "deep": {"n": NaN, "text": "i"}}',
            "x -> label",
            {"data": {"fields": {"x": "deep.text"}}},
            None,
        ),
        ('{"text": "i", "label": "a", "deep": {"n": NaN}}', "deep -> label", {}, "'deep.n' is NaN"),
        (
            '{"text": "i", "label": "a", "deep": {"n": NaN}}',
            "x -> label",
            {"data": {"fields": {"x": "deep"}, "limit": 8, "seed": 5, "split": {"train": 2, "val": 2, "test": 2}}},
            None,
        ),
    ],
)
def test_a_value_that_is_none_is_refused_only_where_it_is_read_I3(
    last: str, signature: str, more: Any, refused: str | None, tmp_path: Path
) -> None:
    path = workflow(tmp_path, lines(last), signature, **more)
    if refused is None:
        assert prepare(path)[2].dataset.val
        return
    with pytest.raises(SpecError, match=refused) as caught:
        prepare(path)
    assert caught.value.line == 9 and Path(caught.value.file or "").name == "rows.jsonl"


def test_labels_of_which_none_is_allowed_are_told_by_every_command_I2(tmp_path: Path) -> None:
    rows = "".join(f'{{"text": "t{n} {n * n}", "label": {n % 2}}}\n' for n in range(9))
    path = workflow(tmp_path, rows, "text -> label: Literal['billing', 'technical']", lm="bundled/nano")
    told = "no answer can be right in 9 of 9 rows: their 'label' is none of the values that 'label' may have: "
    assert any(warning.startswith(told) for warning in prepare(path)[2].dataset.warnings)
    said = CliRunner().invoke(cli, ["validate", str(path)]).output
    assert said.count("no answer can be right") == 1
    path = workflow(tmp_path, rows.replace('"label": 1', '"label": "billing"'), "text -> label: Literal['billing']")
    assert any("in 5 of 9 rows" in warning for warning in prepare(path)[2].dataset.warnings), "those that none can"
    total = rows.replace('"label": 0', '"label": "billing"').replace('"label": 1', '"label": null')
    path = workflow(tmp_path, total, "text -> label: Literal['billing']")
    assert any("in 4 of 9 rows" in warning for warning in prepare(path)[2].dataset.warnings), (
        "a label that is not there"
    )


def test_a_spreadsheet_with_empty_lines_is_scored_on_its_rows_I1(tmp_path: Path) -> None:
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [("text", "label"), *((f"word {n * n}", "ab"[n % 2]) for n in range(12)), *[("", "")] * 3]
        )
    path = workflow(tmp_path, "", data={"file": "rows.csv", "split": {"train": 4, "val": 4, "test": 4}})
    dataset = prepare(path)[2].dataset
    assert sorted(row["text"] for row in (*dataset.train, *dataset.val, *dataset.test.open()))[0].startswith("word")


@pytest.mark.parametrize("around", ["[]", ('{"a": ', "}")])
@pytest.mark.parametrize("inner", ['"x"', "NaN"])
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json"])
def test_a_row_that_is_nested_too_deeply_is_refused_at_any_depth(
    around: Sequence[str], inner: str, name: str, tmp_path: Path
) -> None:
    def write(depth: int) -> None:
        rows = ['{"text": "a"}', f'{{"text": {around[0] * depth}{inner}{around[1] * depth}}}']
        (tmp_path / name).write_text("\n".join(rows) if name.endswith("l") else f"[{', '.join(rows)}]")

    write(150)
    assert len(read_rows(name, tmp_path, {})) == 2
    for depth in (300, 600, 900, 100_000):
        write(depth)
        with pytest.raises(SpecError, match="nested too deeply") as caught:
            read_rows(name, tmp_path, {})
        assert caught.value.file == str(tmp_path / name)
        assert "row 2" in caught.value.message or caught.value.line == (2 if name == "rows.jsonl" else 1)


@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("a.jsonl", ""),
        ("a.jsonl", "\n \n"),
        ("a.json", "[]"),
        ("a.csv", "text,label\n"),
        ("a.csv", ""),
        ("a.tsv", "\n"),
    ],
)
def test_a_file_without_rows_is_refused_and_among_others_adds_none(name: str, without: str, tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / name).write_text(without)
    with pytest.raises(SpecError, match="there are no rows") as told:
        read_rows(f"rows/{name}", tmp_path, {})
    assert told.value.line == 1 and told.value.hint
    with pytest.raises(SpecError, match="rows/?: there are no rows"):
        read_rows("rows/", tmp_path, {})
    full = {"jsonl": '{"text": "x", "label": "y"}', "json": '[{"text": "x", "label": "y"}]', "csv": "text,label\nx,y"}
    suffix = name.partition(".")[2]
    (tmp_path / "rows" / f"b.{suffix}").write_text(full.get(suffix, "text\tlabel\nx\ty"))
    assert read_rows("rows/", tmp_path, {}) == [{"text": "x", "label": "y"}]


def test_a_parquet_file_without_rows_among_others_adds_none(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for name, texts in [("a", []), ("b", ["x"])]:
        parquet.write_table(pa.table({"text": pa.array(texts, pa.string())}), tmp_path / f"{name}.parquet")
    with pytest.raises(SpecError, match="there are no rows"):
        read_rows("a.parquet", tmp_path, {})
    assert read_rows("*.parquet", tmp_path, {}) == [{"text": "x"}]
