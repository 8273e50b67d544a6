"""TextArena: games of one or more players, in words.

Source: TextArena (Guertler et al., arXiv 2504.11442), package `textarena`. Players are named 0, 1, ... as there.
"""

from __future__ import annotations

from typing import Any

import textarena


class World:
    """Task: `seed`. settings: `id` of the game, number of `players`, `of`, the player whose reward counts: the score is
    1 for a win, 0.5 for a draw, and otherwise between 0 and 1."""

    def __init__(self, id: str = "TicTacToe-v0", players: int = 2, of: int = 0):
        self.game, self.players, self.of, self.done = textarena.make(id), players, of, False

    def reset(self, task: dict[str, Any]) -> str:
        self.game.reset(num_players=self.players, seed=int(task.get("seed") or 0))
        return self._turn()

    def step(self, action: str) -> str:
        self.done, _ = self.game.step(action)
        return "The game is over." if self.done else self._turn()

    def score(self) -> float:
        if not self.done:
            return 0.0
        rewards, _ = self.game.close()
        return (float(rewards[self.of]) + 1) / 2

    def _turn(self) -> str:
        player, seen = self.game.get_observation()
        self.player = str(player)
        return seen
