"""`prompt_mcts` is a tree search: which state it goes on from is chosen by what earlier rounds brought back.

Children come from a table of rewards by path (`a`, `ab`, ...), so no model is asked and nothing is evaluated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from workbench_prompt_mcts import optimizer as prompt_mcts
from workbench_prompt_mcts.optimizer import PromptMCTS, State, _Search


class Planted(_Search):
    """Expands by a table; keeps the paths of the states that it expanded, in their order."""

    def __init__(self, rewards: Mapping[str, float], **settings: Any):
        self.settings, self.rewards, self.expanded = PromptMCTS(**settings), rewards, list[str]()

    def affords_child(self, parent: State) -> bool:
        return True

    async def expand(self, node: State) -> None:
        self.expanded.append(node.action)
        await super().expand(node)

    async def child(self, parent: State) -> State | None:
        name = parent.action + "abcdef"[len(parent.children)]
        reward = self.rewards.get(name, 0.0)
        seen: Any = SimpleNamespace(score=reward, complete=True)
        return parent.add(seen, reward, action=name)


def expanded(rewards: Mapping[str, float], *, exploration: float = 0.5, **settings: Any) -> list[str]:
    """The paths of the states that were expanded. Two rewrites in a row at most, so each round ends below its leaf."""
    search = Planted(rewards, width=2, depth=2, **settings)
    start: Any = SimpleNamespace(score=0.3, complete=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(prompt_mcts, "uct", partial(prompt_mcts.uct, exploration=exploration))
        asyncio.run(search.grow(State(start, 0.3, action="")))
    return search.expanded


def test_a_round_goes_on_from_the_most_promising_state_and_not_from_the_start() -> None:
    """Selection: once the start has children, the best of them gets further ones."""
    assert expanded({"a": 0.4, "b": 0.6, "ba": 0.7}, rounds=3, exploration=0) == ["", "b", "b", "b"]


def test_a_state_whose_rewrites_were_bad_is_left_for_the_next_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back-up: `a` looked best, but what came of it did not."""
    monkeypatch.setattr(prompt_mcts, "BACKUP", "mean")
    rewards = {"a": 0.5, "b": 0.45, "aa": 0.1, "ab": 0.1, "ba": 0.6}
    assert expanded(rewards, rounds=3, exploration=0) == ["", "a", "b", "b"]


def test_a_state_that_was_visited_often_makes_room_for_one_that_was_not() -> None:
    """Back-ups are what visits are counted by: without them the bound never sends a round to `b`."""
    assert expanded({"a": 0.5, "b": 0.45}, rounds=3) == ["", "a", "a", "b"]
    assert expanded({"a": 0.5, "b": 0.45}, rounds=3, exploration=0) == ["", "a", "a", "a"]
