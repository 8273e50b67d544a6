"""The tables of the run database, upgrades of older files, and the check that a file is one."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

from workbench.errors import StoreError

#: checksum: of a row's other columns; spec_checksum: of the file and options that a run started with.
#: results: `fields` is the row itself, `scores` are by further metrics; `row_key` (that of `seen_rows` and a hash of
#: the label) and `cluster` identify equal rows.
#: calls: `queued` are seconds of waiting in workbench, which are not part of `seconds`; `reused` is the run that paid
#: for a reused answer; `packed_tokens` are ids and log-probabilities (`lm.split_tokens`).
#: attempts: recorded before a request is sent; `attempt` is its number, and `outcome` is null while it is unknown. A
#: call that is answered deletes the last one.
#: orders: orders of users to a running run; `candidate` is the one after whose evaluation the order took effect.
#: seen_rows: rows seen before; `texts` are the words of a row, used to find near copies.
#: scored_rows: rows of a split on which the `scored_candidates` of a run were scored.
#: artifacts: `content` is the SHA-256 of the file.
_M001_INITIAL = """
create table runs (
    id integer primary key, run text not null unique, name text, status text not null, started text not null,
    finished text, file text, spec text not null, options text not null, data_hash text, seed integer,
    report text, seconds real not null default 0, host text, pid integer, version text, checksum text,
    spec_checksum text, kind text, tags text, note text);
create table candidates (
    run_id integer not null references runs(id), hash text not null, seq integer not null, parent text,
    optimizer text, note text, patch text, tree text not null, checksum text,
    primary key (run_id, hash)) without rowid;
create table evaluations (
    id integer primary key, run_id integer not null references runs(id), candidate text not null, split text not null,
    replica integer not null, n integer not null, score real, failed integer not null, complete integer not null,
    objectives text, unique (run_id, candidate, split, replica));
create table results (
    evaluation_id integer not null references evaluations(id) on delete cascade, position integer not null,
    example text not null, score real, failure text, message text, feedback text, prediction text, spans text,
    fields text, scores text, cost text, row_key text, cluster text, checksum text,
    primary key (evaluation_id, position)) without rowid;
create table calls (
    run_id integer not null references runs(id), key text not null, kind text not null, role text not null,
    lm text not null, request text not null, response text, outcome text not null, message text,
    attempts integer not null, prompt_tokens integer not null, completion_tokens integer not null, usd real,
    seconds real not null, checksum text, queued real, reused integer, packed_tokens blob,
    primary key (run_id, key)) without rowid;
create index calls_key on calls(key);
create table attempts (
    id integer primary key, run_id integer not null references runs(id), key text not null, role text not null,
    process integer not null, outcome text, message text, prompt_tokens integer, usd real);
create index attempts_key on attempts(run_id, key);
create table texts (hash text primary key, text text not null) without rowid;
create table events (
    id integer primary key, run_id integer not null references runs(id), at text not null, kind text not null,
    data text not null);
create table artifacts (
    id integer primary key, run_id integer not null references runs(id), name text not null, path text not null,
    sha256 text not null, content text);
create table sealed_tests (
    id integer primary key, run_id integer not null references runs(id), candidate text not null, n integer not null,
    at text not null);
create table sealed_test_rows (
    test_id integer not null references sealed_tests(id) on delete cascade, row text not null,
    primary key (test_id, row)) without rowid;
create index sealed_test_rows_row on sealed_test_rows(row);
create table orders (
    id integer primary key, run_id integer not null references runs(id), at text not null, kind text not null,
    data text not null, candidate text, outcome text);
create index orders_run on orders(run_id);
create table seen_rows (row text primary key, texts text not null) without rowid;
create table scored_rows (
    run_id integer not null references runs(id), split text not null, row text not null,
    primary key (run_id, split, row)) without rowid;
create table scored_candidates (
    run_id integer not null references runs(id), split text not null, candidate text not null,
    primary key (run_id, split, candidate)) without rowid;
"""
_M002_ATTEMPTS = "alter table attempts rename column process to attempt;\n"
#: The statements of each version, in order. Released ones never change.
VERSIONS = (_M001_INITIAL, _M002_ATTEMPTS)
SCHEMA_VERSION = len(VERSIONS)
#: The statements that make a current database.
SCHEMA = "".join(VERSIONS)


def make_migrations() -> Any:
    """Return the migrations by which `sqlite_utils` upgrades a file to `SCHEMA_VERSION`."""
    from sqlite_utils import Migrations

    migrations = Migrations("workbench")
    for number, script in enumerate(VERSIONS, start=1):

        def migrate(db: Any, script: str = script) -> None:
            _run_script(db, script)

        migrations(name=f"m{number:03}")(migrate)
    return migrations


def _run_script(db: Any, script: str) -> None:
    for statement in filter(str.strip, script.split(";")):
        db.conn.execute(statement)


def check_version(conn: sqlite3.Connection, path: Path) -> int:
    """Return the version of a run database; 0 for an empty one. Raises StoreError if it is not one that can be read."""
    version = conn.execute("pragma user_version").fetchone()[0]
    tables = {name for (name,) in conn.execute("select name from sqlite_master where type = 'table'")}
    if tables and "_sqlite_migrations" not in tables:
        raise StoreError(f"{path} is a database of something else; name another with --db")
    if version and not {*re.findall(r"create table (\w+)", _M001_INITIAL)} <= tables:
        raise StoreError(f"{path} was written by a workbench from before the first release; name another with --db")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} was written by a newer workbench (schema {version}, this one knows {SCHEMA_VERSION}); "
            "update workbench-core"
        )
    return version
