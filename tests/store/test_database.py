"""The run database: what is recorded stays, whoever else opens it, and whatever fails. Writing:
test_store_writing.py."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.helpers.forking import start_python
from tests.helpers.sqlite import connect
from tests.helpers.stored import EVENT, kinds

from workbench.errors import StoreError
from workbench.run import Options, optimize, resume
from workbench.store import TABLES, ReadOnlyStore, Store, dumps
from workbench.store.schema import SCHEMA_VERSION
from workbench_testing import SimulatedLM, SimulatedPool, write_task

# Opening


@pytest.mark.fault("damaged-database")
def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    Store(path).close()
    other = connect(path)
    other.execute(f"pragma user_version={SCHEMA_VERSION + 1}")
    other.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=rf"newer workbench \(schema {SCHEMA_VERSION + 1}.*update workbench-core"):
        Store(path)
    assert path.read_bytes() == before


def test_a_folder_that_is_missing_is_named_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=rf"there is no folder {tmp_path}/nodir for the run database; make it"):
        Store(tmp_path / "nodir" / "run.db")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("version", [1, 3])
def test_a_database_of_before_the_first_version_is_refused_and_left_alone(version: int, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    Store(path).close()
    other = connect(path)
    other.execute("drop table scored_candidates")  # later than the first schemas
    other.execute(f"pragma user_version={version}")
    other.close()
    before = path.read_bytes()
    for opened in (Store, ReadOnlyStore):
        with pytest.raises(StoreError, match="from before the first release; name another with --db"):
            opened(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", [0, 1, 9])
def test_a_database_of_something_else_is_refused_and_left_alone(version: int, tmp_path: Path) -> None:
    path = tmp_path / "customers.db"
    other = connect(path)
    other.execute("create table customers (name text)")
    other.execute(f"pragma user_version={version}")
    other.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="customers.db is a database of something else; name another with --db"):
        Store(path)
    assert path.read_bytes() == before


def test_opening_again_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    Store(path).close()
    before = path.read_bytes()
    Store(path, create=False).close()
    assert path.read_bytes() == before


def test_what_is_no_database_is_named_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("these are my notes, not a database\n" * 100)
    with pytest.raises(StoreError, match=r"cannot use the run database .*notes\.txt.*not a database"):
        Store(tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text().startswith("these are my notes")
    with pytest.raises(StoreError, match="there is no run database at .*none.db; name another with --db"):
        Store(tmp_path / "none.db", create=False)
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(StoreError, match="there is no folder .*notes.txt"):
        Store(tmp_path / "notes.txt" / "run.db")


OPEN_AND_WRITE = """
import sys
import time
from pathlib import Path
import sqlite_utils
from workbench.store import Store
name = sys.argv[1]
print("ready", flush=True)
for n in range(5):
    while not Path(f"go{n}").exists(): time.sleep(0.0005)
    store = Store(f"run{n}.db")
    store.execute("insert into runs (run, status, started, spec, options) values (?, '', '', '', '')", name)
    store.close()
    print("done", flush=True)
"""


@pytest.mark.slow
def test_processes_that_make_one_database_at_the_same_time_all_succeed(tmp_path: Path) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN_AND_WRITE, str(n)],
            cwd=tmp_path,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for n in range(5)
    ]
    for turn in range(6):
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        (tmp_path / f"go{turn}").touch()
    errors = [process.communicate(timeout=60)[1] for process in started]
    assert [process.returncode for process in started] == [0] * 5, errors
    for turn in range(5):
        found = Store(tmp_path / f"run{turn}.db", create=False)
        assert {r["run"] for r in found.rows("select run from runs")} == {str(n) for n in range(5)}
        found.close()


# Full disks


@pytest.mark.fault("full-disk")
def test_a_full_disk_loses_nothing_and_says_what_to_do(store: Store) -> None:
    pages = store.conn.execute("pragma page_count").fetchone()[0]
    store.conn.execute(f"pragma max_page_count={pages + 40}")
    written: list[str] = []

    async def fill() -> str:
        for n in range(1000):
            key = store.text(f"{n}" * 1000)
            await store.write(EVENT, str(n), key)
            written.append(str(n))
        return key

    with pytest.raises(StoreError, match=r"run\.db.*disk is full.*before is safe.*free some space.*workbench resume"):
        asyncio.run(fill())
    assert 5 < len(written) < 200
    assert kinds(store.path) == written

    store.conn.execute("pragma max_page_count=1000000")  # room was made
    failed = str(len(written)) * 1000

    async def again() -> str:
        key = store.text(failed)
        await store.write(EVENT, "again", key)
        return key

    key = asyncio.run(again())
    row = store.row("select text from texts where hash = ?", key)
    assert row is not None and row["text"] == failed, "a text that was rolled back is written again"
    assert kinds(store.path) == [*written, "again"]


LIMITED = """
import resource, sys
from pathlib import Path
from workbench.errors import StoreError
from workbench.run import optimize
from workbench_testing import SimulatedLM, SimulatedPool
import sqlite_utils, optuna
lm = SimulatedLM()
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
try:
    optimize("workflow.yaml", database="run.db", pool=SimulatedPool(lm))
except StoreError as error:
    print(lm.requests, error)
    sys.exit(2)
"""


def tables_take(folder: Path) -> int:
    """Bytes of the largest file of a store without rows: every table added to the schema makes it larger."""
    folder.mkdir()
    store = Store(folder / "empty.db")
    largest = max(f.stat().st_size for f in folder.iterdir())
    store.close()
    return largest


@pytest.mark.fault("full-disk")
@pytest.mark.slow
def test_a_run_on_a_full_disk_stops_and_goes_on_later(tmp_path: Path, subtests: pytest.Subtests) -> None:
    write_task(tmp_path, budget={"calls": 150})
    spec = json.loads((tmp_path / "workflow.yaml").read_text())
    spec["optimize"] = [{"random": {"trials": 5}}]
    (tmp_path / "workflow.yaml").write_text(json.dumps(spec))
    out = Options(out=str(tmp_path / "out.yaml"))
    whole = optimize(
        tmp_path / "workflow.yaml", database=tmp_path / "whole.db", pool=SimulatedPool(SimulatedLM()), options=out
    )
    tables = tables_take(tmp_path / "empty")
    for room in (95_000, *range(80_000, 300_000, 24_000)):  # two commits a call, each of whole pages
        with subtests.test(room=room):
            folder = tmp_path / str(room)
            folder.mkdir()
            for file in (tmp_path / "workflow.yaml", *tmp_path.glob("*.jsonl")):
                shutil.copy(file, folder)
            job = start_python(LIMITED, str(tables + room), cwd=folder)
            told, wrong = job.communicate(100)
            assert job.returncode == 2, wrong
            sent, words = told.split(" ", 1)
            assert "cannot write" in words
            assert "free some space on that disk, then continue with workbench resume" in words
            lm = SimulatedLM()
            out = Options(out=str(folder / "again.yaml"))
            report = resume("last", database=folder / "run.db", pool=SimulatedPool(lm), options=out)
            assert report.winner == whole.winner and report.best["test"] == whole.best["test"]
            assert report.status == whole.status == "finished"
            in_flight = 4
            assert whole.spent["calls"] <= int(sent) + lm.requests <= whole.spent["calls"] + in_flight
            assert 10 < int(sent) < whole.spent["calls"], "the disk was full in the middle of the run"


# Texts


def test_a_text_is_kept_once(store: Store) -> None:
    async def main() -> list[str]:
        keys = [store.text(t) for t in ("long" * 100, "other" * 100, "long" * 100)]
        await store.write(EVENT, "", "")
        return keys

    keys = asyncio.run(main())
    assert keys[0] == keys[2] != keys[1]
    assert {r["hash"]: r["text"] for r in store.rows("select * from texts")} == {
        keys[0]: "long" * 100,
        keys[1]: "other" * 100,
    }
    store._known_texts.clear()  # as in another process
    assert asyncio.run(main()) == keys
    row = store.row("select count(*) from texts")
    assert row is not None and row[0] == 2


def test_odd_characters_are_kept_or_escaped(store: Store) -> None:
    async def main() -> str:
        await store.write(EVENT, "nul \0 and 😀", dumps({"half": "\ud800", "nan": [1]}))
        key = store.text("half \ud83d")
        await store.write(EVENT, "", "")
        return key

    key = asyncio.run(main())
    row = store.row("select kind, data from events order by id limit 1")
    assert row is not None and row["kind"] == "nul \0 and 😀" and json.loads(row["data"])["half"] == "\ud800"
    row = store.row("select text from texts where hash = ?", key)
    assert row is not None and row["text"] == r"half \ud83d"


def test_memory_of_known_texts_is_bounded(store: Store) -> None:
    async def main() -> None:
        for n in range(5000):
            store.text(f"text {n}")
        await store.write(EVENT, "", "")

    asyncio.run(main())
    assert len(store._known_texts) <= 4096
    row = store.row("select count(*) from texts")
    assert row is not None and row[0] == 5000


# Runs and their locks


def test_a_run_is_found_by_a_beginning_of_its_name(store: Store) -> None:
    for name in ("abc1", "abd2", "ab"):
        store.execute(
            "insert into runs (run, status, started, file, spec, options) values (?, '', '', 'f', '', '')", name
        )
    assert store.find_run("abc")["run"] == "abc1"
    assert store.find_run("ab")["run"] == "ab", "a whole name is no beginning of another"
    assert store.find_run("last")["run"] == "ab"
    with pytest.raises(StoreError, match=r"'a' is not unique.*ab \(optimize\), abd2 \(optimize\), abc1"):
        store.find_run("a")
    with pytest.raises(StoreError, match="'zz' is not in .*newest runs: ab"):
        store.find_run("zz")


def test_a_second_signal_while_a_run_closes_does_not_take_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(SimulatedPool):
        async def aclose(self) -> None:
            await super().aclose()
            raise asyncio.CancelledError  # what a signal makes of whatever is waited for here

    write_task(tmp_path, budget={"calls": 150})
    report = optimize(
        tmp_path / "workflow.yaml",
        database=tmp_path / "run.db",
        pool=Slow(SimulatedLM()),
        options=Options(out=str(tmp_path / "out.yaml")),
    )
    assert report.status == "finished"
    with connect(tmp_path / "run.db") as db:
        assert db.execute("select status from runs").fetchone()[0] == "finished"


def test_every_table_is_described_and_none_else(tmp_path: Path) -> None:
    """The reference's table is made of this list."""
    store = Store(tmp_path / "run.db")
    there = {row["name"] for row in store.rows("select name from sqlite_master where type = 'table'")}
    store.close()
    assert set(TABLES) == {name for name in there if not name.startswith(("sqlite_", "_"))}


def test_a_page_that_cannot_be_read_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    store = Store(tmp_path / "a.db")
    store.execute("insert into runs (id, run, status, started, spec, options) values (1, 'r', '', '', '', '')")
    for _ in range(200):
        store.execute("insert into events (run_id, at, kind, data) values (1, '', 'x', ?)", "y" * 500)
    store.conn.execute("pragma wal_checkpoint(truncate)")
    store.close()
    size = (tmp_path / "a.db").stat().st_size
    with (tmp_path / "a.db").open("r+b") as file:
        file.seek(size // 2)
        file.write(b"\xff" * (size // 2))
    store = Store(tmp_path / "a.db")
    with pytest.raises(StoreError, match=r"cannot read .*a\.db: database disk image is malformed"):
        list(store.rows("select * from events"))
    with pytest.raises(StoreError, match="cannot read"):
        store.row("select * from events order by id desc")
    store.close()
