"""`mcts` with `policy: uct`: parents are chosen by their bound, and a workflow gets more children as it is visited."""

from __future__ import annotations

import random
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from workbench_kit.searching import Node
from workbench_mcts import search
from workbench_mcts.optimizer import MCTS
from workbench_mcts.search import Search, State


def chosen(root: Node[Any], seed: int, **settings: Any) -> Any:
    """The action of the parent that a round would take in this tree."""
    made = object.__new__(Search)
    made.settings = MCTS.model_validate(settings)
    study: Any = SimpleNamespace(rng=random.Random(seed))
    made.study = study
    parent: Node[State] | None = made.parent(root)
    return None if parent is None else parent.action


def tree() -> Node[Any]:
    """The start with three children: `often` is better and was visited nine times, `once` a single time, one is
    closed."""
    root: Node[Any] = Node(None, 0.5, action="start")
    often, once = root.add(None, 0.8, action="often"), root.add(None, 0.7, action="once")
    often.returns, once.returns, root.returns = [0.8] * 9, [0.7], [0.8] * 9 + [0.7]
    root.add(None, 0.1, action="third").closed = True
    return root


@pytest.mark.parametrize(("exploration", "expected"), [(0.0, "often"), (0.5, "once")])
def test_uct_takes_the_highest_bound_whatever_is_drawn(
    exploration: float, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Soft mixing draws: in twenty draws it takes more than one of them, and the start, too."""
    monkeypatch.setattr(search, "WIDENING", 0.01)
    monkeypatch.setattr(search, "uct", partial(search.uct, exploration=exploration))
    assert {chosen(tree(), s, policy="uct") for s in range(20)} == {expected}
    assert len({chosen(tree(), s, policy="softmix") for s in range(20)}) > 1


@pytest.mark.parametrize(("widening", "expected"), [(0.01, "once"), (0.5, "start")])
def test_uct_widens_what_was_visited(widening: float, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten visits leave the start room for 2 x 10 ** 0.5 = 6 children, or for two where it hardly widens."""
    monkeypatch.setattr(search, "WIDENING", widening)
    assert chosen(tree(), 0, policy="uct") == expected


def test_uct_ends_where_all_is_closed() -> None:
    root = tree()
    for node in root.walk():
        node.closed = True
    assert chosen(root, 0, policy="uct") is None
