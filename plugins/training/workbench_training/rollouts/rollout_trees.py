"""Trees of rollouts: runs that share their first calls and then diverge, and the value of each of their answers.

A run takes one of `branches` answers at each of its first `depth` calls, so branches ** depth runs are the leaves of a
tree whose inner calls are made once. The value of an answer is the mean reward of the leaves under it. Answers to one
prompt of one agent can then be compared, also in the middle of a run (MALT, arXiv 2412.01928; Agent Q, arXiv
2408.07199).

Departures: MALT compares the answers of three models in a fixed order, and Agent Q searches where it looks promising
(MCTS) and mixes in a critic's ranking. Here any workflow can be run, every branch is grown, and only rewards count, so
that no critic has to be trained.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from workbench.workflow import Schedule, Workflow
from workbench_training.rollouts.token_rows import RolloutRows, Row

MAX_LEAVES = 256


class RolloutTree(BaseModel):
    """Runs that share their first calls. The sizes are MALT's, from memory; the margin is ours."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    branches: int = Field(3, ge=2, le=16, description="answers that are drawn to each of the first calls of a run")
    depth: int = Field(3, ge=1, le=8, description="calls that branch; later ones belong to one run alone")
    margin: float = Field(
        0.3,
        ge=0,
        le=1,
        description="dpo: least difference in value between the two answers of a pair",
    )

    @model_validator(mode="after")
    def _bounded(self) -> RolloutTree:
        if self.leaves > MAX_LEAVES:
            raise ValueError(
                f"{self.branches} branches at depth {self.depth} are {self.leaves} runs of each row, more "
                f"than {MAX_LEAVES}; use fewer"
            )
        return self

    @property
    def leaves(self) -> int:
        return self.branches**self.depth

    def draws(self, leaf: int) -> list[int]:
        """The replicas of the calls of a run by their places: runs with the same first branches share them."""
        return [leaf // self.branches ** (self.depth - 1 - level) for level in range(self.depth)]

    def calls_of(self, workflow: Workflow) -> int:
        """The most calls that a tree of runs of a workflow can take."""
        nodes = workflow.enabled_nodes
        order = Schedule(nodes, workflow.nodes, workflow.graph).order
        return self.calls([nodes[name].max_calls for name in order])

    def calls(self, nodes: Sequence[int]) -> int:
        """The most calls that a tree can take. nodes: the most calls of each node of the workflow, in its order."""
        places = [place + n for place, count in enumerate(nodes) for n in range(count)]
        return sum(self.branches ** (min(place, self.depth - 1) + 1) for place in places)


def average_answers(runs: Iterable[RolloutRows]) -> list[RolloutRows]:
    """Each answer to a prompt once, as a rollout of one row. Its reward and score are the means of the runs that went
    through it; runs without a reward do not count.

    runs: the leaves of one training row's tree, with a row for each call.
    """
    found: dict[Any, list[tuple[Row, RolloutRows]]] = {}
    for run in runs:
        for row in run.rows if run.scored else ():
            found.setdefault((row.agent, row.prompt_ids, row.token_ids), []).append((row, run))
    return [
        _answer(same[0][0], number, _mean(run.reward for _, run in same), _mean(run.score for _, run in same))
        for number, same in enumerate(found.values())
    ]


def _answer(row: Row, number: int, reward: float, score: float) -> RolloutRows:
    task = f"{row.task} {row.anchor}"
    return RolloutRows((replace(row, reward=reward, score=score, task=task, rollout=number),), reward, score)


def _mean(values: Iterable[float | None]) -> float:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known)
