"""PDDLGym: planning problems, whose states are lists of facts and whose actions are operators with objects.

Source: PDDLGym (Silver and Chitnis, arXiv 2002.06432), package `pddlgym`.
"""

from __future__ import annotations

from typing import Any

import pddlgym


class World:
    """Task: `problem`, its number. settings: `id` of the domain. An impossible action changes nothing."""

    def __init__(self, id: str = "PDDLEnvBlocks-v0"):
        self.made, self.done, self.reward = pddlgym.make(id), False, None

    def reset(self, task: dict[str, Any]) -> str:
        self.made.fix_problem_index(int(task.get("problem") or 0))
        self.seen, _ = self.made.reset()
        return self._facts()

    def step(self, action: str) -> str:
        wanted = action.replace(" ", "")
        found = next((one for one in self._possible() if _words(one) == wanted), None)
        if found is None:
            return f"That is not possible now: {action[:200]}\n{self._facts()}"
        self.seen, reward, self.done, *_ = self.made.step(found)
        self.reward = float(reward)
        return self._facts()

    def brief(self) -> str:
        return f"Reach: {_words(self.seen.goal)}"

    def actions(self) -> list[str] | None:
        return sorted(map(_words, self._possible()))

    def score(self) -> float:
        return float(bool(self.done and self.reward))

    def _possible(self) -> Any:
        return self.made.action_space.all_ground_literals(self.seen, valid_only=True)

    def _facts(self) -> str:
        return "\n".join(sorted(map(_words, self.seen.literals)))


def _words(literal: Any) -> str:
    """Return a fact or an action without the types of its objects: on(a,b)."""
    return ",".join(
        part.split(":")[0] + (")" * part.count(")") if ":" in part else "") for part in str(literal).split(",")
    )


def list_tasks(id: str = "PDDLEnvBlocks-v0") -> list[dict[str, Any]]:
    """List the problems of a domain."""
    return [{"problem": number} for number in range(len(pddlgym.make(id).problems))]
