"""Environments: every state can be put back exactly, faults are faults, and each world keeps its own rules."""

from __future__ import annotations

import asyncio
import builtins
import random
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import NodeError, PluginError, SpecError
from workbench.kit.environment import Environment, Episode, Position, Step, open_environment

MAP = "#######\n#A.D.G#\n#.###.#\n#K..#.#\n#######"
PAGES = {
    "home": {"text": "Start here.", "links": {"news": "news", "shop": "shop"}},
    "news": {"text": "Nothing.", "links": {}},
    "shop": {"text": "Things.", "links": {"cart": "cart"}},
    "cart": {"text": "Pay.", "links": {}},
}
THINGS = {"cat": ["alive", "furry"], "stone": [], "fern": ["alive"], "rug": ["furry"]}
SCRIPT = "create table t (a int, b text); insert into t values (1, 'x'), (2, 'y'), (3, 'y');"
WORLDS: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "grid": ({}, {"map": MAP}, ["south", "south", "north", "east", "up", "west"]),
    "web": (
        {},
        {"pages": PAGES, "start": "home", "goal": "cart"},
        ["click shop", "back", "click nowhere", "click news"],
    ),
    "twenty_questions": ({}, {"things": THINGS, "secret": "cat"}, ["ask alive", "ask furry", "ask what", "guess fern"]),
    "sql": (
        {},
        {"schema": SCRIPT, "gold_sql": "select count(*) from t"},
        [
            "select * from t",
            "delete from t where a = 1",
            "select nonsense",
            "create table u (z)",
            "select count(*) from t",
        ],
    ),
    "gymnasium": ({"id": "FrozenLake-v1", "settings": {"is_slippery": True}}, {"seed": 3}, ["1", "2", "0", "up"]),
    "python:coin.py:Coin": ({}, {}, ["flip", "flip", "flip"]),
}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "coin.py").write_text(
        "import random\nfrom workbench.kit.environment import Environment, Step\nclass Coin(Environment):\n"
        "    'Not deterministic.'\n    def reset(self, task):\n        return 'go'\n    def step(self, action):\n"
        "        if action == 'break':\n            raise RuntimeError('it broke')\n"
        "        return Step(str(random.SystemRandom().random()))\n"
        "    def score(self):\n        return 0.5\n"
        "    def snapshot(self):\n        return None\n"
    )
    return tmp_path


def made(name: str, base: Path, **settings: Any) -> Environment:
    if name == "gymnasium":
        pytest.importorskip("gymnasium")
    return open_environment(name, {**WORLDS[name][0], **settings}, base)


class Journal:
    """Effects by their content, as the ledger keeps them; counts what was really run."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.at = self.ran = 0

    async def effect(self, kind: str, content: Any, run: Any) -> Any:
        assert kind == "environment"
        self.at += 1
        if self.at > len(self.kept):
            self.ran += 1
            self.kept.append(await run())
        return dict(self.kept[self.at - 1])


async def allowed(tool: str, arguments: Any) -> None:
    """No policy."""


def episode(name: str, base: Path, journal: Journal | None = None, **settings: Any) -> Episode:
    made(name, base, **settings)
    return Episode(name, {**WORLDS[name][0], **settings}, base, WORLDS[name][1], (journal or Journal()).effect, allowed)


def play(name: str, base: Path, actions: list[str], **settings: Any) -> list[Position]:
    async def course() -> list[Position]:
        game = episode(name, base, **settings)
        positions = [await game.start()]
        for action in actions:
            positions.append(await game.take(positions[-1], action))
        return positions

    return asyncio.run(course())


@pytest.mark.parametrize("name", ["grid", "web", "twenty_questions", "sql", "gymnasium"])
def test_a_state_that_was_put_back_is_the_state_that_was_left(name: str, base: Path) -> None:
    """By restoring and by playing again; and going on from it gives what playing straight through gives."""
    actions = WORLDS[name][2]
    straight = made(name, base)
    seen = [straight.reset(WORLDS[name][1])]
    positions = play(name, base, actions)
    assert positions[0].observation == seen[0]
    for action, position in zip(actions, positions[1:], strict=True):
        step = straight.step(action)
        assert (step.observation, step.done) == (position.observation, position.done)
        assert position.score == straight.score() and position.snapshot == straight.snapshot()
    straight.close()

    async def again() -> None:
        game = episode(name, base)
        for position in positions:
            assert await game.replay(position) == position

    asyncio.run(again())
    assert positions[-1].actions == tuple(actions)


@pytest.mark.parametrize("name", ["grid", "web", "twenty_questions", "sql"])
def test_random_walks_keep_scores_in_range_and_branches_apart(name: str, base: Path) -> None:
    """Two branches from one position do not touch each other."""
    for seed in range(10):
        rng = random.Random(seed)
        world = made(name, base)
        pool = WORLDS[name][2]
        world.reset(WORLDS[name][1])
        for _ in range(8):
            before = world.snapshot()
            listed = world.actions()
            action = rng.choice([*(listed or []), *pool])
            other = made(name, base)
            other.reset(WORLDS[name][1])
            other.restore(before)
            kept = str(before)
            there = other.step(rng.choice(pool))
            assert str(before) == kept, "a snapshot must not change with the world it was given to"
            step = world.step(action)
            assert 0.0 <= world.score() <= 1.0 and isinstance(there, Step)
            other.close()
            if step.done:
                break
        world.close()


def test_every_transition_is_read_from_the_journal_in_a_resumed_run(base: Path) -> None:
    journal = Journal()

    async def course() -> list[Position]:
        game = episode("grid", base, journal)
        first = await game.start()
        second = await game.take(first, "south")
        return [first, second, await game.replay(second)]

    whole = asyncio.run(course())
    assert journal.ran == 3
    journal.at = 0
    assert asyncio.run(course()) == whole and journal.ran == 3


def test_a_world_that_cannot_be_reset_is_refused(base: Path) -> None:
    positions = play("python:coin.py:Coin", base, ["flip"])
    with pytest.raises(NodeError, match="cannot be reset: 1 actions played again gave another state") as caught:
        asyncio.run(episode("python:coin.py:Coin", base).take(positions[-1], "flip"))
    assert caught.value.kind == "environment"


def test_a_fault_is_recorded_and_the_same_when_it_is_read_again(base: Path) -> None:
    journal = Journal()

    async def course() -> None:
        game = episode("python:coin.py:Coin", base, journal)
        await game.take(await game.start(), "break")

    for _ in range(2):
        journal.at = 0
        with pytest.raises(NodeError, match="RuntimeError: it broke") as caught:
            asyncio.run(course())
        assert caught.value.kind == "environment" and journal.ran == 2


@pytest.mark.parametrize(
    ("name", "task", "words"),
    [
        ("grid", {"map": "#A#"}, "0 of 'G'"),
        ("grid", {"map": "AG\n#"}, "lines of equal length"),
        ("web", {"pages": PAGES, "start": "home", "goal": "bank"}, "'goal' must name one of the pages, not 'bank'"),
        ("web", {"pages": {"a": {"links": {"x": "b"}}}, "start": "a", "goal": "a"}, "leads to no page: 'b'"),
        ("twenty_questions", {"things": THINGS, "secret": "dog"}, "'secret' must name one"),
        ("sql", {"db": "../etc"}, "must name a database"),
        ("sql", {"schema": SCRIPT}, "'gold_sql' must hold"),
    ],
)
def test_a_task_that_cannot_be_played_says_what_it_lacks(name: str, task: Any, words: str, base: Path) -> None:
    with pytest.raises(ValueError, match=words):
        made(name, base).reset(task)


def test_names_and_settings_are_checked(base: Path) -> None:
    with pytest.raises(SpecError, match="there is no environment 'gird'") as caught:
        open_environment("gird", {}, base)
    assert "Did you mean 'grid'?" in str(caught.value)
    with pytest.raises(SpecError, match="limits") as caught:
        open_environment("grid", {"limits": 3}, base)
    assert "Did you mean 'limit'?" in str(caught.value)
    (base / "no.py").write_text("def f(): pass\n")
    with pytest.raises(PluginError, match="not a subclass"):
        open_environment("python:no.py:f", {}, base)


# The worlds


def test_the_door_needs_the_key_and_the_score_is_the_share_of_what_is_done(base: Path) -> None:
    way = ["east", "east", "west", "south", "south", "north", "north", "east", "east", "east", "east"]
    positions = play("grid", base, way)
    assert "The door is shut" in positions[2].observation and "You took the key." in positions[5].observation
    assert [round(p.score, 2) for p in positions] == [0, 0, 0, 0, 0, 0.33, 0.33, 0.33, 0.33, 0.67, 0.67, 1.0]
    assert positions[-1].done and positions[-1].observation == "You reached the goal."
    assert play("grid", base, ["up"] * 3, limit=3)[-1].done
    there, back = play("grid", base, ["south", "north"])[0], play("grid", base, ["south", "north"])[2]
    assert there.same == back.same and there.key != back.key, "the same cell, and not the same number of moves"


def test_a_walk_goes_by_links_and_back(base: Path) -> None:
    positions = play("web", base, ["click shop", "back", "back", "click SHOP", "click cart"])
    assert [p.observation.split(":")[0] for p in positions[:3]] == ["home", "shop", "home"]
    assert positions[3].observation.startswith("There is no page to go back to.")
    assert positions[1].hints == ("click cart", "back") and positions[0].hints == ("click news", "click shop")
    assert positions[-1].done and positions[-1].score == 1.0 and positions[-2].score == 0.0


def test_a_guess_ends_the_game_and_questions_run_out(base: Path) -> None:
    right = play("twenty_questions", base, ["ask alive", "ask furry", "guess cat"])
    assert [p.observation.split(".")[0] for p in right[1:]] == ["alive: yes", "furry: yes", "Right"]
    assert right[-1].score == 1.0 and right[-1].done
    wrong = play("twenty_questions", base, ["guess fern"])
    assert wrong[-1].done and wrong[-1].score == 0.0
    late = play("twenty_questions", base, ["ask alive", "ask furry"], limit=1)
    assert late[-1].done and late[1].hints == tuple(f"guess {t}" for t in THINGS)


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


def test_gymnasium_is_played_again_from_its_seed(base: Path) -> None:
    pytest.importorskip("gymnasium")
    names = ["west", "south", "east", "north"]
    positions = play(
        "gymnasium", base, ["south", "south", "east"], actions_named=names, show="ansi", settings={"is_slippery": False}
    )
    assert positions[0].hints == tuple(names)
    assert [p.observation.split("\n")[0] for p in positions] == ["0", "4", "8", "9"]
    assert "[S]FFF" in positions[0].observation and positions[0].snapshot is None
    with pytest.raises(SpecError, match="gymnasium makes no 'FrozenLak-v1'"):
        made("gymnasium", base, id="FrozenLak-v1").reset({})


def test_without_gymnasium_the_error_names_the_extra(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "gymnasium":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(SpecError, match=r"pip install -e '\.\[gymnasium\]'"):
        open_environment("gymnasium", {}, base).reset({})


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


def test_functions_whose_work_is_a_product_of_lengths_are_bounded_and_mean_the_same(base: Path) -> None:
    game = open_environment("sql", {}, base)
    game.reset({"schema": "create table t (a);", "gold_sql": "select 1"})
    begun = time.monotonic()
    game.step("select instr(zeroblob(400000), zeroblob(200000) || x'01')")  # 20 s by SQLite's own
    assert time.monotonic() - begun < 5
    plain = sqlite3.connect(":memory:")
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


def test_a_step_earns_its_own_reward_or_what_it_changed_of_the_score(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (base / "world.py").write_text(
        "from workbench.kit.environment import Environment, Step\nclass World(Environment):\n"
        "    def reset(self, task):\n        self.state = 0\n        return 'here'\n"
        "    def step(self, action):\n        self.state += 1\n"
        "        return Step('there', reward=float(action) if action != '-' else None)\n"
        "    def score(self):\n        return min(self.state / 4, 1.0)\n"
    )
    monkeypatch.setitem(WORLDS, "python:world.py:World", ({}, {}, []))
    positions = play("python:world.py:World", base, ["-", "-2", "-"])
    assert [p.reward for p in positions] == [0.0, 0.25, -1.75, -1.5]
