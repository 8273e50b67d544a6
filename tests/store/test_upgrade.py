"""An older database is upgraded whole, and a copy of it is kept. The next version is planted: there is one so far."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.helpers.stored_runs import StoredLM, restore

from workbench.run import Options, resume
from workbench.store import Store, database, schema
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
    return sqlite3.connect(path).execute("pragma user_version").fetchone()[0]


@pytest.mark.fault("damaged-database")
def test_an_older_database_is_copied_before_its_upgrade(tmp_path: Path, update: Callable[[], None]) -> None:
    path = restore("bootstrap", tmp_path)
    Store(path).close()
    before = list(sqlite3.connect(path).iterdump())
    update()
    Store(path).close()
    kept = tmp_path / f"run.db.before-schema{NEXT}"
    assert list(sqlite3.connect(kept).iterdump()) == before and kept.stat().st_mode & 0o777 == 0o600
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
