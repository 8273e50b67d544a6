"""A live world of one's own, for counter.yaml: a visitor at a counter, and a clerk who stamps for a desk.

It imports nothing of the workbench: it runs in a process of its own, by whichever interpreter `python:` names.
"""

from __future__ import annotations

from typing import Any

DESKS = ["billing", "technical", "shipping", "returns", "account"]


class Counter:
    """Task: `label`, the right desk. The visitor speaks first; what one says, the other hears. The clerk has the tool
    `stamp`, which ends it."""

    done = False

    def reset(self, task: dict[str, Any]) -> str:
        self.label, self.player, self.stamped = task["label"], "visitor", ""
        return "The clerk looks up."

    def step(self, action: Any) -> str:
        if isinstance(action, dict):  # only the clerk has a tool
            self.stamped = action["arguments"]["desk"]
            self.done = self.stamped in DESKS
            return "Stamped." if self.done else f"There is no such desk. There are: {', '.join(DESKS)}."
        self.player = "clerk" if self.player == "visitor" else "visitor"
        return action

    def brief(self) -> str:
        return "You are served." if self.player == "visitor" else f"Find out which desk it is for: {', '.join(DESKS)}."

    def tools(self) -> list[dict[str, Any]]:
        desk = {"type": "object", "properties": {"desk": {"type": "string", "enum": DESKS}}, "required": ["desk"]}
        stamp = {"name": "stamp", "description": "Stamp the form for a desk.", "parameters": desk}
        return [stamp] if self.player == "clerk" else []

    def score(self) -> float:
        return float(self.stamped == self.label)
