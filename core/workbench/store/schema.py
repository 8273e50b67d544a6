"""The tables of the run database, how an older file is brought up to date, and how another file is told from one."""

from __future__ import annotations

import re
import sqlite3
from functools import cache
from pathlib import Path
from typing import Any

from workbench.errors import StoreError

SCHEMA_VERSION = 8
M001_INITIAL = """
create table runs (
    id integer primary key, run text not null unique, name text, status text not null, started text not null,
    finished text, file text, spec text not null, options text not null, data_hash text, seed integer,
    report text, seconds real not null default 0, host text, pid integer, version text);
create table candidates (
    run_id integer not null references runs(id), hash text not null, seq integer not null, parent text,
    optimizer text, note text, patch text, tree text not null, primary key (run_id, hash)) without rowid;
create table evaluations (
    id integer primary key, run_id integer not null references runs(id), candidate text not null, split text not null,
    replica integer not null, n integer not null, score real, failed integer not null, complete integer not null,
    objectives text, unique (run_id, candidate, split, replica));
create table results (
    evaluation_id integer not null references evaluations(id) on delete cascade, position integer not null,
    example text not null, score real, failure text, message text, feedback text, prediction text, spans text,
    primary key (evaluation_id, position)) without rowid;
create table calls (
    run_id integer not null references runs(id), key text not null, kind text not null, role text not null,
    lm text not null, request text not null, response text, outcome text not null, message text,
    attempts integer not null, prompt_tokens integer not null, completion_tokens integer not null, usd real,
    seconds real not null, primary key (run_id, key)) without rowid;
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
    sha256 text not null);
"""
_M002_SEALED_TESTS = """
create table sealed_tests (
    id integer primary key, run_id integer not null references runs(id), candidate text not null, n integer not null,
    at text not null);
create table sealed_test_rows (
    test_id integer not null references sealed_tests(id) on delete cascade, row text not null,
    primary key (test_id, row)) without rowid;
create index sealed_test_rows_row on sealed_test_rows(row);
"""


#: Rows that were written before have none. `content`: SHA-256 of the file.
_M003_CHECKSUMS = """
alter table runs add column checksum text;
alter table runs add column spec_checksum text;
alter table candidates add column checksum text;
alter table calls add column checksum text;
alter table artifacts add column content text;
"""
#: `fields`: the row itself; `scores`: by further metrics; `row_key` and `cluster`: which rows are the same.
_M004_EVAL_RUNS = """
alter table runs add column kind text;
alter table runs add column tags text;
alter table runs add column note text;
alter table results add column fields text;
alter table results add column scores text;
alter table results add column cost text;
alter table results add column row_key text;
alter table results add column cluster text;
alter table results add column checksum text;
"""
#: `queued`: seconds that a call waited here, which its `seconds` do not hold; of rows written before, they do.
#: `reused`: the run that paid for the answer, where this one took it over.
_M005_CALLS_ACROSS_RUNS = """
alter table calls add column queued real;
alter table calls add column reused integer;
create index calls_key on calls(key);
"""
#: Token ids and log-probabilities (`workbench.lm.split_tokens`). Of older calls, they are in the JSON of the answer.
_M006_PACKED_TOKENS = """
alter table calls add column packed_tokens blob;
"""
#: What users ordered while a run went on. `candidate`: that after whose evaluation the order took effect.
_M007_ORDERS = """
create table orders (
    id integer primary key, run_id integer not null references runs(id), at text not null, kind text not null,
    data text not null, candidate text, outcome text);
create index orders_run on orders(run_id);
"""
#: Which rows were seen before. `texts`: the words of a row, by which near copies are known. `scored_rows`: those of a
#: split on which the `scored_candidates` of a run were scored.
_M008_SEEN_ROWS = """
create table seen_rows (row text primary key, texts text not null) without rowid;
create table scored_rows (
    run_id integer not null references runs(id), split text not null, row text not null,
    primary key (run_id, split, row)) without rowid;
create table scored_candidates (
    run_id integer not null references runs(id), split text not null, candidate text not null,
    primary key (run_id, split, candidate)) without rowid;
"""
_VERSIONS = (
    M001_INITIAL,
    _M002_SEALED_TESTS,
    _M003_CHECKSUMS,
    _M004_EVAL_RUNS,
    _M005_CALLS_ACROSS_RUNS,
    _M006_PACKED_TOKENS,
    _M007_ORDERS,
    _M008_SEEN_ROWS,
)
#: The statements that make a database of today.
SCHEMA = "".join(_VERSIONS)

#: The table of the library that applies migrations, SQLite's own, and those of Optuna, which keeps its studies here. We
#: read none of them ourselves.
_BESIDE = {
    "_sqlite_migrations",
    "sqlite_sequence",
    "sqlite_stat1",
    "studies",
    "study_directions",
    "study_system_attributes",
    "study_user_attributes",
    "trial_heartbeats",
    "trial_intermediate_values",
    "trial_params",
    "trial_system_attributes",
    "trial_user_attributes",
    "trial_values",
    "trials",
    "version_info",
    "alembic_version",
}


def make_tables(conn: sqlite3.Connection, version: int) -> None:
    """Make the tables of a version, without the marks of migrations."""
    for script in _VERSIONS[:version]:
        conn.executescript(script)


def make_migrations() -> Any:
    """The migrations by which `sqlite_utils` brings a file to `SCHEMA_VERSION`."""
    from sqlite_utils import Migrations

    migrations = Migrations("workbench")

    @migrations()
    def m001_initial(db: Any) -> None:
        _run_script(db, M001_INITIAL)

    @migrations()
    def m002_sealed_tests(db: Any) -> None:
        _run_script(db, _M002_SEALED_TESTS)

    @migrations()
    def m003_checksums(db: Any) -> None:
        _run_script(db, _M003_CHECKSUMS)

    @migrations()
    def m004_eval_runs(db: Any) -> None:
        _run_script(db, _M004_EVAL_RUNS)

    @migrations()
    def m005_calls_across_runs(db: Any) -> None:
        _run_script(db, _M005_CALLS_ACROSS_RUNS)

    @migrations()
    def m006_packed_tokens(db: Any) -> None:
        _run_script(db, _M006_PACKED_TOKENS)

    @migrations()
    def m007_orders(db: Any) -> None:
        _run_script(db, _M007_ORDERS)

    @migrations()
    def m008_seen_rows(db: Any) -> None:
        _run_script(db, _M008_SEEN_ROWS)

    return migrations


def _run_script(db: Any, script: str) -> None:
    for statement in script.split(";"):
        if statement.strip():
            db.conn.execute(statement)


def check_layout(conn: sqlite3.Connection, path: Path) -> int:
    """The version of a run database; 0 for an empty one. Views, triggers and tables that are not ours could run what
    their maker chose. Raises StoreError."""
    version = conn.execute("pragma user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} was written by a newer workbench (schema {version}, this one knows {SCHEMA_VERSION}); "
            "update agent-optimization-workbench"
        )
    if version < 0:
        raise StoreError(f"{path} is damaged (schema {version}); use a copy of it")
    asked = "select type, name, sql, tbl_name from sqlite_master where type != 'index' or sql is not null"
    found = [(kind, name, sql, of in _BESIDE) for kind, name, sql, of in conn.execute(asked)]
    tables = {name for kind, name, _, _ in found if kind == "table"}
    if tables and "_sqlite_migrations" not in tables:
        raise StoreError(f"{path} is a database of something else; name another with --db")
    ours = [_layout(known) for known in range(version, SCHEMA_VERSION + 1)]  # a migration may have been cut short
    for kind, name, sql, beside in found:
        if beside and kind in ("table", "index"):
            continue
        if not any(layout.get((kind, name)) == _plain(str(sql)) for layout in ours):
            raise StoreError(f"{path} holds a {kind} {name!r:.60} that is none of workbench, so it is not opened")
    there = {(kind, name) for kind, name, *_ in found}
    if lacking := [name for kind, name in ours[0] if (kind, name) not in there]:
        raise StoreError(f"{path} lacks the table {lacking[0]} of a run database, so it is not opened")
    return version


@cache
def column_types() -> dict[str, tuple[str, bool]]:
    """By name, the type of a column and whether it may be empty. Columns of one name have one type in all tables."""
    conn, found = _made(SCHEMA_VERSION), dict[str, tuple[str, bool]]()
    for (table,) in conn.execute("select name from sqlite_master where type = 'table'").fetchall():
        for _, name, kind, required, _, key in conn.execute(f"pragma table_info({table})"):
            empty = not required and not key
            found[name] = (kind.lower(), empty or (name in found and found[name][1]))
    conn.close()
    return found


@cache
def _layout(version: int) -> dict[tuple[str, str], str]:
    """By kind and name, the statements that make a database of a version."""
    conn = _made(version)
    found = {
        (kind, name): _plain(sql)
        for kind, name, sql in conn.execute("select type, name, sql from sqlite_master where sql is not null")
    }
    conn.close()
    return found


def _made(version: int) -> sqlite3.Connection:
    conn = sqlite3.connect(":memory:")
    make_tables(conn, version)
    return conn


def _plain(sql: str) -> str:
    """A statement without what does not matter: spaces, quotes of names, and case."""
    return re.sub(r"[\s\"\[\]`]+", "", sql).lower()
