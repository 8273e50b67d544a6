"""MiniGrid and BabyAI: rooms with doors, keys and balls, seen from the agent's position, described in words.

Source: MiniGrid & Miniworld (Chevalier-Boisvert et al., arXiv 2306.13831), package `minigrid`; the words follow BALROG
(arXiv 2411.13543) and give the steps forward and aside to each thing.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import minigrid  # noqa: F401  registers its ids
from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT

ACTIONS = ["turn left", "turn right", "go forward", "pick up", "drop", "toggle", "done"]
DOORS = ["open", "closed", "locked"]


class World:
    """Task: `seed`. settings: `id` of the environment. An episode counts as 1 if its mission is done, however long it
    took."""

    def __init__(self, id: str = "MiniGrid-Empty-5x5-v0", **settings: Any):
        self.made, self.done, self.reward = gymnasium.make(id, **settings), False, None

    def reset(self, task: dict[str, Any]) -> str:
        self.seen, _ = self.made.reset(seed=int(task.get("seed") or 0))
        self.earned = 0.0
        return self._words()

    def step(self, action: str) -> str:
        word = action.strip().lower()
        if word not in ACTIONS:
            return f"There is no action '{word[:80]}'.\n{self._words()}"
        self.seen, reward, ended, cut, _ = self.made.step(ACTIONS.index(word))
        self.done, self.reward = bool(ended or cut), float(reward)
        self.earned += self.reward
        return self._words()

    def brief(self) -> str:
        return self.seen["mission"]

    def actions(self) -> list[str] | None:
        return ACTIONS

    def score(self) -> float:
        return float(self.earned > 0)

    def _words(self) -> str:
        """Describe each thing in view, nearest first. The agent looks up from the middle of the lowest row."""
        image, found = self.seen["image"], []
        width, height = image.shape[:2]
        for x in range(width):
            for y in range(height):
                kind, color, state = (int(n) for n in image[x, y])
                name = IDX_TO_OBJECT[kind]
                if name in ("unseen", "empty", "floor") or (x, y) == (width // 2, height - 1):
                    continue
                ahead, aside = height - 1 - y, x - width // 2
                what = (
                    f"{DOORS[state]} {IDX_TO_COLOR[color]} door" if name == "door" else f"{IDX_TO_COLOR[color]} {name}"
                )
                where = [f"{ahead} ahead"] if ahead else []
                where += [f"{abs(aside)} to the {'right' if aside > 0 else 'left'}"] if aside else []
                found.append((ahead + abs(aside), f"{'wall' if name == 'wall' else what}: {', '.join(where)}"))
        held = self.made.unwrapped.carrying
        carries = f"You carry a {held.color} {held.type}." if held else "You carry nothing."
        return "\n".join([carries, *(line for _, line in sorted(found))])
