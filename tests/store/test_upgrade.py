"""An older database is upgraded whole, and a copy of it is kept."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.stored_runs import StoredLM, restore

from workbench.run import Options, resume
from workbench.store import Store, schema
from workbench.store.schema import SCHEMA_VERSION


def test_an_older_database_is_copied_before_its_upgrade(tmp_path: Path) -> None:
    path = restore("bootstrap", tmp_path)
    before = list(sqlite3.connect(path).iterdump())
    Store(path).close()
    kept = tmp_path / f"run.db.before-schema{SCHEMA_VERSION}"
    assert list(sqlite3.connect(kept).iterdump()) == before and kept.stat().st_mode & 0o777 == 0o600
    assert sqlite3.connect(path).execute("pragma user_version").fetchone()[0] == SCHEMA_VERSION
    stamp = kept.stat().st_mtime_ns
    Store(path).close()
    assert kept.stat().st_mtime_ns == stamp, "once"


def test_an_upgrade_that_is_cut_short_leaves_a_database_that_is_upgraded_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = restore("bootstrap", tmp_path)
    real, done = schema._run_script, []

    def cut(base: Any, script: str) -> None:
        real(base, script.rpartition("alter table")[0])
        done.append(script)
        raise KeyboardInterrupt

    monkeypatch.setattr(schema, "_run_script", cut)
    with pytest.raises(KeyboardInterrupt):
        Store(path)
    assert done, "the upgrade had begun"
    monkeypatch.setattr(schema, "_run_script", real)
    Store(path).close()
    assert sqlite3.connect(path).execute("pragma user_version").fetchone()[0] == SCHEMA_VERSION
    pool = StoredLM(dead=True)
    options = Options(out=str(tmp_path / "optimized.yaml"))
    assert resume("last", database=path, pool=pool, options=options).status == "finished" and not pool.asked
