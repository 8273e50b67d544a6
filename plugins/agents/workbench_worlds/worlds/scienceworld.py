"""ScienceWorld: school science tasks in a simulated house. It needs Java.

Source: ScienceWorld (Wang et al., arXiv 2203.07540), package `scienceworld`.
"""

from __future__ import annotations

from typing import Any

from scienceworld import ScienceWorldEnv


class World:
    """Task: `task`, a name, and `variation`. settings: `simplification`, e.g. easy. The score is ScienceWorld's."""

    def __init__(self, simplification: str = "", limit: int = 100):
        self.simplification, self.limit, self.done, self.points = simplification, limit, False, 0

    def reset(self, task: dict[str, Any]) -> str:
        self.house = ScienceWorldEnv("", envStepLimit=self.limit)
        self.house.load(task["task"], int(task.get("variation") or 0), self.simplification)
        seen, self.told = self.house.reset()
        return seen

    def step(self, action: str) -> str:
        seen, reward, self.done, told = self.house.step(action)
        self.reward, self.points = reward / 100, told["score"]
        return seen

    def brief(self) -> str:
        return self.told["taskDesc"]

    def score(self) -> float:
        return max(0, self.points) / 100


def list_tasks(task: str = "", split: str = "train", simplification: str = "") -> list[dict[str, Any]]:
    """List each variation of a task, or of all, in a split of the package: train, dev or test."""
    house, rows = ScienceWorldEnv(""), []
    for name in [task] if task else house.get_task_names():
        house.load(name, 0, simplification)
        rows += [{"task": name, "variation": number} for number in getattr(house, f"get_variations_{split}")()]
    return rows
