"""What parquet files and a hub's datasets hold besides texts and numbers, as JSON."""

from __future__ import annotations

import datetime
import json
import math
import uuid
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy
import pytest
from tests.helpers.readers import listed

from workbench.errors import SpecError
from workbench_readers import arrow_rows, parquet_and_hub
from workbench_readers.values import as_json

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
PNG = b"\x89PNG\r\n\x1a\n\xffIEND"
URI = "data:image/png;base64,iVBORw0KGgr/SUVORA=="
LABELS = {"_type": "ClassLabel", "names": ["billing", "technical"]}

read_hf, read_parquet = listed(parquet_and_hub.read_hf), listed(parquet_and_hub.read_parquet)


def write(folder: Path, columns: Mapping[str, Any], features: Any = None) -> str:
    table = pyarrow.table(dict(columns))
    if features is not None:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    parquet.write_table(table, folder / "r.parquet")
    return str(folder / "r.parquet")


def never(field: str, value: Any, problem: str) -> None:
    raise AssertionError(f"{field}: {value!r} {problem}")


NOON = datetime.datetime(2024, 1, 5, 12)


def test_every_value_is_json_also_inside_others_I4(subtests: pytest.Subtests) -> None:
    for value, wanted in [
        (NOON, "2024-01-05 12:00:00"),
        (datetime.date(2024, 1, 5), "2024-01-05"),
        (datetime.time(12), "12:00:00"),
        (datetime.timedelta(1), "1 day, 0:00:00"),
        (Decimal("12345678901234567890"), 12345678901234567890),
        (Decimal("1.50"), 1.5),
        (Decimal("0.1234567890123456789"), "0.1234567890123456789"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"text", "text"),
        (PNG, URI),
        (numpy.int64(3), 3),
        (numpy.bool_(True), True),
        (numpy.float32(0.5), 0.5),
        (numpy.array([[1, 2]]), [[1, 2]]),
        ([("k", NOON), ("l", None)], {"k": "2024-01-05 12:00:00", "l": None}),
        ({1: [NOON]}, {"1": ["2024-01-05 12:00:00"]}),
    ]:
        with subtests.test(value=value):
            shapes = [
                (value, wanted),
                ([value], [wanted]),
                ({"a": [value]}, {"a": [wanted]}),
                ([{"a": value}], [{"a": wanted}]),
            ]
            for given, expected in shapes:
                assert as_json(given, never) == expected
                assert json.loads(json.dumps(as_json(given, never))) == expected


def test_a_row_is_as_large_as_its_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as its longest list times its widest one; and a text counts as often as it occurs in it."""
    monkeypatch.setattr(arrow_rows, "MAX_ROW", 64 << 10)
    small, long = pyarrow.uint8(), "x" * 1_000
    for column in (
        pyarrow.array([[[1] * 1000] + [[1]] * 1000] * 3, pyarrow.list_(pyarrow.list_(small))),
        pyarrow.array([[1.5] * 1900] * 3, pyarrow.list_(pyarrow.float32())),
        pyarrow.array([[1] * 8000] * 3, pyarrow.list_(small)),
        pyarrow.array([{"a": [{"b": long}] * 60}] * 3),
    ):
        assert len([*read_parquet(write(tmp_path, {"a": column}), {})]) == 3
    for column in (
        pyarrow.array([[1] * 2100] * 3),
        pyarrow.array([[1.5] * 2100] * 3, pyarrow.list_(pyarrow.float32())),
        pyarrow.array([[1] * 8300] * 3, pyarrow.list_(small)),
        pyarrow.array([[(str(n), n) for n in range(1100)]] * 3, pyarrow.map_(pyarrow.string(), pyarrow.int64())),
        pyarrow.array([{"a": [{"b": long}] * 70}] * 3),
        pyarrow.array([b"x" * 66_000] * 3, pyarrow.binary(66_000)),
    ):
        with pytest.raises(SpecError, match="row 1, most of it in the column 'a'") as refused:
            [*read_parquet(write(tmp_path, {"b": ["x"] * 3, "a": column}), {})]
        assert "columns" in str(refused.value.hint)


def test_times_of_parquet_are_texts_also_in_lists_structs_and_maps_I4(tmp_path: Path) -> None:
    stamp = pyarrow.timestamp("us")
    row = read_parquet(
        write(
            tmp_path,
            {
                "one": pyarrow.array([NOON], stamp),
                "list": pyarrow.array([[NOON, None]], pyarrow.list_(stamp)),
                "struct": pyarrow.array([{"at": NOON}], pyarrow.struct({"at": stamp})),
                "map": pyarrow.array([[("k", NOON)]], pyarrow.map_(pyarrow.string(), stamp)),
                "price": pyarrow.array([[Decimal("1.50")]], pyarrow.list_(pyarrow.decimal128(6, 2))),
                "late": pyarrow.array([316_514_000_000_000], pyarrow.timestamp("ms")),
            },
        ),
        {},
    )[0]
    noon = "2024-01-05 12:00:00"
    assert row.pop("late").startswith("11999-12-06"), "a year that Python's times have no room for"
    assert row == {"one": noon, "list": [noon, None], "struct": {"at": noon}, "map": {"k": noon}, "price": [1.5]}


def test_what_is_no_number_is_null_and_noted_I3(tmp_path: Path) -> None:
    columns = {"a": [1.0, math.nan], "b": [[math.inf], []], "c": [{"d": 1.0}, {"d": math.nan}], "e": [b"\xff", b"x"]}
    rows: Any = read_parquet(write(tmp_path, columns), {})
    assert rows == [
        {"a": 1.0, "b": [None], "c": {"d": 1.0}, "e": None},
        {"a": None, "b": [], "c": {"d": None}, "e": "x"},
    ]
    assert [{name: error.message for name, error in row.holes.items()} for row in rows] == [
        {
            "b": "the column 'b' of row 1 is not a finite number",
            "e": "the column 'e' of row 1 is neither a text nor an image",
        },
        {
            "a": "the column 'a' of row 2 is not a finite number",
            "c.d": "the column 'c.d' of row 2 is not a finite number",
        },
    ]


def test_features_of_a_hub_say_what_a_value_is_I2(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, (feature, value, wanted) in enumerate(
        [
            (LABELS, 1, "technical"),
            (LABELS, None, None),
            (LABELS, "billing", "billing"),
            ({"_type": "List", "feature": LABELS}, [1, 0], ["technical", "billing"]),
            ({"_type": "Sequence", "feature": LABELS, "length": -1}, [1, None], ["technical", None]),
            ([LABELS], [0], ["billing"]),
            ({"x": LABELS}, {"x": 0, "y": 0}, {"x": "billing", "y": 0}),
            ([{"x": LABELS}], [{"x": 0}], [{"x": "billing"}]),
            ({"_type": "Sequence", "feature": {"x": LABELS}}, {"x": [0, 1]}, {"x": ["billing", "technical"]}),
            ({"_type": "List", "feature": {"_type": "List", "feature": LABELS}}, [[0]], [["billing"]]),
            ({"_type": "Image"}, {"bytes": PNG, "path": None}, URI),
            ({"_type": "Image"}, {"bytes": None, "path": "a.png"}, "a.png"),
            ({"_type": "List", "feature": {"_type": "Image"}}, [{"bytes": PNG, "path": "a"}], [URI]),
            ({"_type": "Translation", "languages": ["de", "en"]}, {"de": "x", "en": "y"}, {"de": "x", "en": "y"}),
            ({"_type": "Value", "dtype": "int64"}, 1, 1),
            ({"_type": "Json"}, '{"a": [1]}', {"a": [1]}),
            ({"_type": "ClassLabel"}, 1, 1),
            ("odd", 1, 1),
        ]
    ):
        with subtests.test(feature=feature):
            folder = tmp_path / str(number)
            folder.mkdir()
            assert as_json(value, never, "f", feature) == wanted


def test_a_parquet_file_of_a_hub_has_its_labels_names_I2(tmp_path: Path) -> None:
    rows: Any = read_parquet(write(tmp_path, {"label": [1, -1], "n": [1, 1]}, {"label": LABELS}), {})
    assert rows == [{"label": "technical", "n": 1}, {"label": None, "n": 1}]
    assert "has no label: -1" in rows[1].holes["label"].message


@pytest.mark.parametrize("metadata", [b"{", b"[]", b'{"info": null}', b'{"info": {"features": []}}'])
def test_metadata_of_another_form_say_nothing_I2(metadata: bytes, tmp_path: Path) -> None:
    table = pyarrow.table({"label": [1]}).replace_schema_metadata({b"huggingface": metadata})
    parquet.write_table(table, tmp_path / "r.parquet")
    assert read_parquet(str(tmp_path / "r.parquet"), {}) == [{"label": 1}]


@pytest.mark.filterwarnings("default")  # the library's own
def test_a_saved_dataset_has_names_texts_and_no_decoded_pictures_I2_I4(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    names = datasets.ClassLabel(names=["billing", "technical"])
    features = datasets.Features(
        {
            "label": names,
            "labels": datasets.Sequence(names),
            "at": datasets.Sequence(datasets.Value("timestamp[s]")),
            "picture": datasets.Image(),
            "grid": datasets.Array2D((1, 2), "int32"),
        }
    )
    picture = {"bytes": PNG, "path": None}
    row = {"label": 1, "labels": [0, 1], "at": [NOON], "picture": picture, "grid": [[1, 2]]}
    saved = datasets.Dataset.from_list([row, row], features=features).select([1])
    saved.set_format("numpy")
    saved.save_to_disk(str(tmp_path / "saved"))
    noon = "2024-01-05 12:00:00"
    wanted = {
        "label": "technical",
        "labels": ["billing", "technical"],
        "at": [noon],
        "picture": URI,
        "grid": [[1, 2]],
    }
    assert read_hf(str(tmp_path / "saved"), {}) == [wanted]
    assert read_hf(f"{tmp_path}/saved?columns=label", {}) == [{"label": "technical"}]
    with pytest.raises(SpecError, match="there is no column 'lable'"):
        read_hf(str(tmp_path / "saved"), {"columns": ["lable"]})
