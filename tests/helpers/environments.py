"""One small world of each kind, with functions that make and play it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from workbench_kit.acting import Environment, Episode, Position, open_environment

MAP = "#######\n#A.D.G#\n#.###.#\n#K..#.#\n#######"


PAGES = {
    "home": {"text": "Start here.", "links": {"news": "news", "shop": "shop"}},
    "news": {"text": "Nothing.", "links": {}},
    "shop": {"text": "Things.", "links": {"cart": "cart"}},
    "cart": {"text": "Pay.", "links": {}},
}


SCRIPT = "create table t (a int, b text); insert into t values (1, 'x'), (2, 'y'), (3, 'y');"


WORLDS: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "grid": ({}, {"map": MAP}, ["south", "south", "north", "east", "up", "west"]),
    "web": (
        {},
        {"pages": PAGES, "start": "home", "goal": "cart"},
        ["click shop", "back", "click nowhere", "click news"],
    ),
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


def made(name: str, base: Path, **settings: Any) -> Environment:
    if name == "gymnasium":
        pytest.importorskip("gymnasium")
    return open_environment(name, {**WORLDS[name][0], **settings}, base)


class Journal:
    """Effects by content, as the ledger stores them; counts those that really ran."""

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
    async def main() -> list[Position]:
        game = episode(name, base, **settings)
        positions = [await game.start()]
        for action in actions:
            positions.append(await game.take(positions[-1], action))
        return positions

    return asyncio.run(main())
