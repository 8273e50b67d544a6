"""How rows are cut into train, val and test: no row twice, none lost, the seed decides; and what val shares is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.helpers.planted import plant

from workbench.errors import SpecError
from workbench.run import prepare
from workbench.task.dataset import make_examples, split_examples, split_groups


@given(sizes=st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), more=st.integers(0, 5))
def test_no_row_is_in_two_splits(sizes: tuple[int, int, int], more: int) -> None:
    rows = make_examples([{"text": i} for i in range(sum(sizes) + more)])
    parts = split_examples(rows, sizes, seed=0)
    assert tuple(map(len, parts)) == sizes
    names = [row.id for part in parts for row in part]
    assert len(set(names)) == len(names)


def test_the_seed_decides_who_is_where() -> None:
    rows = make_examples([{"text": i} for i in range(30)])
    first, again, other = (split_examples(rows, (10, 10, 10), seed) for seed in (0, 0, 1))
    assert first == again != other


def test_equal_rows_keep_an_identity_each() -> None:
    assert len({row.id for row in make_examples([{"text": "a"}] * 3 + [{"text": "b"}, {"id": 7}, {"id": "7"}])}) == 6


def planted(folder: Path, rows: int, **data: Any) -> Any:
    """The task of a file whose rows are all in one file, with these settings of `data`."""
    plant(folder, lambda r: 0.5, {"random": {"trials": 1}}, calls=400)
    lines = [{"text": f"row {i} topic{i} word{i}: a a-thing", "label": "a"} for i in range(rows)]
    (folder / "all.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    spec = json.loads((folder / "workflow.yaml").read_text())
    spec["data"] = {"file": "all.jsonl", **data}
    (folder / "workflow.yaml").write_text(json.dumps(spec))
    return prepare(folder / "workflow.yaml")[2].dataset


def test_without_a_split_each_row_is_used(tmp_path: Path) -> None:
    found = planted(tmp_path, 32)
    assert (len(found.train), len(found.val), len(found.test)) == (10, 10, 12)


@pytest.mark.parametrize(
    ("split", "words"),
    [
        ({"train": 20, "val": 10, "test": 10}, "the split needs 40 rows, and the file has 32"),
        ({"train": 0.5, "val": 0.5, "test": 0.5}, "the shares add up to 1.5"),
        ({"train": 0.5, "val": 0.01, "test": 0.4}, "val and test need at least one row each"),
    ],
)
def test_a_split_that_cannot_be_is_refused(split: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=words):
        planted(tmp_path, 32, split=split)


@pytest.mark.parametrize(
    ("data", "words", "hint"),
    [
        ({"where": {"text": {"matches": ".*topic[12] .*"}}}, "2 of the file's 32 meet `where`", "or correct `where`"),
        ({"limit": 2}, "`limit` keeps 2", "or raise `limit`"),
        ({"limit": 2, "where": {"text": {"matches": ".*topic.*"}}}, "`limit` keeps 2", "or raise `limit`"),
    ],
)
def test_what_leaves_too_few_rows_for_a_split_is_named(
    data: dict[str, Any], words: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=f"the split needs 40 rows, and {words}") as caught:
        planted(tmp_path, 32, split={"train": 20, "val": 10, "test": 10}, **data)
    assert hint in str(caught.value.hint)
    with pytest.raises(SpecError, match=f"three splits need at least 3 rows, and {words}"):
        planted(tmp_path, 32, **data)


def test_what_val_shares_with_train_or_test_is_told(tmp_path: Path) -> None:
    """A test row that val has is left out of the test: val chose the winner."""
    plant(tmp_path, lambda r: 0.5, {"random": {"trials": 1}}, calls=400)
    train, val, test = (
        [json.loads(line) for line in (tmp_path / f"{split}.jsonl").read_text().splitlines()]
        for split in ("train", "val", "test")
    )
    (tmp_path / "val.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*val, train[0], train[1]]))
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*test, val[0]]))
    found = prepare(tmp_path / "workflow.yaml")[2].dataset
    told = "\n".join(found.warnings)
    assert f"2 of the {len(val) + 2} val rows have the same inputs as a train row" in told
    assert f"1 of the {len(test) + 1} test rows have the same inputs as a train or val row" in told
    assert "of the val row" in told and len(found.test) == len(test)


@given(
    groups=st.lists(st.integers(0, 12), min_size=1, max_size=60),
    sizes=st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(1, 9)),
    seed=st.integers(0, 3),
)
def test_no_group_is_in_two_splits(groups: list[int], sizes: tuple[int, int, int], seed: int) -> None:
    rows = make_examples([{"text": i, "user": {"name": user}} for i, user in enumerate(groups)])
    parts = split_groups(rows, sizes, seed, "user.name")
    users = [{row["user.name"] for row in part} for part in parts]
    assert not (users[0] & users[1] or users[0] & users[2] or users[1] & users[2])
    names = [row.id for part in parts for row in part]
    assert len(set(names)) == len(names)
    for part, used, size in zip(parts, users, sizes, strict=True):  # no group goes to a split that was full
        assert len(part) < size + max((groups.count(user) for user in used), default=1)


def test_groups_of_one_row_give_the_sizes_asked_for() -> None:
    rows = make_examples([{"text": i, "user": i % 7 or None} for i in range(40)])
    alone = split_groups(make_examples([{"text": i} for i in range(40)]), (10, 10, 20), 0, "user")
    assert tuple(map(len, alone)) == (10, 10, 20)
    assert sum(map(len, split_groups(rows, (10, 10, 20), 0, "user"))) == 40


def test_a_file_is_split_by_a_field(tmp_path: Path) -> None:
    split = {"train": 8, "val": 8, "test": 16, "by": "user"}
    with pytest.raises(SpecError, match="no row has the field 'user'"):
        planted(tmp_path / "none", 32, split=split)
    plant(tmp_path, lambda r: 0.5, {"random": {"trials": 1}}, calls=400)
    lines = [{"text": f"row {i} topic{i} word{i}: a a-thing", "label": "a", "user": i % 8} for i in range(32)]
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    spec = json.loads((tmp_path / "workflow.yaml").read_text())
    spec["data"] = {"file": "all.jsonl", "split": split}
    (tmp_path / "workflow.yaml").write_text(json.dumps(spec))
    found = prepare(tmp_path / "workflow.yaml")[2].dataset
    users = [{row["user"] for row in part} for part in (found.train, found.val, found.test.open())]
    assert [len(part) for part in (found.train, found.val, found.test)] == [8, 8, 16]
    assert set.union(*users) == set(range(8)) and sum(map(len, users)) == 8
    for line in lines:
        line["user"] %= 2
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(SpecError, match="too few values of 'user'"):
        prepare(tmp_path / "workflow.yaml")
