"""The tree: states, the rule of selection, and the back-up. No calls are made here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from workbench import Evaluation, Workflow

Backup = Literal["max", "mean", "sum"]


@dataclass(eq=False)
class State:
    """A workflow with its reward, the mean score on the guide rows.

    address: the prompt in which it differs from its parent. returns: one number for each back-up through it.
    closed: not to be expanded any more; nothing below it is open then.
    """

    workflow: Workflow
    evaluation: Evaluation
    parent: State | None = None
    address: str = ""
    children: list[State] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    closed: bool = False

    @property
    def reward(self) -> float:
        return self.evaluation.score

    @property
    def depth(self) -> int:
        return len(self.path) - 1

    @property
    def path(self) -> list[State]:
        """From the root to here."""
        return [*(self.parent.path if self.parent else []), self]

    @property
    def value(self) -> float:
        """The mean of what was backed up; the reward as long as that is nothing."""
        return math.fsum(self.returns) / len(self.returns) if self.returns else self.reward

    def uct(self, exploration: float) -> float:
        """Upper confidence bound of a child, as in PromptAgent: a child without a back-up counts as one with one."""
        assert self.parent is not None
        visits, above = len(self.returns), len(self.parent.returns)
        return self.value + exploration * math.sqrt(math.log(above + 1) / max(1, visits))

    def walk(self) -> Iterator[State]:
        """This state and all below it, in the order in which they were made at each level."""
        yield self
        for child in self.children:
            yield from child.walk()


def select(root: State, exploration: float) -> State | None:
    """The state to expand: down along the highest bounds of open states; None if all is closed.

    A state whose children are all closed is open itself: it gets further children.
    """
    state = root
    while open_children := [c for c in state.children if not c.closed]:
        state = max(open_children, key=lambda c: c.uct(exploration))
    return None if state.closed else state


def back_up(path: Sequence[State], backup: Backup) -> None:
    """Tell each state of a path what came of it: a number made of the rewards from itself to the path's end."""
    for index, state in enumerate(path):
        rewards = [s.reward for s in path[index:]]
        total = math.fsum(rewards)
        state.returns.append(max(rewards) if backup == "max" else total / len(rewards) if backup == "mean" else total)
