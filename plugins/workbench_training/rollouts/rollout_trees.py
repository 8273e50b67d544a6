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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from workbench.workflow import Schedule, Workflow
from workbench_training.rollouts.token_rows import Row

MOST_LEAVES = 256


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
        if self.leaves > MOST_LEAVES:
            raise ValueError(
                f"{self.branches} branches at depth {self.depth} are {self.leaves} runs of each row, more "
                f"than {MOST_LEAVES}; use fewer"
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


def average_answers(rows: Iterable[Row]) -> list[Row]:
    """Each answer to a prompt once, its reward being the mean of the runs that went through it.

    rows: of the leaves of one training row's tree, one for each call. The answers to one prompt of one agent get a task
    of their own, so that they, and no others, are compared.
    """
    found: dict[Any, list[Row]] = {}
    for row in rows:
        if row.reward is not None and math.isfinite(row.reward):
            found.setdefault((row.agent, row.prompt_ids, row.token_ids), []).append(row)
    return [
        replace(
            same[0],
            reward=math.fsum(r.reward or 0.0 for r in same) / len(same),
            task=f"{same[0].task} {same[0].anchor}",
        )
        for same in found.values()
    ]


def group_by_state(rows: Iterable[Row]) -> Mapping[tuple[str, str], list[Row]]:
    """Rows by agent and state, worst first."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.agent, row.anchor or ""), []).append(row)
    return {state: sorted(some, key=lambda row: row.reward or 0.0) for state, some in found.items()}
