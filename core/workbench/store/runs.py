"""The rows of runs: what each was started with, how it ended, what happened in it, and the files that it wrote."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from workbench.store.database import Store, dumps, now


def add_run(
    store: Store,
    *,
    run: str,
    name: str,
    status: str,
    spec: str,
    options: str,
    seed: int | None = None,
    file: str | None = None,
    data_hash: str | None = None,
    host: str | None = None,
    pid: int | None = None,
    version: str | None = None,
) -> int:
    """Add a run that starts now; returns its number."""
    cursor = store.execute(
        "insert into runs (run, name, status, started, file, spec, options, data_hash, seed, host, pid, version) "
        "values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        run,
        name,
        status,
        now(),
        file,
        spec,
        options,
        data_hash,
        seed,
        host,
        pid,
        version,
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def list_runs(store: Store) -> list[sqlite3.Row]:
    """The runs of `workbench optimize` and `workbench eval`, newest first."""
    return list(store.rows("select * from runs where file is not null or status = 'eval' order by id desc"))


def find_started_run(store: Store, status: str, spec: str, options: str) -> sqlite3.Row | None:
    """The newest run of this status that was started with just this file and these options."""
    sql = "select id, run, seconds from runs where status = ? and spec = ? and options = ? order by id desc"
    return store.row(sql, status, spec, options)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The row of one run, its events and its artifacts."""

    store: Store
    run_id: int

    def find_name(self) -> str:
        """The name of the run."""
        row = self.store.row("select run from runs where id = ?", self.run_id)
        assert row is not None
        return row["run"]

    def mark_running(self, pid: int, host: str) -> None:
        """Write, at once, that a process works on the run."""
        sql = "update runs set status = 'running', pid = ?, host = ? where id = ?"
        self.store.execute(sql, pid, host, self.run_id)

    def replace_options(self, options: str) -> None:
        """Write, at once, the options that the run goes on with."""
        self.store.execute("update runs set options = ? where id = ?", options, self.run_id)

    def save_seconds(self, seconds: float) -> None:
        """Queue how long the run has taken so far."""
        self.store.write("update runs set seconds = ? where id = ?", seconds, self.run_id)

    def end(self, status: str) -> None:
        """Write, at once, that the run has ended, without a report."""
        sql = "update runs set status = ?, finished = ? where id = ?"
        self.store.execute(sql, status, now(), self.run_id)

    def end_with_report(self, status: str, report: dict[str, Any], seconds: float) -> None:
        """Queue that the run has ended, and its report."""
        sql = "update runs set status = ?, finished = ?, report = ?, seconds = ? where id = ?"
        self.store.write(sql, status, now(), dumps(report), seconds, self.run_id)

    def add_artifact(self, path: str, hash_: str) -> None:
        """Queue that the run wrote a workflow file."""
        sql = "insert into artifacts (run_id, name, path, sha256) values (?, 'workflow', ?, ?)"
        self.store.write(sql, self.run_id, path, hash_)

    def find_sandbox(self) -> dict[str, str] | None:
        """Name and level of the sandbox that the run began in, or None if it opened none."""
        sql = "select data from events where run_id = ? and kind = 'sandbox' order by id"
        row = self.store.row(sql, self.run_id)
        return json.loads(row["data"]) if row else None
