"""An environment of one's own, for best_first.yaml: a hall with desks, where a ticket is carried to the right one."""

from __future__ import annotations

from typing import Any

from workbench_kit.acting import Environment, Step

DESKS = ("billing", "technical", "shipping", "returns", "account")


class Desks(Environment):
    """Actions are names of desks. A desk says whether the ticket is for it, and keeps one that is."""

    help = "the name of a desk"

    def reset(self, task: Any) -> str:
        if task.get("label") not in DESKS:
            raise ValueError(f"the field 'label' must name a desk, not {task.get('label')!r}")
        self.state = {"at": "hall", "label": task["label"]}
        return "You stand in the hall."

    def step(self, action: str) -> Step:
        if action not in DESKS:
            return Step("There is no such desk.")
        self.state["at"] = action
        ours = self.score() == 1.0
        return Step(f"The {action} desk: this is {'for us.' if ours else 'none of our tickets.'}", ours)

    def actions(self) -> list[str]:
        return list(DESKS)

    def score(self) -> float:
        return float(self.state["at"] == self.state["label"])


def taken(inputs: Any, position: Any) -> float:
    """What a state is worth: 1 at a desk that takes the ticket. It reads what the agent sees, and not the score."""
    return float("for us" in position.observation)


def delivered(example: Any, prediction: Any) -> float:
    """The metric: the environment's score of the place where the agent ended."""
    return float(prediction["score"])
