"""A grid with a key and a door: the shortest way to the goal is blocked until the key is fetched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from workbench_kit.acting import Environment, Step

MOVES = {"north": (-1, 0), "east": (0, 1), "south": (1, 0), "west": (0, -1)}
SIGNS = "#.AKDG"


class Grid(Environment):
    """A map in text: # wall, . floor, A start, K key, D door (shut without a key), G goal. The agent sees all of it.

    The score is the share of goals reached: fetch the key, pass the door, reach the goal.
    """

    help: ClassVar[str] = "north, east, south or west. Walking onto the key (K) takes it; with it the door (D) opens."

    limit: int = Field(100, ge=1, le=10_000, description="moves at most")

    def reset(self, task: Mapping[str, Any]) -> str:
        rows = [row.strip() for row in str(task.get("map", "")).strip().splitlines()]
        cells = "".join(rows)
        if not rows or len({len(row) for row in rows}) > 1 or set(cells) - set(SIGNS):
            raise ValueError(f"the field 'map' must hold lines of equal length with the characters {SIGNS}")
        for sign, least, most in (("A", 1, 1), ("G", 1, 1), ("K", 0, 1), ("D", 0, 1)):
            if not least <= cells.count(sign) <= most:
                raise ValueError(f"the map has {cells.count(sign)} of '{sign}', but needs {least} to {most}")
        start, width = cells.index("A"), len(rows[0])
        self.state = {
            "rows": [row.replace("A", ".") for row in rows],
            "at": [start // width, start % width],
            "key": False,
            "open": False,
            "moves": 0,
        }
        return self._seen()

    def step(self, action: str) -> Step:
        state = self.state
        state["moves"] += 1
        words = [word.strip(".,:!'\"") for word in action.lower().split()]
        named = [word for word in words if word in MOVES]
        if len(named) != 1:
            return self._told("Name one of north, east, south, west.")
        row, column = (here + by for here, by in zip(state["at"], MOVES[named[0]], strict=True))
        inside = 0 <= row < len(state["rows"]) and 0 <= column < len(state["rows"][0])
        sign = state["rows"][row][column] if inside else "#"
        if sign == "#":
            return self._told("There is a wall.")
        if sign == "D" and not state["key"]:
            return self._told("The door is shut, and you have no key.")
        state["at"] = [row, column]
        if sign == "K":
            state["key"] = True
            line = state["rows"][row]
            state["rows"][row] = line[:column] + "." + line[column + 1 :]
        state["open"] = state["open"] or sign == "D"
        if sign == "G":
            return Step("You reached the goal.", True)
        return self._told({"K": "You took the key.", "D": "The door opens."}.get(sign, ""))

    def _told(self, words: str) -> Step:
        return Step(f"{words}\n{self._seen()}".strip(), self.state["moves"] >= self.limit)

    def _seen(self) -> str:
        rows = list(self.state["rows"])
        row, column = self.state["at"]
        rows[row] = rows[row][:column] + "A" + rows[row][column + 1 :]
        return "\n".join([*rows, "You have the key." if self.state["key"] else "You have no key."])

    def identity(self) -> Any:
        return [self.state["at"], self.state["key"], self.state["open"]]

    def actions(self) -> Sequence[str]:
        return list(MOVES)

    def score(self) -> float:
        row, column = self.state["at"]
        reached = self.state["rows"][row][column] == "G"
        cells = "".join(self.state["rows"])
        done = [reached]
        if self.state["key"] or "K" in cells:
            done.append(self.state["key"])
        if "D" in cells:
            done.append(self.state["open"])
        return 1.0 if reached else sum(done) / len(done)
