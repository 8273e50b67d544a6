"""A world of crafts whose settings are tasks, for envgen.yaml: what is made, and what lies there at the start."""

from __future__ import annotations

from typing import Any

#: What each thing is made of.
CRAFTS: dict[str, list[str]] = {
    "wood": [],
    "stone": [],
    "plank": ["wood"],
    "stick": ["plank"],
    "axe": ["stick", "stone"],
    "door": ["plank", "axe"],
}
#: Actions of an episode.
STEPS = 4


class Workshop:
    """Task: `world`, {"goal": a thing, "start": [things]}. Nothing is used up. An episode counts as 1 if the goal was
    made."""

    done = False

    def reset(self, task: dict[str, Any]) -> str:
        self.goal, self.here = task["world"]["goal"], sorted(task["world"]["start"])
        return self._words()

    def step(self, action: str) -> str:
        thing = action.strip().removeprefix("make ")
        if thing not in CRAFTS or any(part not in self.here for part in CRAFTS[thing]):
            return f"That cannot be made. {self._words()}"
        self.here = sorted({*self.here, thing})
        self.done = thing == self.goal
        return self._words()

    def brief(self) -> str:
        return f"Make a {self.goal}. {tell_crafts()}"

    def score(self) -> float:
        return float(self.done)

    def _words(self) -> str:
        return f"On the bench: {', '.join(self.here) or 'nothing'}."


def tell_crafts() -> str:
    return " ".join(f"{thing}: of {' and '.join(parts) or 'nothing'}." for thing, parts in CRAFTS.items())


def read_worlds(worlds: list[Any]) -> list[dict[str, Any]]:
    """Those that are worlds, and in which the goal is not there yet and can be made within an episode."""
    found = []
    for one in worlds:
        goal, start = (one.get("goal"), one.get("start")) if isinstance(one, dict) else (None, None)
        if goal in CRAFTS and isinstance(start, list) and {*map(str, start)} <= {*CRAFTS} - {goal}:
            if len(missing(goal, {*start})) <= STEPS:
                found.append({"goal": goal, "start": start})
    return found


def missing(thing: str, start: set[str]) -> set[str]:
    """What must be made for a thing, itself among it."""
    return set() if thing in start else {thing}.union(*(missing(part, start) for part in CRAFTS[thing]))


def tell_scores(worlds: list[dict[str, Any]], scores: list[float]) -> str:
    """How often each goal was reached, worst first."""
    goals = {world["goal"] for world in worlds}
    shares = {goal: [s for w, s in zip(worlds, scores, strict=True) if w["goal"] == goal] for goal in goals}
    worst = sorted(shares, key=lambda goal: (sum(shares[goal]) / len(shares[goal]), goal))
    return ", ".join(f"{goal} {sum(shares[goal]):.0f} of {len(shares[goal])}" for goal in worst)
