"""The `sql` environment: how a database is scored, and the limits on what a statement may compute."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.helpers.environments import SCRIPT, made
from tests.helpers.sqlite import connect

from workbench_kit.acting import open_environment


def test_a_script_is_not_a_link_out_of_its_folder(base: Path) -> None:
    (base / "scripts").mkdir()
    (base / "secret.sql").write_text(SCRIPT)
    (base / "scripts/inside.sql").write_text(SCRIPT)
    (base / "scripts/out.sql").symlink_to("../secret.sql")
    (base / "scripts/link.sql").symlink_to("inside.sql")
    world = made("sql", base, folder="scripts")
    assert world.reset({"db": "link", "gold_sql": "select 1"}).startswith("Tables:")
    with pytest.raises(ValueError, match="out.sql leads out of the folder"):
        world.reset({"db": "out", "gold_sql": "select 1"})
    world.close()


def test_a_database_is_scored_by_rows_or_by_effect_and_never_by_emptying_it(base: Path) -> None:
    def final(gold: str, *statements: str) -> float:
        world = made("sql", base)
        world.reset({"schema": SCRIPT, "gold_sql": gold})
        for statement in statements:
            world.step(statement)
        score = world.score()
        world.close()
        return score

    assert final("select a from t where b = 'y'", "select a from t where b = 'y' order by a desc;") == 1.0
    assert final("select a from t order by a", "select a from t order by a desc") == 0.0
    assert final("select a from t", "```sql\nselect a from t\n```") == 1.0
    assert final("select a from t") == final("select a from t", "select b from t") == 0.0
    assert final("select a from t", "delete from t", "select b from t") == 0.0
    assert final("delete from t where a = 2", "delete from t where a = 2") == 1.0
    assert final("delete from t where a = 2", "delete from t where a = 1") == 0.0
    assert final("select a from t", "create table u as select a from t", "select a from u") == 0.0
    world = made("sql", base)
    world.reset({"schema": SCRIPT, "gold_sql": "select 1"})
    assert "not allowed" in world.step(f"attach '{base}/x.db' as x").observation
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"
    assert "too long" in world.step(endless).observation
    world.close()


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("select randomblob(1000000)", "not allowed here"),
        ("insert into t values (RANDOM(), 'z')", "not allowed here"),
        ("select zeroblob(2000000)", "too big"),
        ("select hex(zeroblob(600000))", "too big"),
        (
            "with recursive n(i) as (select 1 union all select i + 1 from n) select zeroblob(900000) from n",
            "more than 10000000",
        ),
        (
            "insert into t with recursive n(i) as (select 1 union all select i + 1 from n limit 20) "
            "select 1, zeroblob(900000) from n returning b",
            "more than 10000000",
        ),
        (
            "insert into t with recursive n(i) as (select 1 union all select i + 1 from n) select 1, "
            "zeroblob(900000) from n",
            "too many",
        ),
        ("create temp table u as select zeroblob(900000) from t a, t b, t c, t d, t e", "full"),
    ],
)
def test_a_statement_neither_exhausts_the_process_nor_draws(statement: str, told: str, base: Path) -> None:
    world = made("sql", base)
    world.reset({"schema": SCRIPT, "gold_sql": "select 1"})
    before = world.snapshot()
    observation = world.step(statement).observation
    assert observation.startswith("error:") and told in observation
    assert world.snapshot()["changes"] == before["changes"] == [], "nothing that a restore would do again"
    assert world.step("select count(*) from t").observation == "(3,)"
    world.close()


MANY = "with recursive n(i) as (select 1 union all select i + 1 from n limit 900) "


@pytest.mark.parametrize(
    "statement",
    [
        MANY + "select count(*) from (select i, hex(zeroblob(400000)) as h from n order by h, i limit 899)",
        MANY
        + ", m as materialized (select i, hex(zeroblob(400000)) from n) select count(*) from m a join m b on a.i = b.i",
        "with recursive n(i, b) as (select 1, zeroblob(900000) union select i + 1, zeroblob(900000) from n limit 900) "
        "select count(*) from n",
        MANY
        + "insert into t select i, length(h) from (select i, hex(zeroblob(400000)) as h from n order by h, i limit "
        "899)",
    ],
    ids=["order by", "materialized", "union", "insert"],
)
def test_what_is_put_aside_to_be_sorted_or_compared_is_bounded(statement: str, base: Path) -> None:
    """720 MB each, which SQLite keeps in memory and in temporary files, both without bound of its own."""
    world = made("sql", base)
    world.reset({"schema": SCRIPT, "gold_sql": "select 1"})
    seen = world.step(statement).observation
    assert seen == "error: it works through too many large values at once; ask for fewer or shorter rows"
    assert world.step("select count(*) from t").observation == "(3,)", "nothing was inserted"
    world.close()


def test_large_values_and_many_rows_may_be_sorted_each_for_itself(base: Path) -> None:
    world = made("sql", base)
    world.reset({"schema": SCRIPT, "gold_sql": "select 1"})
    many = MANY.replace("900", "50000") + "select i from n order by -i limit 1"
    large = (
        MANY.replace("900", "9")
        + "select length(h) from (select hex(zeroblob(400000)) as h, i from n order by h, i) limit 1"
    )
    added = MANY.replace("900", "9") + "insert into t select i, hex(zeroblob(40000)) from n order by -i"
    assert [world.step(s).observation for s in (many, large, added)] == [
        "(50000,)",
        "(800000,)",
        "done, 9 rows changed",
    ]
    world.close()


def test_an_observation_is_cut_and_a_large_value_is_still_compared(base: Path) -> None:
    world = made("sql", base, chars=100, rows=2)
    change = "insert into t values (4, zeroblob(900000))"
    world.reset({"schema": SCRIPT, "gold_sql": change})
    seen = world.step("select hex(zeroblob(1000)) from t").observation
    assert len(seen.split("\n")[0]) == 100 and seen.endswith("…\n... and 1 more rows")
    assert len(world.step(f"select {'x' * 1000}").observation) == 100
    world.step(change)
    assert world.score() == 1.0
    world.close()


def test_the_clock_of_a_database_stands_still(base: Path) -> None:
    """Also in defaults, in the script itself, and where the time is left out; other times are as ever."""
    script = "create table t (a, at default current_timestamp); insert into t (a) values (1);"
    game = open_environment("sql", {}, base)
    game.reset({"schema": script, "gold_sql": "select 1"})
    game.step("insert into t (a) values (2)")
    assert game.step("select at from t").observation.count("'2024-01-01 00:00:00'") == 2
    seen = game.step(
        "select current_date, current_time, date('now', '+1 day'), datetime(), time('NOW'), "
        "strftime('%Y'), unixepoch(), julianday('now')"
    ).observation
    assert seen == repr(
        ("2024-01-01", "00:00:00", "2024-01-02", "2024-01-01 00:00:00", "00:00:00", "2024", 1704067200, 2460310.5)
    )
    assert game.step("select date('1999-12-31', '+1 day'), strftime('%d', 0.5)").observation == "('2000-01-01', '25')"
    assert game.step("select date('nonsense')").observation == "(None,)"
    game.close()


def test_functions_whose_work_is_a_product_of_lengths_mean_the_same(base: Path) -> None:
    game = open_environment("sql", {}, base)
    game.reset({"schema": "create table t (a);", "gold_sql": "select 1"})
    plain = connect(":memory:")
    for what in (
        "instr('hello', 'l')",
        "instr(x'0102', x'02')",
        "instr(12345, '3')",
        "instr(null, 'a')",
        "instr('a', '')",
        "replace('aXbX', 'X', 'yy')",
        "replace('a', '', 'b')",
        "replace(123, 2, 'z')",
        "replace(1.5, '.', ',')",
        "replace(null, 'a', 'b')",
        "'abc' like 'A%'",
    ):
        assert str(plain.execute(f"select {what}").fetchone()) in game.step(f"select {what}").observation, what
    assert "error" in game.step(f"select 'a' like '{'%a' * 1000}'").observation.lower()
    game.close()
