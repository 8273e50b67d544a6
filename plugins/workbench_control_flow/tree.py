"""`tree`: states made of fields grow from each other, are judged, and the best is kept.

The search is that of `workbench.kit.searching`: A state is the fields of a run; its children are runs of the body on
these fields, judged by another node, whose words the next runs can read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Any, Literal

from pydantic import Field, model_validator

from workbench.base.concurrency import gather_all
from workbench.base.hashing import digest
from workbench.errors import Defect, NodeError, SpecError, suggest
from workbench.kit.acting import FieldCondition, child_node
from workbench.kit.answers import read_number
from workbench.kit.searching import Node, Search, explore, grow, select, uct
from workbench.runtime import Context
from workbench.spec import NODE, NODES
from workbench.workflow import NodeKind, Surroundings
from workbench_control_flow.body import MOST, Body, BodyConfig

State = Mapping[str, Any]
Order = Literal["best_first", "bfs", "dfs", "beam", "mcts"]


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
    evaluations: int = Field(12, ge=1, le=MOST, description="most states, which the budget counts")
    branching: int = Field(3, ge=1, le=32, description="children drawn of a state; equal ones count once")
    depth: int = Field(4, ge=1, le=50, description="most runs from the first state to a last one")
    width: int = Field(2, ge=1, le=100, description="beam: number of states kept of a level")
    exploration: float = Field(0.5, ge=0, le=100, description="mcts: weight of the bound in UCT")

    @model_validator(mode="after")
    def _of_states(self) -> TreeConfig:
        if self.over is not None:
            raise ValueError("a tree has no list: leave out over, or use map")
        if not self.carry:
            raise ValueError("every state would be the first one again: name under carry what children build on")
        return self


class Tree(Body):
    """Grows states from states, each judged, in the order of a search. It writes the best one, or that which `until`
    looks for."""

    Config = TreeConfig
    powers = {"of": NODE, "nodes": NODES, "judge": NODE}
    learnable = {"order": "choice", "evaluations": "int", "branching": "int", "depth": "int"}
    config: TreeConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        for field in config.carry:
            self.check_written(field, ("carry", field))
        self.check_written(config.score, ("score",))
        if self.until is not None:
            known = [*self.outputs, *self.inputs]
            if unknown := [field for field in self.until.names if field not in known]:
                hint = suggest(unknown[0], known) or f"These are there: {', '.join(known)}."
                raise SpecError(f"until reads '{unknown[0]}', which no state has", hint=hint, path=("until",))

    @cached_property
    def judge(self) -> NodeKind | None:
        tree = self.config.judge
        return child_node("judge", tree, self.base, ("judge",)) if tree is not None else None

    @cached_property
    def until(self) -> FieldCondition | None:
        return FieldCondition(self.config.until) if self.config.until is not None else None

    def children(self) -> Mapping[str, NodeKind]:
        return {**super().children(), **({"judge": self.judge} if self.judge is not None else {})}

    @cached_property
    def written(self) -> tuple[str, ...]:
        judged = self.judge.outputs if self.judge is not None else ()
        return tuple(dict.fromkeys((*(field for node in self.nodes.values() for field in node.outputs), *judged)))

    @property
    def carried(self) -> Collection[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.config.carry

    @property
    def inputs(self) -> tuple[str, ...]:
        carry = self.config.carry
        before = [field for field, first in carry.items() if first is None]
        judged = [field for field in (self.judge.inputs if self.judge is not None else ()) if field not in self.written]
        return tuple(dict.fromkeys([*self.inputs_but(carry), *(f for f in judged if f not in carry), *before]))

    @property
    def outputs(self) -> tuple[str, ...]:
        return (*self.written, *self.config.gather)

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
            grown = await gather_all(self._grow({**inputs, **node.state}, ctx, number) for number in numbers)
            for state in grown:
                node.add(state, self._value(state), key=digest([state.get(field) for field in self.written]))

        search = await self._search(Node[State](first, 0.0), expand)
        states = [node for node in search.visited if node.parent is not None]
        ranked = sorted(states, key=lambda node: -(node.reward or 0.0))
        ctx.note(states=len(states), ended="until" if search.goal is not None else search.stopped)
        best = search.goal.state if search.goal is not None else ranked[0].state if ranked else first
        lists = {name: [node.state.get(of) for node in ranked] for name, of in c.gather.items()}
        return {**dict.fromkeys(self.written), **best, **lists}

    async def _search(self, root: Node[State], expand: Any) -> Search[State]:
        c = self.config
        goal = (lambda node: self._is_goal(node)) if self.until is not None else None
        if c.order == "mcts":

            async def known(node: Node[State]) -> float | None:
                return node.reward

            def choose(root: Node[State]) -> Node[State] | None:
                return select(root, lambda node: uct(node, c.exploration))

            return await grow(root, expand, known, choose, goal=goal, depth=c.depth)
        return await explore(root, expand, order=c.order, goal=goal, width=c.width, depth=c.depth)

    def _is_goal(self, node: Node[State]) -> bool:
        assert self.until is not None
        return node.parent is not None and self.until.holds(node.state)

    async def _grow(self, given: Mapping[str, Any], ctx: Context, number: int) -> State:
        """A child: what the body writes on the fields of its parent, and what the judge writes on that."""
        state = await self.run_once(given, ctx, number)
        if self.judge is not None:
            seen = {**given, **state}
            judged = await ctx.run_child(self.judge, "judge", {f: seen[f] for f in self.judge.inputs}, number)
            state |= judged
        return {**{field: given[field] for field in self.config.carry}, **state}

    def _value(self, state: State) -> float:
        said = state.get(self.config.score)
        if isinstance(said, bool | int | float):
            return min(1.0, max(0.0, float(said)))
        if (read := read_number(str(said))) is None:
            raise NodeError("unparsed", f"'{self.config.score}' is no number: {said!r:.200}")
        return min(1.0, max(0.0, float(read[0].value)))
