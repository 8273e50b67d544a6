"""Looks at a part of a run give what the whole gives."""

from __future__ import annotations

import asyncio
from pathlib import Path

from workbench.store import (
    Evaluations,
    ReadOnlyStore,
    ResultRow,
    RunRecord,
    Store,
    add_run,
    find_exact_run,
    find_runs,
    list_run_heads,
)


def stored(path: Path) -> Store:
    """Three runs, one of them removed; the first has two evaluations of three rows."""
    store = Store(path)
    for name in ("first", "second", "gone"):
        add_run(store, run=name, name=name, status="finished", spec="", options="{}", file="x", kind="optimize")
    RunRecord(store, 3).remove()

    async def write() -> None:
        for split in ("val", "test"):
            rows = [
                ResultRow(
                    f"{split}:{n}", n / 2, None, None, None, "{}", f'[{{"node":"{"ab"[n % 2]}"}}]', row_key=f"k{n}"
                )
                for n in range(3)
            ]
            evaluations = Evaluations(store, 1)
            evaluations.begin("c", split, 0)
            for position, row in enumerate(rows):
                evaluations.add_row("c", split, 0, position, row)
            evaluations.end("c", split, 0, n=3, score=0.5, failed=0, complete=True, means="{}")

    asyncio.run(write())
    store.flush()
    return store


def test_heads_are_the_runs_that_are_listed(tmp_path: Path) -> None:
    store = stored(tmp_path / "run.db")
    assert (
        [row["run"] for row in list_run_heads(store)]
        == [row["run"] for row in store.list_runs()]
        == ["second", "first"]
    )
    assert [row["run"] for row in find_runs(store, [1, 2])] == ["second", "first"] and find_runs(store, []) == []
    found = find_exact_run(store, "first")
    assert found is not None and found["id"] == 1
    assert find_exact_run(store, "gone") is None and find_exact_run(store, "firs") is None
    store.close()


def test_rows_are_found_by_split_example_and_trace(tmp_path: Path) -> None:
    store = stored(tmp_path / "run.db")
    evaluations = Evaluations(store, 1)
    whole = evaluations.read_rows("c")
    assert evaluations.read_rows("c", split="test") == [row for row in whole if row["split"] == "test"]
    assert evaluations.read_rows("c", examples=["val:1", "test:2"]) == [
        row for row in whole if row["example"] in ("val:1", "test:2")
    ]
    scores = [(row["example"], row["score"]) for row in evaluations.list_scores("c", "val")]
    assert scores == [(row["example"], row["score"]) for row in whole if row["split"] == "val"]
    assert [row["example"] for row in evaluations.list_scores("c", "val", part='"node":"b"')] == ["val:1"]
    keys = [(row["example"], row["row_key"], row["split"]) for row in evaluations.list_keys("c")]
    assert keys == [(row["example"], row["row_key"], row["split"]) for row in whole]
    assert evaluations.count_rows() == 6 and Evaluations(store, 2).count_rows() == 0
    store.close()


def test_a_look_knows_when_it_is_no_longer_current(tmp_path: Path) -> None:
    stored(tmp_path / "run.db").close()
    look = ReadOnlyStore(tmp_path / "run.db", check=False)
    assert look.is_current()
    writer = Store(tmp_path / "run.db")
    beside = ReadOnlyStore(tmp_path / "run.db", check=False)
    RunRecord(writer, 1).tag(["x"], None)
    assert not look.is_current() and beside.is_current()
    writer.close()
    look.close()
    beside.close()
