"""The tables of the run database, and how an older file is brought up to date."""

from __future__ import annotations

from typing import Any

SCHEMA_VERSION = 2
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


def make_migrations() -> Any:
    from sqlite_utils import Migrations

    migrations = Migrations("workbench")

    @migrations()
    def m001_initial(db: Any) -> None:
        _run_script(db, M001_INITIAL)

    @migrations()
    def m002_sealed_tests(db: Any) -> None:
        _run_script(db, _M002_SEALED_TESTS)

    return migrations


def _run_script(db: Any, script: str) -> None:
    for statement in script.split(";"):
        if statement.strip():
            db.conn.execute(statement)
