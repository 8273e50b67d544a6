"""Attacks by SQL: floods of memory and time by functions that are allowed. Each is refused or bounded, and the next
statement works."""

from __future__ import annotations

import pytest
from tests.helpers.sqlite import connect

from workbench_environments.confined_sql import Database
from workbench_environments.sql_process import RESULT

SETUP = "create table t (a); insert into t values (1), (2)"


def many(n: int, first: str = "1", following: str = "n + 1") -> str:
    """A table c of so many rows n, x."""
    rows = f"select 1, {first} union all select n + 1, {following} from c where n < {n}"
    return f"(with recursive c(n, x) as ({rows}) select * from c)"


LARGE = "hex(zeroblob(400000))"
LIST = f"json_each('[' || replace({LARGE}, '00', '1,') || '1]')"
BOUNDS = "rows between unbounded preceding and current row"
GROUPS = "groups between 10000 preceding and 10000 following exclude ties"
GROWING = "select 1, 'a' union select n + 1, x || n from c where n < 100000"
KEYS = f"(select json_group_object('k' || n, n) as j from {many(60_000)})"
FLOODS = {
    "doubling concatenation": f"select length(group_concat(x, '')) from {many(60, chr(39) + 'a' + chr(39), 'x || x')}",
    "width of printf": "select printf('%1000000000d', 1)",
    "precision of printf": "select printf('%.1000000000f', 1.0)",
    "width by argument": "select printf('%*d', 2147483647, 1)",
    "least width by argument": "select printf('%*d', -2147483648, 1)",
    "precision by argument": "select length(printf('%.*c', 1900000000, 'x'))",  # security 15
    "precision by a text": "select length(printf('%.*c', ' 999999999x', 'x'))",
    "precision by a real": "select length(format('%.*c', 1.9e9, 'x'))",
    "many wide fields": "select printf('" + "%999999d" * 50 + "'" + ", 1" * 50 + ")",
    "wide rows grouped": f"select group_concat(printf('%.*c', 999999, 'a')) from {many(100_000)}",
    "large values summed": f"select sum(length({LARGE})) from {many(1_000_000)}",
    "large separator": f"select group_concat(n, {LARGE}) from {many(1000)}",
    "large blob": "select zeroblob(99999999999)",
    "random blob": "select randomblob(1000000000)",
    "json of many rows": f"select json_group_array(n) from {many(10_000_000)}",
    "json object of many rows": f"select json_group_object(n, x) from {many(10_000_000)}",
    "json_each by json_each": f"select count(*) from {LIST} a, {LIST} b",
    "json_tree of deep lists": "select count(*) from json_tree('" + "[" * 900 + "]" * 900 + f"'), {many(200_000)}",
    "a patch of many keys": f"select json_patch(j, j) from {KEYS}",
    "keys set one by one": f"select json_set(j, '$.k' || n, 1) from {many(3000)}, {KEYS}",
    "keys removed": f"select json_remove(j, {', '.join(repr(f'$.k{n}') for n in range(100))}) from {KEYS}",
    "window over all rows": f"select group_concat({LARGE}) over (order by n {BOUNDS}) from {many(5000)}",
    "groups without ties": f"select group_concat(n) over (order by n {GROUPS}) from {many(20_000)}",
    "union of growing texts": f"with recursive c(n, x) as ({GROWING}) select max(length(x)) from c",
    "rows of large values": f"insert into t select {LARGE} from {many(1000)}",
    "stars in a pattern": f"select count(*) from {many(20_000)} where {LARGE} like '" + "%a" * 400 + "b'",
    "stars in a glob": f"select count(*) from {many(20_000)} where {LARGE} glob '" + "*0" * 400 + "b'",
    "format of a date": "select strftime('" + "%Y" * 400_000 + "')",
    "replacement that grows": f"select replace({LARGE}, '0', {LARGE})",
    "generated column": f"create table g (a, b as ({LARGE} || {LARGE} || {LARGE}) stored); ",
    "join of a table with itself": "select * from t " + " ".join(f"join t as t{n}" for n in range(60)),
    "endless recursion": "with recursive c(n) as (select 1 union all select n + 1 from c) select count(*) from c",
    "deep expression": "select " + "+".join("1" * 100_000),
    "deep function": "select " + "abs(" * 5000 + "1" + ")" * 5000,
    "many terms": "select 1" + " union all select 1" * 20_000,
}


def test_a_flood_ends_and_the_next_statement_works(subtests: pytest.Subtests) -> None:
    for name in FLOODS:
        with subtests.test(name=name):
            with Database.make(SETUP) as database:
                try:
                    rows = database.run(FLOODS[name])
                    assert sum(len(str(value)) for row in rows for value in row) <= 2 * RESULT
                except ValueError as error:
                    assert str(error) and "\n" not in str(error) and len(str(error)) < 500
                try:
                    assert database.run("select count(*) from t")[0][0] >= 2
                except ValueError:  # its process has ended; a new one is at once there
                    with Database.make(SETUP) as again:
                        assert again.run("select count(*) from t") == [(2,)]


@pytest.mark.parametrize(
    "call",
    [
        "printf('%d %s %5.2f%%', 3, 'a', 2.345)",
        "format('%,d|%-8s|%08.3f|%x', 1234567, 'ab', 3.5, 255)",
        "printf('%-5s|%.2s|%%*', 'ab', 'xyz')",
        "printf('%!.3g %q %Q %w', 1.5, 'a''b', null, 'x')",
        "printf('%.3c', 'ab')",
        "printf(null)",
        "printf('no more values: %d %s')",
    ],
)
def test_printf_is_that_of_sqlite(call: str) -> None:
    with Database.make(SETUP) as database:
        assert database.run(f"select {call}") == connect(":memory:").execute(f"select {call}").fetchall()


FORBIDDEN = {
    "a function of a pragma": "select * from pragma_table_info('t')",
    "the list of functions": "select * from pragma_function_list",
    "how SQLite was built": "select * from pragma_compile_options",
    "a pragma": "pragma table_info(t)",
    "a pragma that writes": "pragma writable_schema = on",
    "a pragma by another name": "PrAgMa main.journal_mode = wal",
    "a vacuum": "vacuum",
    "a vacuum into a file": "vacuum into '/tmp/x.db'",
    "an attached file": "attach '/etc/passwd' as x",
    "a match": "select a match 'x' from t",
    "a statement behind another": "select 1; drop table t",
    "an extension": "select load_extension('/tmp/x.so')",
    "a file": "select writefile('/tmp/x', 'y')",
    "a view on a pragma": "create view v as select * from pragma_database_list",
    "a trigger with a pragma": "create trigger r after insert on t begin select * from pragma_database_list; end",
    "an rtree": "create virtual table r using rtree(a, b, c)",
    "a csv": "create virtual table r using csv(filename='/etc/passwd')",
}


def test_what_leads_out_of_the_database_is_refused(subtests: pytest.Subtests) -> None:
    for name in FORBIDDEN:
        with subtests.test(name=name):
            with Database.make(SETUP) as database:
                statement = FORBIDDEN[name]
                with pytest.raises(ValueError, match=r"^[^\n]+$"):
                    database.run(statement)
                    database.run("insert into t values (3)" if "trigger" in statement else "select * from v")
                assert database.run("select count(*) from t")[0][0] in (2, 3)
