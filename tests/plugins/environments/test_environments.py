"""What all environments promise: states restore exactly, replays read the journal, faults are recorded."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.environments import PAGES, SCRIPT, WORLDS, Journal, episode, made, play

from workbench.errors import NodeError, PluginError, SpecError
from workbench_kit.acting import Position, Step, open_environment


@pytest.mark.parametrize("name", ["grid", "web", "sql", "gymnasium"])
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


@pytest.mark.parametrize("name", ["grid", "web", "sql"])
def test_random_walks_keep_scores_in_range_and_branches_apart(name: str, base: Path) -> None:
    """Two branches from one position do not touch each other."""
    for seed in range(3 if name == "sql" else 10):  # each of its worlds is a process
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

    async def main() -> list[Position]:
        game = episode("grid", base, journal)
        first = await game.start()
        second = await game.take(first, "south")
        return [first, second, await game.replay(second)]

    whole = asyncio.run(main())
    assert journal.ran == 3
    journal.at = 0
    assert asyncio.run(main()) == whole and journal.ran == 3


def test_a_world_that_cannot_be_reset_is_refused(base: Path) -> None:
    positions = play("python:coin.py:Coin", base, ["flip"])
    with pytest.raises(NodeError, match="is not deterministic: 1 replayed actions led to another state") as caught:
        asyncio.run(episode("python:coin.py:Coin", base).take(positions[-1], "flip"))
    assert caught.value.kind == "environment"


def test_a_fault_is_recorded_and_the_same_when_it_is_read_again(base: Path) -> None:
    journal = Journal()

    async def main() -> None:
        game = episode("python:coin.py:Coin", base, journal)
        await game.take(await game.start(), "break")

    for _ in range(2):
        journal.at = 0
        with pytest.raises(NodeError, match="RuntimeError: it broke") as caught:
            asyncio.run(main())
        assert caught.value.kind == "environment" and journal.ran == 2


@pytest.mark.parametrize(
    ("name", "task", "words"),
    [
        ("grid", {"map": "#A#"}, "0 of 'G'"),
        ("grid", {"map": "AG\n#"}, "lines of equal length"),
        ("web", {"pages": PAGES, "start": "home", "goal": "bank"}, "'goal' must name one of the pages, not 'bank'"),
        ("web", {"pages": {"a": {"links": {"x": "b"}}}, "start": "a", "goal": "a"}, "leads to no page: 'b'"),
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


def test_a_step_earns_its_own_reward_or_what_it_changed_of_the_score(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (base / "world.py").write_text(
        "from workbench_kit.acting import Environment, Step\nclass World(Environment):\n"
        "    def reset(self, task):\n        self.state = 0\n        return 'here'\n"
        "    def step(self, action):\n        self.state += 1\n"
        "        return Step('there', reward=float(action) if action != '-' else None)\n"
        "    def score(self):\n        return min(self.state / 4, 1.0)\n"
    )
    monkeypatch.setitem(WORLDS, "python:world.py:World", ({}, {}, []))
    positions = play("python:world.py:World", base, ["-", "-2", "-"])
    assert [p.reward for p in positions] == [0.0, 0.25, -1.75, -1.5]
