"""`tree`: states made of fields are grown from each other and judged, and the best one is kept.

The search is that of `workbench_kit.searching`: A state is the fields of a run; its children are runs of the body on
these fields, judged by another node, whose words the next runs can read. `order: astar` adds up costs of steps instead,
as ToolChain* (Zhuang et al., arXiv 2310.13227) does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from pydantic import Field, model_validator

from workbench.base.concurrency import gather_all
from workbench.base.hashing import digest
from workbench.errors import Defect, FailureKind, NodeError
from workbench.runtime import Context
from workbench.workflow import NodeKind, Surroundings
from workbench_control_flow.answered import gather_answered
from workbench_control_flow.body import MAX, BodyConfig, CarryingBody
from workbench_kit.acting import child_node
from workbench_kit.answers import read_number
from workbench_kit.searching import Node, Search, explore, grow, select, uct

State = Mapping[str, Any]
Order = Literal["best_first", "bfs", "dfs", "beam", "mcts", "astar"]


def _written(description: str) -> Any:
    """Return a setting that names a field. Hashes omit it if it is not set."""
    return Field(None, exclude_if=lambda field: field is None, description=description)


class TreeConfig(BodyConfig):
    """Settings of a `tree` node."""

    carry: dict[str, Any] = Field(
        default_factory=dict,
        description="field that a state hands to its children: its first value; null: the field as it is before",
    )
    judge: dict[str, Any] | None = Field(
        None, description="the node that judges a state; what it writes is part of the state. None: the body does"
    )
    score: str = Field("score", description="the field with the value of a state, from 0 to 1")
    until: str | None = Field(None, description="condition on a state that ends the search, e.g. score >= 1")
    order: Order = Field("best_first", description="choice of the state that grows next")
    evaluations: int = Field(12, ge=1, le=MAX, description="most states, which the budget counts")
    cost: str | None = _written("astar: the field with the cost of the step to a state, 0 or more")
    rest: str | None = _written("astar: the field with an estimate of the costs from a state to the end; none: 0")
    share: str | None = _written("the field that tells the judge which share of a state's draws gave this child")
    branching: int = Field(3, ge=1, le=32, description="children drawn of a state; equal ones count once")
    depth: int = Field(4, ge=1, le=50, description="most runs from the first state to a last one")
    width: int = Field(2, ge=1, le=100, description="beam: number of states kept of a level")

    @model_validator(mode="after")
    def _of_states(self) -> TreeConfig:
        if self.over is not None:
            raise ValueError("a tree has no list: leave out over, or use map")
        if not self.carry:
            raise ValueError("every state would be the first one again: name under carry what children build on")
        if self.order == "astar" and (self.cost is None or self.until is None):
            raise ValueError("astar looks for the cheapest way to an end: name the field of a step's cost, and until")
        if self.share is not None and self.judge is None:
            raise ValueError("share is told to the judge, and there is none")
        return self


class Tree(CarryingBody):
    """Grows states from states, each judged, in the order of a search. Writes the best one, or the one that meets
    `until`."""

    Config = TreeConfig
    learnable = {"order": "choice", "evaluations": "int", "branching": "int", "depth": "int"}
    config: TreeConfig
    unit = "state"

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        costs = {"cost": config.cost, "rest": config.rest}
        for name, field in costs.items() if config.order == "astar" else [("score", config.score)]:
            if field is not None:
                self.check_written(field, (name,))

    @cached_property
    def judge(self) -> NodeKind | None:
        tree = self.config.judge
        return child_node("judge", tree, self.base, ("judge",), self.code) if tree is not None else None

    def children(self) -> Mapping[str, NodeKind]:
        return {**super().children(), **({"judge": self.judge} if self.judge is not None else {})}

    @cached_property
    def written(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*super().written, *(self.judge.outputs if self.judge is not None else ()))))

    @property
    def inputs(self) -> tuple[str, ...]:
        carry = self.config.carry
        before = [field for field, first in carry.items() if first is None]
        judged = [
            field
            for field in (self.judge.inputs if self.judge is not None else ())
            if field not in (*self.written, self.config.share)
        ]
        return tuple(dict.fromkeys([*self.inputs_but(carry), *(f for f in judged if f not in carry), *before]))

    @property
    def max_calls(self) -> int:
        return self.config.evaluations * ((self.judge.max_calls if self.judge else 0) + self.calls_of(1))

    def defects(self, around: Surroundings) -> Iterable[Defect]:
        return ()

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        c, made = self.config, 0
        first = {field: inputs[field] if value is None else value for field, value in c.carry.items()}

        async def expand(node: Node[State]) -> None:
            nonlocal made
            numbers = range(made, min(made + c.branching, c.evaluations))
            made += len(numbers)
            for state in await self._children({**inputs, **node.state}, ctx, numbers, node.parent is None):
                key = digest([state.get(field) for field in self.written])
                if c.order == "astar":
                    cost, rest = (
                        self._number(state, field) if field is not None else 0.0 for field in (c.cost, c.rest)
                    )
                    node.add(state, 0.0, cost=cost, heuristic=rest, key=key)
                else:
                    node.add(state, min(1.0, self._number(state, c.score)), key=key)

        search = await self._search(Node[State](first, 0.0), expand)
        states = [node for node in search.visited if node.parent is not None]
        ranked = sorted(states, key=lambda node: -(node.reward or 0.0))
        ctx.note(states=len(states), ended="until" if search.goal is not None else search.stopped)
        if c.order == "astar" and search.goal is None:
            raise NodeError("steps", f"none of {len(states)} states is one where {c.until}")
        best = search.goal.state if search.goal is not None else ranked[0].state if ranked else first
        lists = {name: [node.state.get(of) for node in ranked] for name, of in c.gather.items()}
        return {**dict.fromkeys(self.written), **best, **lists}

    async def _search(self, root: Node[State], expand: Any) -> Search[State]:
        c, until = self.config, self.until
        goal = (lambda node: node.parent is not None and until.holds(node.state)) if until is not None else None
        if c.order == "mcts":

            async def known(node: Node[State]) -> float | None:
                return node.reward

            return await grow(root, expand, known, lambda top: select(top, uct), goal=goal, depth=c.depth)
        return await explore(root, expand, order=c.order, goal=goal, width=c.width, depth=c.depth)

    async def _children(
        self, given: Mapping[str, Any], ctx: Context, numbers: Collection[int], first: bool
    ) -> Sequence[State]:
        """Return the different children of a state: the fields written by the body, and by the judge on these.

        A failed run of the body gives none. If all runs for the first state fail, their error is raised.
        """
        if not numbers:
            return []

        async def grow(number: int) -> tuple[int, dict[str, Any]]:
            return number, await self.run_once(given, ctx, number)

        try:
            drawn = await gather_answered(
                map(grow, numbers), fatal=[kind for kind in FailureKind if kind.infrastructure]
            )
        except NodeError as error:
            if first or error.kind.infrastructure:
                raise
            return []
        equal = defaultdict[str, list[tuple[int, dict[str, Any]]]](list)
        for number, state in drawn:
            equal[digest(state)].append((number, state))
        return await gather_all(
            self._judged(given, state, ctx, number, len(same) / len(drawn))
            for same in equal.values()
            for number, state in same[:1]
        )

    async def _judged(
        self, given: Mapping[str, Any], state: Mapping[str, Any], ctx: Context, number: int, share: float
    ) -> State:
        carried = {field: given[field] for field in self.config.carry}
        if self.judge is None:
            return {**carried, **state}
        seen = {**given, **state, **({self.config.share: share} if self.config.share is not None else {})}
        judged = await ctx.run_child(self.judge, "judge", {field: seen[field] for field in self.judge.inputs}, number)
        return {**carried, **state, **judged}

    def _number(self, state: State, field: str) -> float:
        """Return a non-negative number of a state."""
        said = state.get(field)
        if isinstance(said, bool | int | float):
            return max(0.0, float(said))
        if (read := read_number(str(said))) is None:
            raise NodeError("unparsed", f"'{field}' is no number: {said!r:.200}")
        return max(0.0, float(read[0].value))
