"""Writing and reading at the same time: commits are whole and in order, whoever else reads or writes."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.sqlite import connect
from tests.helpers.stored import EVENT, NEW_RUN, kinds

from workbench.errors import StoreError
from workbench.lm import Request, Response, unpack_tokens
from workbench.store import Journal, Store
from workbench.store.background_sync import BackgroundSync


def test_what_was_written_is_synced_though_its_thread_was_kept_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by Ctrl-C between the making of the thread and its start."""
    synced: list[int] = []
    (tmp_path / "run.db-wal").touch()
    sync = BackgroundSync(tmp_path / "run.db-wal", 60.0)

    def interrupted(thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(threading.Thread, "start", interrupted)
        sync.written()
    monkeypatch.setattr(os, "fsync", synced.append)
    sync.close()
    assert len(synced) == 1 and sync.error is None


def test_a_reader_beside_a_writer_sees_whole_commits_in_order(store: Store) -> None:
    seen: list[int] = []
    errors: list[Exception] = []
    done = threading.Event()

    def look() -> None:
        reader = connect(f"file:{store.path}?mode=ro", uri=True, timeout=0)
        try:
            while not done.is_set():
                seen.append(reader.execute("select count(*) from events").fetchone()[0])
        except sqlite3.Error as error:
            errors.append(error)
        finally:
            reader.close()

    async def main() -> None:
        for n in range(100):
            pair = [store.write(EVENT, f"{n}a", ""), store.write(EVENT, f"{n}b", "")]
            await asyncio.gather(*pair)
            row = store.row("select count(*) from events")
            assert row is not None and row[0] == 2 * n + 2, "what was awaited can be read"
            await asyncio.sleep(0.002)  # or all is written before the reader looks again

    thread = threading.Thread(target=look)
    thread.start()
    try:
        asyncio.run(main())
    finally:
        done.set()
        thread.join()
    assert not errors and seen == sorted(seen) and all(n % 2 == 0 for n in seen) and len(set(seen)) > 2
    assert kinds(store.path) == [f"{n}{x}" for n in range(100) for x in "ab"]


def test_flushing_and_executing_keep_the_order(store: Store) -> None:
    async def main() -> None:
        store.write(EVENT, "first", "")
        await asyncio.sleep(0)
        first = store.write(EVENT, "second", "")
        store.flush()
        assert first.done()
        assert [r[0] for r in store.rows("select kind from events order by id")] == ["first", "second"]
        store.write(EVENT, "third", "")
        store.write(NEW_RUN, "third and a half")
        store.write(EVENT, "fourth", "")
        store.execute(EVENT, "fifth", "")
        assert [r[0] for r in store.rows("select kind from events order by id")][-3:] == ["third", "fourth", "fifth"]

    asyncio.run(main())


def test_the_loop_goes_on_while_another_process_writes(store: Store) -> None:
    other = connect(store.path, isolation_level=None)

    async def main() -> int:
        other.execute("begin immediate")
        done, turns = store.write(EVENT, "waited", ""), 0
        while turns < 20:
            await asyncio.sleep(0.01)
            turns += 1
            assert not done.done()
        later = store.write(EVENT, "later", "")
        other.execute("commit")
        await asyncio.wait_for(asyncio.gather(done, later), 5)
        return turns

    assert asyncio.run(main()) == 20
    assert kinds(store.path) == ["waited", "later"]


def test_patience_with_another_process_ends(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.store.database.PATIENCE", 0.1)
    other = connect(store.path, isolation_level=None)
    other.execute("begin immediate")
    told = r"run\.db: database is locked.*another process is writing to it: wait for it"

    async def main() -> None:
        with pytest.raises(StoreError, match=told):
            await store.write(EVENT, "never", "")
        queued = store.write(EVENT, "neither", "")
        with pytest.raises(StoreError, match=told):
            store.execute(EVENT, "nor this", "")
        with pytest.raises(StoreError, match=told):
            await queued
        other.execute("rollback")
        await store.write(EVENT, "now", "")

    asyncio.run(main())
    assert kinds(store.path) == ["now"]


def test_what_was_committed_goes_to_the_disk_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        synced.append(os.fstat(handle).st_ino)
        real(handle)

    def broken(handle: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("workbench.store.background_sync.os.fsync", fsync)
    monkeypatch.setattr("workbench.store.database.SYNC_EVERY", 0.3)
    store = Store(tmp_path / "run.db")
    store.execute(NEW_RUN, "another")
    wal = store.path.with_name("run.db-wal").stat().st_ino

    async def main() -> None:
        for n in range(30):
            await store.write(EVENT, str(n), "")
        assert not synced, "nobody waits for the disk"

    asyncio.run(main())
    time.sleep(0.8)
    assert synced == [wal], "once for all of them, though the event loop has ended, and no more"
    monkeypatch.setattr("workbench.store.background_sync.os.fsync", broken)

    async def told() -> None:
        await store.write(EVENT, "on its way", "")
        await asyncio.sleep(0.6)
        with pytest.raises(StoreError, match=r"cannot sync .*run.db-wal to disk: .*Input/output error.*free some"):
            await store.write(EVENT, "told", "")
        await store.write(EVENT, "last", "")

    asyncio.run(told())
    with pytest.raises(StoreError, match="a loss of power may now take"):
        store.close()
    assert kinds(store.path)[-2:] == ["on its way", "last"]


def test_what_sqlite_cannot_hold_is_told_and_the_next_rows_are_kept(store: Store) -> None:
    async def main() -> None:
        await store.write(EVENT, "half \ud83d a pair", "")
        both = store.write(EVENT, "good", ""), store.write(EVENT, "too large", 2**63)
        for future in both:
            with pytest.raises(StoreError, match="too large to convert"):
                await asyncio.wait_for(future, 5)
        await store.write(EVENT, "next", "")

    asyncio.run(main())
    assert kinds(store.path) == ["half \\ud83d a pair", "next"]


def test_an_interrupt_in_a_commit_leaves_the_queue_as_it_was(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        def __init__(self, conn: Any):
            self.conn = conn

        def __getattr__(self, name: str) -> Any:
            return getattr(self.conn, name)

        def executemany(self, *args: Any) -> None:
            self.conn.executemany(*args)
            store.conn = self.conn
            raise KeyboardInterrupt

    async def main() -> None:
        store.conn = Interrupted(store.conn)  # type: ignore[assignment]
        store.write(EVENT, "first", "")
        await store.write(EVENT, "second", "")

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    store.flush()
    assert kinds(store.path) == ["first", "second"]


def test_a_second_event_loop_takes_over_what_the_first_left(store: Store) -> None:
    other = connect(store.path, isolation_level=None)

    async def first() -> None:
        other.execute("begin immediate")
        store.write(EVENT, "left", "")
        await asyncio.sleep(0.05)
        other.execute("commit")

    async def second() -> None:
        await asyncio.wait_for(store.write(EVENT, "taken over", ""), 5)

    asyncio.run(first())
    asyncio.run(second())
    assert kinds(store.path) == ["left", "taken over"]


def test_closing_keeps_what_was_queued(tmp_path: Path) -> None:
    store = Store(tmp_path / "run.db")
    store.execute(NEW_RUN, "another")

    async def main() -> None:
        for n in range(50):
            store.write(EVENT, str(n), "")
            if n % 20 == 0:
                await asyncio.sleep(0)

    asyncio.run(main())
    store.close()
    assert kinds(tmp_path / "run.db") == [str(n) for n in range(50)]


def test_a_bad_row_is_told_to_all_of_its_commit_and_to_nobody_else(store: Store) -> None:
    async def main() -> None:
        good, bad = store.write(EVENT, "good", ""), store.write("insert into nowhere values (1)")
        for future in (good, bad):
            with pytest.raises(StoreError, match="no such table: nowhere; what was recorded before is safe"):
                await future
        await store.write(EVENT, "next", "")
        store.write("insert into nowhere values (1)")  # nobody waits for it
        await asyncio.sleep(0.05)
        future = store.write("insert into nowhere values (2)")
        with pytest.raises(StoreError):
            store.flush()
        with pytest.raises(StoreError):  # no CancelledError: those who wait must not think that they were stopped
            await future

    asyncio.run(main())
    assert kinds(store.path) == ["next"]


def test_tokens_of_an_answer_are_packed_and_their_damage_is_found(store: Store) -> None:
    response = Response("yes", prompt_ids=(5, 6), token_ids=(7, 8), logprobs=(-0.1, -0.2))
    store.execute(NEW_RUN, "another")
    journal = Journal(store, 2)

    async def main() -> None:
        await journal.add_call(
            "k" * 32,
            role="task",
            lm="m",
            request=Request(({"role": "user", "content": "?"},), 0.0, 8),
            response=response,
            outcome="stop",
            message=None,
            attempts=1,
            prompt_tokens=2,
            completion_tokens=2,
            usd=0.0,
            seconds=0.1,
            queued=0.0,
        )

    asyncio.run(main())
    row = journal.find_call("k" * 32)
    assert row is not None and "token_ids" not in row["response"]
    found = unpack_tokens(row["packed_tokens"])
    assert found == {"prompt_ids": (5, 6), "token_ids": (7, 8), "logprobs": (-0.1, -0.2)}
    damaged = row["packed_tokens"][:-1] + bytes([row["packed_tokens"][-1] ^ 1])
    store.execute("update calls set packed_tokens = ?", damaged)
    with pytest.raises(StoreError, match="does not match its checksum"):
        journal.find_call("k" * 32)
