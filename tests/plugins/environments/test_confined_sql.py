"""SQL that nobody trusts: attacks of a security review, and more of their kinds, each stopped with a word."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.helpers.processes import process_fields
from tests.helpers.sqlite import connect

from workbench_environments import sql_process
from workbench_environments.confined_sql import Database, make_image
from workbench_environments.sql_process import FUNCTIONS, with_own_functions
from workbench_kit.acting import confine

SCRIPT = "create table t (a integer primary key, b text); insert into t values (1, 'x'), (2, 'y'), (3, 'x');"
ENDLESS = "with recursive n(i) as (select 1 union all select i + 1 from n) "


@pytest.mark.parametrize(
    "statement",
    [
        "select fts3_tokenizer('simple')",  # an address of the library
        "select fts3_tokenizer('simple', X'4141414141414141')",  # and a pointer to follow
        "create virtual table f using fts3(x)",
        "create virtual table f using fts5(x)",
        "create virtual table f using rtree(i, x, y)",
        "select load_extension('x')",
        "select * from pragma_database_list",
        "select * from dbstat",
        "attach ':memory:' as other",
        "vacuum into '{folder}/copy.db'",
        "select randomblob(8)",
        "pragma writable_schema = on",
        "select sqlite_source_id()",
    ],
)
def test_a_statement_reaches_no_pointer_no_file_and_no_chance(statement: str, tmp_path: Path) -> None:
    with Database.make(SCRIPT) as database:
        with pytest.raises(ValueError, match="not allowed here|no such|prohibited|not a valid"):
            database.run(statement.format(folder=tmp_path))
        assert database.run("select count(*) from t") == [(3,)]
    assert not list(tmp_path.iterdir())


@pytest.mark.fault("foreign-paths")
@pytest.mark.parametrize(
    "script",
    [
        "attach '{folder}/other.db' as o; create table stolen as select * from o.cookies;",
        "attach '{folder}/other.db' as o; update o.cookies set value = 'changed';",
        "vacuum into '{folder}/made.db';",
        "create table g as select fts3_tokenizer('simple', X'4141414141414141') as a; create virtual table f using "
        "fts3(x);",
        pytest.param(ENDLESS + "select count(*) from n;", marks=pytest.mark.slow),  # so many steps take seconds
        "create table big (b); " + ENDLESS + "insert into big select zeroblob(900000) from n;",
        "create table t (a); create trigger tr after insert on t begin select load_extension('x'); end; insert into t "
        "values (1);",
        "not sql at all",
    ],
)
def test_a_script_of_a_row_neither_reads_nor_writes_nor_runs_on(script: str, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    connection = connect(other)
    connection.execute("create table cookies (value)")
    connection.execute("insert into cookies values ('secret')")
    connection.commit()
    connection.close()
    before = other.read_bytes()
    with pytest.raises(ValueError):  # noqa: PT011 - each in its own words
        make_image(script.format(folder=tmp_path))
    assert other.read_bytes() == before and list(tmp_path.iterdir()) == [other]


def test_a_script_as_sqlite_dumps_it_is_taken() -> None:
    source = connect(":memory:")
    source.executescript(SCRIPT + "create index i on t (b); create view v as select a from t;")
    dump = "PRAGMA foreign_keys=OFF;\n" + "\n".join(source.iterdump())
    source.close()
    with Database.make(dump) as database:
        assert database.run("select * from v") == [(1,), (2,), (3,)]


def test_a_crash_of_sqlite_ends_its_own_session_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    with Database.make(SCRIPT) as second:
        others = _session_pids()  # those that other tests left open, too
        first = Database.make(SCRIPT)
        (pid,) = set(_session_pids()) - set(others)
        os.kill(pid, 11)
        ended = []
        for database in (first, second):
            try:
                database.run("select 1")
            except ValueError as error:
                ended.append(str(error))
        assert ended == ["the statement ended the database's process"]
        first.close()
    with Database.make(SCRIPT) as third:
        assert third.run("select 1") == [(1,)]


def _session_pids() -> list[int]:
    found = subprocess.check_output(["ps", "-o", "pid=", "--ppid", str(_zygote_pid())], text=True).split()
    return sorted(map(int, found))


def _zygote_pid() -> int:
    import workbench_environments.confined_sql as sql

    assert sql._zygote.process is not None
    return sql._zygote.process.pid


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="Landlock and seccomp are of Linux")


@on_linux
def test_a_session_has_given_up_files_sockets_and_processes() -> None:
    """Its own rights are asked of the kernel, not of SQLite."""
    with Database.make(SCRIPT):
        pid = subprocess.check_output(["ps", "-o", "pid=", "--ppid", str(_zygote_pid())], text=True).split()[0]
        status = Path(f"/proc/{pid}/status").read_text()
        limits = Path(f"/proc/{pid}/limits").read_text()
    assert "Seccomp:\t2" in status and "NoNewPrivs:\t1" in status
    assert "Max file size             0" in limits and "Max core file size        0" in limits


def test_what_a_statement_would_do_is_told_by_sqlite_and_not_by_its_first_word(subtests: pytest.Subtests) -> None:
    for statement, verbs in [
        ("select a from t", ["select"]),
        ("with x as (select 1) delete from t", ["delete"]),
        ("/* a */ -- b\n with x as (select 1) update t set b = 'z'", ["update"]),
        ("replace into t values (1, 'z')", ["delete", "insert"]),
        ("insert or replace into t values (1, 'z')", ["delete", "insert"]),
        ("insert/**/or/**/replace into t values (1, 'z')", ["delete", "insert"]),
        ("insert into t values (1, 'z') on conflict do update set b = 'w'", ["insert", "update"]),
        ("insert into t values (9, replace('a', 'b', 'c'))", ["insert"]),
        ("update or replace t set a = 1", ["delete", "update"]),
        ("drop table t", ["delete", "drop"]),
        ("alter table t add column c", ["alter"]),
        ("values (1)", ["select"]),
        ("delete from nothing", []),
    ]:
        with subtests.test(statement=statement):
            with Database.make(SCRIPT) as database:
                assert database.verbs(statement) == verbs or set(verbs) < set(database.verbs(statement)) <= {
                    *verbs,
                    "select",
                }
                assert database.run("select count(*), min(b) from t") == [(3, "x")], "nothing was done"


def test_what_a_constraint_replaces_is_a_delete() -> None:
    with Database.make(
        "create table q (a text unique on conflict replace, b); insert into q values ('x', 1)"
    ) as database:
        assert "delete" in database.verbs("update q set a = 'x'")
        assert "delete" in database.verbs("insert into q values ('x', 2)")


def test_tables_of_sqlite_itself_are_no_way_around() -> None:
    script = "create table s (a integer primary key autoincrement); insert into s values (6);"
    with Database.make(script) as database:
        statement = "with z as (select 6 as s) delete from sqlite_sequence where seq in (select s from z)"
        assert "delete" in database.verbs(statement)
        assert "update" in database.verbs("update sqlite_sequence set seq = 0")


def test_a_reading_session_that_has_ended_while_it_waited_is_replaced() -> None:
    script = SCRIPT + "-- of its own"
    with Database.make(script, reads=True) as first:
        pid = _session_pids()[-1]
    os.kill(pid, 9)
    with Database.make(script, reads=True) as again:
        assert again is first and again.run("select count(*) from t") == [(3,)]


@on_linux
def test_a_confined_process_opens_no_file_and_no_socket() -> None:
    source = (
        "import sys, os, socket\n"
        f"sys.path[:0] = {[str(Path(module.__file__).parent) for module in (sql_process, confine)]!r}\n"
        "import sql_process, confine\n"
        "sql_process._confined(confine)\n"
        "opens, lists = (lambda: os.open('/etc/passwd', os.O_RDONLY)), (lambda: os.listdir('/'))\n"
        "for attack in (opens, lists, socket.socket, os.fork):\n"
        "    try:\n"
        "        attack()\n"
        "        os.write(1, b'through ')\n"
        "    except OSError:\n"
        "        os.write(1, b'denied ')\n"
        "os._exit(0)\n"
    )
    done = subprocess.run([sys.executable, "-S", "-P", "-c", source], capture_output=True, text=True)
    assert done.stdout.split() == ["denied"] * 4, done.stderr


def test_a_trigger_that_deletes_is_a_delete() -> None:
    with Database.make(SCRIPT + "create trigger tr after insert on t begin delete from t; end;") as database:
        assert "delete" in database.verbs("insert into t values (7, 'z')")


@pytest.mark.parametrize(
    "statement",
    [
        "select length(trim('x' || hex(zeroblob(80000)), hex(zeroblob(80000))))",
        "select length(ltrim(hex(zeroblob(80000)) || 'x', hex(zeroblob(80000))))",
        "select length(rtrim('x' || hex(zeroblob(80000)), hex(zeroblob(80000))))",
        "select instr(zeroblob(400000), zeroblob(200000) || x'01')",
        "select length(replace(hex(zeroblob(200000)), '00', 'ab'))",
    ],
)
def test_no_function_takes_the_product_of_its_lengths(statement: str) -> None:
    """Some 20 s each by SQLite's own. Time is that of the session's processor: no machine's load counts."""
    with Database.make(SCRIPT) as database:
        before = _processor_seconds()
        database.run(statement)
        assert _processor_seconds() - before < 5


def _processor_seconds() -> float:
    pids = subprocess.check_output(["ps", "-o", "pid=", "--ppid", str(_zygote_pid())], text=True).split()
    return sum(int(f[11]) + int(f[12]) for f in map(process_fields, pids) if f) / os.sysconf("SC_CLK_TCK")


def test_functions_of_our_own_give_what_sqlite_gives(subtests: pytest.Subtests) -> None:
    for call in [
        "trim('  a b  ')",
        "trim('xxaxx', 'x')",
        "ltrim('xyxa', 'yx')",
        "rtrim('a  ')",
        "rtrim(12, 2)",
        "trim(null)",
        "trim('a', null)",
        "trim('', '')",
        "trim(x'2061', ' ')",
        "trim('ééaé', 'é')",
        "ltrim('a', 'a')",
        "instr('hello', 'l')",
        "replace('aXbX', 'X', 'yy')",
    ]:
        with subtests.test(call=call):
            plain, own = connect(":memory:"), with_own_functions(connect(":memory:"))
            try:
                assert own.execute(f"select {call}").fetchall() == plain.execute(f"select {call}").fetchall()
            finally:
                plain.close()
                own.close()


def test_a_session_that_only_reads_cannot_change_anything() -> None:
    for statement in ("delete from t", "create table u (a)", "create temp table u (a)", "begin", "analyze"):
        with Database.make(SCRIPT, reads=True) as database:
            with pytest.raises(ValueError, match="not allowed here"):
                database.run(statement)
            assert database.run("select count(*) from t") == [(3,)]


def test_steps_are_what_a_statement_costs_and_the_same_each_time() -> None:
    many = SCRIPT + ENDLESS.replace("from n)", "from n where i < 300)") + "insert into t select i + 3, 'z' from n;"
    pairs, counted = "select count(*) from t x, t y where x.b < y.b", []
    for statement in (pairs, pairs, "select count(*) from t where b = 'z'"):
        with Database.make(many, reads=True) as database:
            assert database.run(statement) and database.steps % 100 == 0
            counted.append(database.steps)
    assert counted[0] == counted[1] > 300 * 300 > 20 * counted[2] > 300
    with Database.make(many) as database, pytest.raises(ValueError, match="too long"):
        database.run(ENDLESS + "select count(*) from n")


def test_values_come_back_as_sqlite_has_them() -> None:
    with Database.make(SCRIPT) as database:
        found = database.run("select 1, -9223372036854775808, 1.5, 9e999, null, 'é\U0001f600', x'00ff', ''")
    assert found == [(1, -(2**63), 1.5, float("inf"), None, "é\U0001f600", b"\x00\xff", "")]


def test_no_function_of_the_list_tells_of_the_machine() -> None:
    forbidden = {"random", "randomblob", "fts3_tokenizer", "load_extension", "sqlite_version", "sqlite_source_id"}
    assert not forbidden & FUNCTIONS
