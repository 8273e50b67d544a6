"""Dataset readers: what they read, and how they refuse."""

from __future__ import annotations

import json
import sys
import time

import pytest
from hypothesis import given, settings, strategies as st
from tests.helpers.readers import listed

from workbench.errors import SpecError
from workbench.plugins import plugins
from workbench_readers import gta, json_files, parquet_and_hub, spreadsheets, tables

read_gta = listed(gta.read_gta)
read_json = listed(json_files.read_json)
read_jsonl = listed(json_files.read_jsonl)
read_hf = listed(parquet_and_hub.read_hf)
read_parquet = listed(parquet_and_hub.read_parquet)
read_xlsx = listed(spreadsheets.read_xlsx)
read_csv = listed(tables.read_csv)
read_tsv = listed(tables.read_tsv)


@pytest.fixture
def file(tmp_path):
    def write(content: str | bytes, name: str = "rows.jsonl") -> str:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
        return str(path)

    return write


def refusal(reader, location, options=None) -> SpecError:
    with pytest.raises(SpecError) as caught:
        reader(location, options or {})
    assert caught.value.hint
    return caught.value


def test_all_readers_are_registered():
    table = plugins()
    assert {"jsonl", "ndjson", "json", "csv", "tsv", "tab", "xlsx", "parquet", "hf"} <= set(table.names("readers"))
    assert table.get("readers", "jsonl") is json_files.read_jsonl
    assert all(callable(table.get("readers", name)) for name in ("json", "csv", "tsv", "parquet", "hf"))


def test_jsonl(file):
    rows = read_jsonl(file('\ufeff{"a": 1, "b": {"c": [null, true]}}\r\n\n  {"a": "\u2028x\x85"}\n'), {})
    assert rows == [{"a": 1, "b": {"c": [None, True]}}, {"a": "\u2028x\x85"}]


@pytest.mark.fault("hostile-rows")
def test_odd_characters_are_data(file):
    assert read_jsonl(file(r'{"a": "\ud800\u0000\u001b[31m"}'), {}) == [{"a": "\ud800\0\x1b[31m"}]
    assert read_csv(file("a,b\n\x1b[31m,x\0\u2028y\x0cz\n", "r.csv"), {}) == [{"a": "\x1b[31m", "b": "x\0\u2028y\x0cz"}]


BAD_JSONL = {
    "cut": ('{"a": 1}\n{"a": ', "not JSON", (2, 7)),
    "no object": ('{"a": 1}\n\n[1]\n', "a list", (3, 1)),
    "number": ("1", "a number", (1, 1)),
    "huge integer": ('{"a": ' + "9" * 5000 + "}", "digits", (1, 1)),
    "deep": ("[" * 100_000, "deep", (1, 1)),
    "a key twice": ('{"a": 1}\n{"a": 1, "b": 2, "a": 3}', "'a' occurs twice", (2, 1)),
    "a key twice inside": ('{"a": {"b": 1, "b": 2}}', "'b' occurs twice", (1, 1)),
    "a key twice, once escaped": (r'{"a": 1, "\u0061": 2}', "'a' occurs twice", (1, 1)),
    "latin-1": ('{"a": 1}\n{"ü": "ü'.encode() + b'\xfc"}', "UTF-8", (2, 9)),
}


@pytest.mark.fault("hostile-rows")
@pytest.mark.parametrize("name", BAD_JSONL)
def test_wrong_jsonl_names_line_and_column(file, name):
    content, message, place = BAD_JSONL[name]
    location = file(content)
    error = refusal(read_jsonl, location)
    assert message in error.message and error.file == location
    assert (error.line, error.column) == place


def test_missing_files_name_the_nearest(file, tmp_path):
    file('{"a": 1}', "tickets.jsonl")
    error = refusal(read_jsonl, str(tmp_path / "ticket.jsonl"))
    assert error.hint == "Did you mean 'tickets.jsonl'?"
    assert "folder" in refusal(read_jsonl, str(tmp_path)).message
    assert refusal(read_parquet, str(tmp_path / "absent" / "x.parquet")).message == "there is no such file"


def test_unknown_options_are_refused(file):
    assert "'typs'" in refusal(read_csv, file("a\n1\n", "r.csv"), {"typs": {}}).message
    assert refusal(read_csv, file("a\n1\n", "r.csv"), {"typs": {}}).hint == "Did you mean 'types'?"


def test_json(file):
    assert read_json(file('[{"a": 1}]', "r.json"), {}) == [{"a": 1}]
    nested = file('{"data": {"rows": [{"a": 1}]}}', "n.json")
    assert read_json(nested, {"path": "data.rows"}) == [{"a": 1}]
    assert "an object" in refusal(read_json, nested).message
    assert "'row'" in refusal(read_json, nested, {"path": "data.row"}).message
    assert "row 2" in refusal(read_json, file('[{"a": 1}, 3]', "b.json")).message
    error = refusal(read_json, file('[\n {"a": 1},\n {"a" 2}\n]', "d.json"))
    assert (error.line, error.column) == (3, 7)


def test_csv_cells_stay_texts_unless_told(file):
    location = file('id,price,note\r\n007,1.50,"a ""b"", c\nd"\r\n\r\n8,NaN,\r\n', "r.csv")
    assert read_csv(location, {}) == [
        {"id": "007", "price": "1.50", "note": 'a "b", c\nd'},
        {"id": "8", "price": "NaN", "note": ""},
    ]
    assert read_tsv(file("a\tb\n1\t2,3\n", "r.tsv"), {}) == [{"a": "1", "b": "2,3"}]
    assert read_csv(file("a;b\n1;2,3\n", "s.csv"), {"delimiter": ";"}) == [{"a": "1", "b": "2,3"}]
    typed = read_csv(file('a,b,c\n1,2.5,"[1, 2]"\n', "t.csv"), {"types": {"a": "int", "b": "float", "c": "json"}})
    assert typed == [{"a": 1, "b": 2.5, "c": [1, 2]}]


BAD_CSV = {
    "too many cells": ("a,b\n1,2\n1,2,3\n", {}, "3 cells", 3),
    "too few cells": ("a,b\n1\n", {}, "1 cells", 2),
    "line after a cell of two lines": ('a,b\n"x\ny",2\n1\n', {}, "1 cells", 4),
    "twice in the header": ("a,b,a\n", {}, "'a' occurs twice", 1),
    "open quote": ('a,b\n"x,2\n', {}, "not a table", 2),
    "text after a quote": ('a,b\n"x"y,2\n', {}, "not a table", 2),
    "no number": ("a,b\n1,x\n", {"types": {"b": "float"}}, "'x' in the column 'b'", 2),
    "nan": ("a\nnan\n", {"types": {"a": "float"}}, "not of type float", 2),
    "json nan": ("a\nNaN\n", {"types": {"a": "json"}}, "not of type json", 2),
    "huge integer": ("a\n" + "9" * 5000 + "\n", {"types": {"a": "int"}}, "not of type int", 2),
    "unknown column": ("a\n1\n", {"types": {"b": "int"}}, "'b'", 1),
    "unknown type": ("a\n1\n", {"types": {"a": "number"}}, "'number'", None),
    "delimiter": ("a\n1\n", {"delimiter": ";;"}, "one character", None),
}


@pytest.mark.parametrize("name", BAD_CSV)
def test_wrong_csv(file, name):
    content, options, message, line = BAD_CSV[name]
    error = refusal(read_csv, file(content, "r.csv"), options)
    assert message in error.message and error.line == line


cells = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(cells, cells), min_size=1, max_size=5))
def test_what_csv_writes_is_read_back(tmp_path_factory, table):
    import csv

    path = tmp_path_factory.mktemp("csv") / "r.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, quoting=csv.QUOTE_ALL)
        writer.writerows([("a", "b"), *table])
    blank = " \t\r\n\v\f\u00a0\u3000\ufeff\u200b\u2060"  # a separator of records, as U+001F, is none
    filled = [{"a": a, "b": b} for a, b in table if a.strip(blank) or b.strip(blank)]
    assert (read_csv(str(path), {}) if filled else []) == filled


@pytest.mark.fault("hostile-rows")
def test_a_cell_of_a_megabyte(file):
    assert len(read_csv(file("a\n" + "x" * 1_000_000 + "\n", "r.csv"), {})[0]["a"]) == 1_000_000


def test_100k_rows_take_about_a_second(file):
    row = json.dumps({"text": "some words " * 10, "label": "billing", "score": 0.25})
    location = file("\n".join([row] * 100_000))
    start = time.process_time()
    assert len(read_jsonl(location, {})) == 100_000
    assert time.process_time() - start < 4.0, "0.4 s when nothing else runs"


def parquet_file(tmp_path, columns, name="r.parquet"):
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table(columns), tmp_path / name)
    return str(tmp_path / name)


def test_parquet(tmp_path, file):
    location = parquet_file(tmp_path, {"a": [1, None], "b": [["x"], []]})
    assert read_parquet(location, {}) == [{"a": 1, "b": ["x"]}, {"a": None, "b": []}]
    assert read_parquet(location, {"columns": ["a"]}) == [{"a": 1}, {"a": None}]
    assert refusal(read_parquet, location, {"columns": ["z"]}).hint == "Columns: a, b."
    assert "parquet" in refusal(read_parquet, file("no parquet", "x.parquet")).message


@pytest.mark.parametrize(
    ("reader", "module", "extra"),
    [(read_parquet, "pyarrow", "parquet"), (read_hf, "datasets", "datasets"), (read_xlsx, "openpyxl", "xlsx")],
)
def test_a_missing_extra_is_named(monkeypatch, file, reader, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    assert f"pip install -e './plugins/standard[{extra}]'" in (refusal(reader, file("x")).hint or "")


class FakeDataset:
    """The part of a dataset of `datasets` that is used."""

    def __init__(self, **columns: list[object]):
        self.table = pytest.importorskip("pyarrow").table(columns)
        self.column_names = self.table.column_names
        self.features = self

    def to_dict(self):
        return {name: {"_type": "Value"} for name in self.column_names}

    def select_columns(self, columns):
        return FakeDataset(**{name: self.table[name] for name in columns})

    def with_format(self, name):
        assert name == "arrow"
        return self.table  # whose slices are tables, too


class FakeDatasets:
    """Stands in for `datasets`, which is a large extra: records how it was called."""

    DatasetDict = dict

    def __init__(self):
        self.calls = []

    def load_dataset(self, *args, **options):
        self.calls.append((args, options))
        if args[0] == "owner/absent":
            raise FileNotFoundError("no such dataset")
        return FakeDataset(a=[1], b=[2])

    def load_from_disk(self, place):
        return {"train": FakeDataset(a=[1]), "test": FakeDataset(a=[2])}


def test_hub_ids_take_options_from_the_address(monkeypatch, tmp_path):
    fake = FakeDatasets()
    monkeypatch.setitem(sys.modules, "datasets", fake)
    assert read_hf("owner/name?split=test&config=main", {}) == [{"a": 1, "b": 2}]
    assert fake.calls == [(("owner/name", "main"), {"split": "test", "revision": None})]
    read_hf("owner/name", {"revision": "abc"})
    assert fake.calls[1] == (("owner/name", None), {"split": "train", "revision": "abc"})
    assert read_hf("owner/name", {"columns": ["b"]}) == read_hf("owner/name?columns=b", {}) == [{"b": 2}]
    assert refusal(read_hf, "owner/name?columns=b,c").hint == "Columns: a, b."
    assert "no such dataset" in refusal(read_hf, "owner/absent").message
    assert "'spilt'" in refusal(read_hf, "owner/name?spilt=test").message
    (tmp_path / "dataset_dict.json").touch()
    assert read_hf(f"{tmp_path}?split=test", {}) == [{"a": 2}]
    assert refusal(read_hf, f"{tmp_path}?split=dev").hint == "Splits: train, test."


@pytest.mark.filterwarnings("default")  # the library's own
def test_a_saved_dataset(tmp_path):
    datasets = pytest.importorskip("datasets")
    saved = datasets.DatasetDict({"train": datasets.Dataset.from_list([{"q": "1+1", "a": 2}])})
    saved.save_to_disk(str(tmp_path / "saved"))
    assert read_hf(str(tmp_path / "saved"), {}) == [{"q": "1+1", "a": 2}]
    assert "Splits: train" in (refusal(read_hf, f"{tmp_path / 'saved'}?split=test").hint or "")


@pytest.mark.slow
@pytest.mark.parametrize("twice", ["", "c7"])
def test_a_million_columns_are_read_or_refused_in_seconds(file, twice):
    names = ",".join(f"c{n}" for n in range(1_000_000)) + (f",{twice}" if twice else "")
    cells = ",".join("1" for _ in range(1_000_000 + bool(twice)))
    begun = time.process_time()
    if twice:
        assert "'c7' occurs twice" in refusal(read_csv, file(f"{names}\n{cells}\n", "r.csv")).message
    else:
        assert len(read_csv(file(f"{names}\n{cells}\n", "r.csv"), {})[0]) == 1_000_000
    assert time.process_time() - begun < 30


def test_columns_with_names_of_python_are_data(file):
    names = ("__class__", "__proto__", "", "self", "a.b", "\x1b[31m", "é", "e\u0301")
    row = dict.fromkeys(names, "x")
    assert read_jsonl(file(json.dumps(row) + "\n"), {}) == [row]


GTA = {
    "tools": [
        {
            "name": "OCR",
            "description": "Reads.",
            "inputs": [{"type": "image", "name": "image", "optional": False, "default": None}],
            "outputs": [],
        }
    ],
    "files": [{"type": "image", "path": "image/image_1.jpg", "url": None}],
    "dialogs": [
        {"role": "user", "content": "What stands there?"},
        {
            "role": "assistant",
            "tool_calls": [
                {"type": "function", "function": {"name": "OCR", "arguments": {"image": "image/image_1.jpg"}}}
            ],
            "thought": "Read it.",
        },
        {"role": "tool", "name": "OCR", "content": {"type": "text", "content": "(1, 2, 3, 4) Tea"}},
        {"role": "assistant", "content": "Tea."},
    ],
    "gt_answer": {"whitelist": [["tea"]], "blacklist": None},
}


def test_gta_rows_have_the_steps_of_their_dialog_and_what_is_before_each(file):
    call = {"name": "OCR", "arguments": {"image": "image/image_1.jpg"}}
    drawing = {**GTA, "dialogs": GTA["dialogs"][:1] + GTA["dialogs"][-1:], "gt_answer": None}
    words = {**GTA, "gt_answer": ["It is tea."]}
    text = json.dumps({"0": GTA, "7": drawing, "9": words})
    first, second, third = read_gta(file(text, "dataset.json"), {})
    assert first == {
        "question": "What stands there?",
        "files": ["image/image_1.jpg"],
        "tools": [{"name": "OCR", "description": "Reads.", "inputs": [{"type": "image", "name": "image"}]}],
        "histories": ["none", f"Read it.\ncall: {json.dumps(call)}\nresult: (1, 2, 3, 4) Tea"],
        "steps": [call, {"answer": "Tea."}],
        "gt_answer": {"whitelist": [["tea"]], "blacklist": None},
    }
    assert (second["steps"], second["histories"], second["gt_answer"]) == ([{"answer": "Tea."}], ["none"], {})
    assert third["gt_answer"] == ["It is tea."]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ([GTA], "an object of tasks"),
        ({"3": {key: GTA[key] for key in ("tools", "files", "dialogs")}}, "task 3 is not of GTA's form: .*gt_answer"),
        ({"3": {**GTA, "dialogs": []}}, "task 3 is not of GTA's form"),
        ({"3": {**GTA, "files": ["a.png"]}}, "task 3 is not of GTA's form"),
        ({"3": 4}, "task 3 is not of GTA's form"),
    ],
)
def test_a_file_that_is_not_of_gtas_form_is_refused_by_its_task(file, content, why):
    with pytest.raises(SpecError, match=why):
        read_gta(file(json.dumps(content), "dataset.json"), {})
