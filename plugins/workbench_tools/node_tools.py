"""Tools of an agent that are nodes: their calls of models are paid, journalled and replayed like all others."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

from workbench.errors import FailureKind, NodeError, SpecError
from workbench.kit.acting import BoundFunction, Tool, as_rules_see, child_node, permitted, read_arguments
from workbench.runtime import Context
from workbench.workflow import Image, NodeKind

#: An input of a node that is a tool: the calls of the row before this one, with their results. No model fills it.
EARLIER = "earlier_calls"


class EarlierCalls:
    """The calls of tools that agents made in a row so far, as text: what an emulated world has to agree with.

    Source: ToolEmu (Ruan et al., arXiv 2309.15817), whose emulator sees the trajectory of the agent.
    """

    def __init__(self) -> None:
        self.lines = list[str]()

    @classmethod
    def of(cls, ctx: Context) -> EarlierCalls:
        """The calls of the row, and of the sample of the node: each sample has its own world."""
        return ctx.row.get((cls, ctx.draw.replica), cls)

    def keep(self, tool: str, arguments: Mapping[str, Any], result: str) -> None:
        """Keep a call of a tool with what the agent was told."""
        self.lines.append(f"{tool}({json.dumps(arguments, ensure_ascii=False, default=str)}) -> {result}")

    async def aclose(self) -> None:
        """Nothing to close."""


class Unavailable(Exception):
    """The infrastructure behind a node failed: it says nothing about the agent, whose example is left out."""

    def __init__(self, error: NodeError):
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True)
class NodeTool:
    """A node that an agent calls. The model fills the inputs that do not come from the row.

    about: what it does, for the model; by default what its kind says, or its outputs.
    """

    name: str
    node: NodeKind
    about: str = ""

    @property
    def row_inputs(self) -> Collection[str]:
        return self.node.row_inputs

    @cached_property
    def tool(self) -> Tool:
        types = self.node.input_types
        asked = [
            Parameter(name, Parameter.KEYWORD_ONLY, annotation=_shown_type(types.get(name, Parameter.empty)))
            for name in self.node.inputs
            if name not in self.row_inputs and name != EARLIER
        ]
        bound = BoundFunction(_never, Signature(asked))
        return Tool(self.name, self.about or self.node.tool_description, bound.schema, bound)

    async def call(self, ctx: Context, arguments: Mapping[str, Any], row: Mapping[str, Any]) -> Any:
        """The node's output, or its outputs by name if it has several.

        Raises NodeError("policy"), NodeError("tool") for what the model can be told of, and Unavailable.
        """
        read_arguments(self.tool, arguments)
        arguments = as_rules_see(self.tool, arguments)
        async with permitted(ctx, self.name, arguments):
            return await self._call_permitted(ctx, arguments, row)

    async def _call_permitted(self, ctx: Context, arguments: Mapping[str, Any], row: Mapping[str, Any]) -> Any:
        if self.node.max_calls:
            claim_turn(self.name, ctx, "asked_at")
        given = {**{name: row[name] for name in self.row_inputs}, **arguments}
        if EARLIER in self.node.inputs:
            given[EARLIER] = "\n".join(EarlierCalls.of(ctx).lines) or "none"
        try:
            found = await ctx.run_child(self.node, self.node.name, given)
        except NodeError as error:
            if FailureKind(error.kind).infrastructure:
                raise Unavailable(error) from error
            raise NodeError("tool", f"{self.name}: {error}") from error
        outputs = self.node.outputs
        return ctx.received(self.name, found[outputs[0]] if len(outputs) == 1 else dict(found))


def claim_turn(tool: str, ctx: Context, key: str) -> None:
    """Refuse a second such call at a step: the budget counts one, and native answers may have several."""
    if ctx.span.notes.get(key) == ctx.span.turn:
        raise NodeError("tool", f"{tool}: one such call at a time")
    ctx.note(**{key: ctx.span.turn})


def _never(**arguments: Any) -> Any:
    raise AssertionError("the agent runs its nodes itself")


def _shown_type(found: Any) -> Any:
    """The type of an input as a model can give it: an image as its address."""
    return str if found is Image else found


def make_node_tools(trees: Mapping[str, Any], base: Path, *, actions: int) -> dict[str, NodeTool]:
    """The tools by name. actions: that the agent draws at each step. Raises SpecError at the place in the agent."""
    found: dict[str, NodeTool] = {}
    for name, tree in trees.items():
        about, rest = tree.get("describe", ""), {key: value for key, value in tree.items() if key != "describe"}
        if not isinstance(about, str):
            raise SpecError("describe is a text: what the node does", path=("nodes", name, "describe"))
        found[name] = NodeTool(name, child_node(f"nodes.{name}", rest, base, ("nodes", name)), about)
    for name, tool in found.items():
        if actions > 1 and tool.node.max_calls:
            raise SpecError(
                f"`actions` makes the calls of several answers at a step, and '{name}' asks a model at each",
                hint=f"Remove `actions` or the node '{name}'.",
                path=("actions",),
            )
    return found
