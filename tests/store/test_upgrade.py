"""An older database is upgraded whole, and a copy of it is kept. The next version is planted: there is one so far."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.sqlite import connect
from tests.helpers.stored_runs import StoredLM, restore

from workbench.errors import StoreError
from workbench.run import Options, resume
from workbench.store import ReadOnlyStore, Store, database, schema
from workbench.store.schema import SCHEMA_VERSION

NEXT = SCHEMA_VERSION + 1
SCRIPT = "alter table runs add column planted text; create table planted (id integer primary key);"


@pytest.fixture
def update(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes a workbench of the next version."""

    def update() -> None:
        monkeypatch.setattr(schema, "VERSIONS", (*schema.VERSIONS, SCRIPT))
        for module in (schema, database):
            monkeypatch.setattr(module, "SCHEMA_VERSION", NEXT)

    return update


def version_of(path: Path) -> int:
    return connect(path).execute("pragma user_version").fetchone()[0]


@pytest.mark.fault("damaged-database")
def test_an_older_database_is_copied_before_its_upgrade(tmp_path: Path, update: Callable[[], None]) -> None:
    path = restore("bootstrap", tmp_path)
    Store(path).close()
    before = list(connect(path).iterdump())
    update()
    Store(path).close()
    kept = tmp_path / f"run.db.before-schema{NEXT}"
    assert list(connect(kept).iterdump()) == before and kept.stat().st_mode & 0o777 == 0o600
    assert version_of(path) == NEXT
    stamp = kept.stat().st_mtime_ns
    Store(path).close()
    assert kept.stat().st_mtime_ns == stamp, "once"


@pytest.mark.fault("damaged-database")
def test_an_upgrade_that_is_cut_short_leaves_a_database_that_is_upgraded_next_time(
    tmp_path: Path, update: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = restore("bootstrap", tmp_path)
    update()
    real, done = schema._run_script, []

    def cut(base: sqlite3.Connection, script: str) -> None:
        real(base, script.partition(";")[0])
        done.append(script)
        raise KeyboardInterrupt

    monkeypatch.setattr(schema, "_run_script", cut)
    with pytest.raises(KeyboardInterrupt):
        Store(path)
    assert done, "the upgrade had begun"
    monkeypatch.setattr(schema, "_run_script", real)
    Store(path).close()
    assert version_of(path) == NEXT
    pool = StoredLM(dead=True)
    options = Options(out=str(tmp_path / "optimized.yaml"))
    assert resume("last", database=path, pool=pool, options=options).status == "finished" and not pool.asked


@pytest.mark.fault("damaged-database")
def test_a_look_while_a_database_is_made_finds_all_tables_or_says_that_it_has_no_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process looks after every statement of the writer's."""
    path, said = tmp_path / "run.db", set[str]()

    def look() -> None:
        try:
            with closing(ReadOnlyStore(path)) as store:
                said.add(str(store.list_runs()))
        except StoreError as error:
            said.add(str(error).removeprefix(f"{path} "))

    def connect(*words: Any, **settings: Any) -> sqlite3.Connection:
        conn = real(*words, **settings)
        if words[0] == path:
            conn.set_trace_callback(lambda _: look())
        return conn

    real = sqlite3.connect
    monkeypatch.setattr(database.sqlite3, "connect", connect)
    Store(path).close()
    look()
    assert said == {"has no runs: it is empty, or its first run is just beginning", "[]"}
