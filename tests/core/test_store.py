"""The store: newer schemas are refused, readers look on, a second process is kept off, texts survive any content."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench.errors import StoreError
from workbench.intents import Intents
from workbench.store import SCHEMA_VERSION, RunLock, Store


def test_a_newer_schema_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    Store(path).close()
    conn = sqlite3.connect(path)
    conn.execute(f"pragma user_version={SCHEMA_VERSION + 1}")
    conn.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="newer workbench.*update agent-workbench"):
        Store(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"this is no database, but it is long enough to look at" * 40, b"\x00" * 4096])
def test_what_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run.db"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="run.db"):
        Store(path)
    assert path.read_bytes() == content


def test_a_missing_database_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no run database.*--db"):
        Store(tmp_path / "no.db", create=False)
    assert not (tmp_path / "no.db").exists()


def test_rows_of_one_batch_are_there_for_a_reader_in_another_process(tmp_path: Path) -> None:
    async def course() -> str:
        store = Store(tmp_path / "run.db")
        try:
            waits = [store.write("insert into texts values (?, ?)", str(i), "x") for i in range(50)]
            assert len(set(map(id, waits))) == 1, "one commit for all"
            await waits[0]
            code = "import sqlite3,sys; print(sqlite3.connect(sys.argv[1]).execute('select count(*) from texts').fetchone()[0])"
            done = subprocess.run([sys.executable, "-c", code, str(store.path)], capture_output=True, text=True)
            return done.stdout.strip()
        finally:
            store.close()

    assert asyncio.run(course()) == "50"


def test_a_bad_row_fails_its_batch_and_not_the_next(tmp_path: Path) -> None:
    async def course() -> None:
        store = Store(tmp_path / "run.db")
        try:
            with pytest.raises(StoreError, match="what was recorded before is safe"):
                await store.write("insert into texts values (?, ?)", "a", None)
            await store.write("insert into texts values (?, ?)", "b", "fine")
            assert [r["hash"] for r in store.rows("select hash from texts")] == ["b"]
        finally:
            store.close()

    asyncio.run(course())


def test_a_second_process_is_kept_off_a_run_until_the_first_is_dead(tmp_path: Path) -> None:
    store = Store(tmp_path / "run.db")
    code = (
        "import sys, time\nfrom workbench.store import *\n"
        "store = Store(sys.argv[1])\nwith RunLock(store, 'r'):\n print('in', flush=True)\n time.sleep(60)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(store.path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "in\n"
        with pytest.raises(StoreError, match=f"in use by process {holder.pid}"):
            RunLock(store, "r").__enter__()
        with RunLock(store, "another"):
            pass
    finally:
        holder.kill()
        holder.wait()
        assert holder.stdout is not None
        holder.stdout.close()
    with RunLock(store, "r"):
        pass
    store.close()


def test_two_processes_may_write_the_same_database(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    Store(path).close()
    code = (
        "import asyncio, sys\nfrom workbench.store import *\n"
        "async def go():\n"
        " store = Store(sys.argv[1])\n"
        " for i in range(150):\n  await store.write('insert into texts values (?, ?)', f'{sys.argv[2]} {i}', 'x')\n"
        " store.close()\n"
        "asyncio.run(go())\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path), name]) for name in ("one", "two")]
    assert [w.wait() for w in writers] == [0, 0]
    store = Store(path)
    assert store.row("select count(*) from texts")[0] == 300  # type: ignore[index]
    store.close()


@given(text=st.text(st.characters(), max_size=40))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_can_be_kept(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    async def course() -> str:
        store = Store(tmp_path_factory.mktemp("text") / "run.db")
        try:
            key = store.text(text)
            store.flush()
            return store.row("select text from texts where hash = ?", key)["text"]  # type: ignore[index]
        finally:
            store.close()

    assert asyncio.run(course()) == text.encode("utf-8", "backslashreplace").decode("utf-8")


def test_intents_that_were_cut_by_a_kill_are_left_out(tmp_path: Path) -> None:
    intents = Intents(tmp_path / "intents", 7)
    intents.add("k1", "task", 10, 0.25)
    intents.add("k2", "judge", 20, 0.0)
    with (tmp_path / "intents").open("a") as file:
        file.write("7 k3 ta")
    assert list(intents.read()) == [(7, "k1", "task", 10, 0.25), (7, "k2", "judge", 20, 0.0)]
    intents.remove()
    assert list(intents.read()) == [] and not (tmp_path / "intents").exists()
