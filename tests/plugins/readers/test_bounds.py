"""A small data file takes no gigabytes: what is unpacked of it is counted, for every reader."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import SpecError
from workbench.task import RowDraw, read_rows
from workbench_kit.labels import read_labels
from workbench_traces.read_files import read_turns

MB = b"a" * (1 << 20)


def pack(path: Path, head: bytes, body: bytes, times: int, tail: bytes) -> None:
    with gzip.open(path, "wb", 1) as file:
        file.write(head)
        for _ in range(times):
            file.write(body)
        file.write(tail)


def parquet(path: Path, **columns: Any) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table(columns), path, compression="zstd")


def repeated(text: str, times: int) -> Any:
    """A column with one text in its dictionary."""
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * times), pyarrow.array([text]))


def _zeros(length: int) -> Any:
    """A column of lists of numbers of a byte, which are objects in Python."""
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.array([[0] * length] * 12, pyarrow.list_(pyarrow.int8()))


def book(path: Path, cell: bytes, times: int) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    made = openpyxl.Workbook()
    made.active.append(["text", "label"])
    made.active.append(["HERE", "x"])
    made.save(path.with_name("base.xlsx"))
    with zipfile.ZipFile(path.with_name("base.xlsx")) as base, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name in base.namelist():
            with new.open(name, "w", force_zip64=True) as part:
                before, here, after = base.read(name).partition(b"HERE")
                part.write(before)
                for _ in range(times if here else 0):
                    part.write(cell)
                part.write(after)


BOMBS: dict[str, Callable[[Path, int], object]] = {
    "line.jsonl.gz": lambda path, size: pack(path, b'{"text": "', MB, size, b'", "label": "x"}\n'),
    "value.json.gz": lambda path, size: pack(path, b'[{"text": "', MB, size, b'", "label": "x"}]'),
    "object.json.gz": lambda path, size: pack(path, b'{"rows": [{"text": "', MB, 4 * size, b'"}]}'),
    "cell.csv.gz": lambda path, size: pack(path, b"text,label\n", MB, size, b",x\n"),
    "quote.csv.gz": lambda path, size: pack(path, b'text,label\n"', MB + b"\n", size, b",x\n"),
    "quote.tsv": lambda path, size: path.write_bytes(b'text\tlabel\n"' + (MB + b"\n") * size),
    "dictionary.parquet": lambda path, size: parquet(path, text=repeated("a" * (size << 19), 10)),
    "list.parquet": lambda path, size: parquet(path, text=[["a" * (30 << 20)]] * 12),
    "numbers.parquet": lambda path, size: parquet(path, text=_zeros(size << 15)),
    "cell.xlsx": lambda path, size: book(path, MB, size),
}


@pytest.mark.parametrize("names", [["line.jsonl.gz"], pytest.param([*BOMBS], marks=pytest.mark.slow)])
def test_a_bomb_is_refused_with_its_name_and_the_bound_security_6(
    names: list[str], tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for name in names:
        with subtests.test(name=name):
            BOMBS[name](tmp_path / name, 70)
            with pytest.raises(SpecError, match=r"larger than \d+ MB|more than \d+ MB") as caught:
                read_rows(name, tmp_path, {})
            assert caught.value.file == str(tmp_path / name) and caught.value.hint


def test_labels_and_traces_count_what_they_unpack_security_6(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.base.data_files.MAX_FILE", 1 << 20)
    monkeypatch.setattr("workbench_traces.read_files.MAX_FILE", 1 << 20)
    pack(tmp_path / "a.jsonl.gz", b'{"x": "', MB, 2, b'"}\n')
    with pytest.raises(SpecError, match="larger than 1 MB"):
        read_labels(tmp_path / "a.jsonl.gz")
    with pytest.raises(SpecError, match="larger than 1 MB"):
        read_turns([tmp_path / "a.jsonl.gz"])


_MEASURE = """
import sys
from pathlib import Path
from workbench.errors import SpecError
from workbench.task import RowDraw, read_rows
try:
    read_rows(sys.argv[1], Path(), {}, RowDraw(spare=24))
except SpecError:
    pass
# Not ru_maxrss, which begins with that of the process that started this one.
print(next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.long
@pytest.mark.slow
def test_a_bomb_of_gigabytes_takes_megabytes_security_6(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for name, make in BOMBS.items():
        with subtests.test(name=name):
            make(tmp_path / name, 400)
            command = [sys.executable, "-P", "-c", _MEASURE, str(tmp_path / name)]
            peak = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            assert peak < 1200


def test_of_millions_of_rows_those_are_read_that_the_split_takes_security_6(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet(tmp_path / "r.parquet", n=pyarrow.array(range(1_200_000), pyarrow.int32()))
    rows = read_rows("r.parquet", tmp_path, {}, RowDraw(spare=24))
    assert len(rows) == 24 and [row["n"] for row in rows] == sorted(row["n"] for row in rows)
    assert max(row["n"] for row in rows) > 600_000, "not those at the beginning"


def test_a_larger_draw_holds_a_smaller_one_whatever_the_reader_C15(tmp_path: Path) -> None:
    parquet(tmp_path / "r.parquet", n=[*range(300)])
    (tmp_path / "r.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(300)))
    (tmp_path / "r.json").write_text(json.dumps([{"n": n} for n in range(300)]))
    for seed in (0, 1):
        drawn = [
            [
                {row["n"] for row in read_rows(name, tmp_path, {}, RowDraw(count, seed=seed))}
                for count in (1, 10, 250, 999)
            ]
            for name in ("r.parquet", "r.jsonl", "r.json")
        ]
        assert drawn[0] == drawn[1] == drawn[2]
        assert [len(rows) for rows in drawn[0]] == [1, 10, 250, 300]
        assert drawn[0][0] < drawn[0][1] < drawn[0][2] < drawn[0][3]


def test_narrow_numbers_are_the_shortest_decimal_at_any_depth_I11(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    single, half = pyarrow.float32(), pyarrow.float16()
    inner = pyarrow.struct({"b": single})
    wanted = [n / 10 for n in range(1, 13)] + [1e-7, 16777216.0, 331002656.0, -123456792.0, 3.4e38, 123.456]
    columns = {
        "one": pyarrow.array(wanted, single),
        "list": pyarrow.array([[one, None] for one in wanted], pyarrow.list_(single)),
        "struct": pyarrow.array([{"a": [{"b": one}]} for one in wanted], pyarrow.struct({"a": pyarrow.list_(inner)})),
        "fixed": pyarrow.array([[one, one] for one in wanted], pyarrow.list_(single, 2)),
        "double": pyarrow.array([0.1 + 0.2] * len(wanted), pyarrow.float64()),
        "half": pyarrow.array([0.1, 0.2, 65504.0, None, *[1.0] * (len(wanted) - 4)], half),
    }
    parquet(tmp_path / "r.parquet", **columns)
    rows = read_rows("r.parquet", tmp_path, {})
    assert [row["one"] for row in rows] == wanted
    assert [row["list"] for row in rows] == [[one, None] for one in wanted]
    assert [row["struct"]["a"][0]["b"] for row in rows] == wanted == [row["fixed"][1] for row in rows]
    assert rows[0]["double"] == 0.1 + 0.2 and [row["half"] for row in rows[:4]] == [0.1, 0.2, 65504.0, None]


def test_rows_beyond_the_room_are_refused_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.task.drawn_rows.MIN_HELD", 1 << 20)
    monkeypatch.setattr("workbench.task.drawn_rows.MAX_TIMES", 1)
    (tmp_path / "r.jsonl").write_text('{"text": "a", "label": "b"}\n' * 10_000)
    with pytest.raises(SpecError, match="more than 1 MB of memory") as caught:
        read_rows("r.jsonl", tmp_path, {})
    assert "limit" in (caught.value.hint or "")
    assert len(read_rows("r.jsonl", tmp_path, {}, RowDraw(100))) == 100
    assert len(read_rows("r.jsonl", tmp_path, {}, RowDraw(spare=100))) == 100


def test_a_folder_of_shards_is_one_data_set_I13(tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    shards.mkdir()
    for number in (10, 2, 1):
        parquet(shards / f"train-{number}-of-00011.parquet", n=[number])
        (tmp_path / f"rows-{number}.jsonl").write_text(f'{{"n": {number}}}\n')
    parquet(shards / "test-0.parquet", n=[99])
    (shards / "README.md").write_text("A data set.")
    (shards / "dataset_infos.json").write_text("{}")
    wanted = [{"n": 1}, {"n": 2}, {"n": 10}]
    assert read_rows("shards", tmp_path, {}) == [{"n": 99}, *wanted]
    assert read_rows("shards/train-*.parquet", tmp_path, {}) == wanted
    assert read_rows("parquet:shards/train-*.parquet", tmp_path, {}) == wanted
    assert read_rows("hf:shards", tmp_path, {}) == wanted
    assert read_rows("hf:shards?split=test", tmp_path, {}) == [{"n": 99}]
    assert read_rows("rows-*.jsonl", tmp_path, {}) == wanted
    with pytest.raises(SpecError, match=r"several kinds: 3 of \.jsonl, 4 of \.parquet"):
        read_rows(".", tmp_path, {})
    (tmp_path / "none").mkdir()
    for place in ("none", "none/*.csv", "hf:none"):
        with pytest.raises(SpecError, match="contains no files that a reader knows"):
            read_rows(place, tmp_path, {})
