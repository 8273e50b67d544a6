"""Tools that are nodes: their calls of models are paid, journalled and replayed like all others."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

from workbench.errors import FailureKind, NodeError, SpecError
from workbench.runtime import Context
from workbench.spec import Code
from workbench.workflow import Image, NodeKind
from workbench_kit.acting.bound_function import BoundFunction
from workbench_kit.acting.inner_nodes import child_node
from workbench_kit.acting.permission import permitted
from workbench_kit.acting.tool import Tool, as_rules_see, know_tools, read_arguments

#: An input of a node that is a tool: the calls of the row before this one, with their results. No model fills it.
EARLIER = "earlier_calls"


class RowCalls:
    """The calls of tools that agents made in a row so far, as text: what an emulated world has to agree with.

    Source: ToolEmu (Ruan et al., arXiv 2309.15817), whose emulator sees the trajectory of the agent.
    """

    def __init__(self) -> None:
        self.lines = list[str]()

    @classmethod
    def of(cls, ctx: Context) -> RowCalls:
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

    async def call(
        self,
        ctx: Context,
        arguments: Mapping[str, Any],
        row: Mapping[str, Any],
        most: int | None = None,
        replica: int = 0,
    ) -> Any:
        """The node's output, or its outputs by name if it has several.

        most: calls of nodes that ask a model, for one example; by default one at each step of an agent.

        Raises NodeError("policy"), NodeError("tool") for what the model can be told of, and Unavailable.
        """
        read_arguments(self.tool, arguments)
        arguments = as_rules_see(self.tool, arguments)
        async with permitted(ctx, self.name, arguments):
            if self.node.max_calls:
                claim_call(self.name, ctx, "asked", most)
            given = {**{name: row[name] for name in self.row_inputs}, **arguments}
            return await self._run(ctx, given, replica)

    async def _run(self, ctx: Context, given: dict[str, Any], replica: int) -> Any:
        if EARLIER in self.node.inputs:
            given[EARLIER] = "\n".join(RowCalls.of(ctx).lines) or "none"
        try:
            found = await ctx.run_child(self.node, self.node.name, given, replica)
        except NodeError as error:
            if FailureKind(error.kind).infrastructure:
                raise Unavailable(error) from error
            raise NodeError("tool", f"{self.name}: {error}") from error
        outputs = self.node.outputs
        return ctx.received(self.name, found[outputs[0]] if len(outputs) == 1 else dict(found))


async def introduce_tools(
    tools: dict[str, Tool], nodes: Mapping[str, NodeTool], described: Collection[str], ctx: Context
) -> None:
    """Ask servers, and nodes that know it only when they run, what their tools do, where nobody has asked yet.

    tools: by name, some of which are nodes; these are described anew, but for those that somebody has `described`.
    Raises SpecError and NodeError where one does not say it.
    """
    await know_tools(tools.values())
    for name, found in nodes.items():
        if found.node.introduce is not None and not found.about and name not in described:
            tools[name] = tools[name].described(await found.node.introduce(ctx))


def claim_call(tool: str, ctx: Context, key: str, most: int | None = None) -> None:
    """Refuse a call whose calls of models the budget does not count.

    key: counts such calls apart from others. most: for one example; by default one at each step of an agent, whose
    native answers may have several.
    """
    if most is None:
        if ctx.span.notes.get(f"{key}_at") == ctx.span.turn:
            raise NodeError("tool", f"{tool}: one such call at a time")
        ctx.note(**{f"{key}_at": ctx.span.turn})
        return
    made = ctx.span.notes.get(f"{key}_calls", 0)
    if made >= most:
        raise NodeError("tool", f"{tool}: no more calls that ask a model: there may be {most} (`calls`)")
    ctx.note(**{f"{key}_calls": made + 1})


def _never(**arguments: Any) -> Any:
    raise AssertionError("the agent runs its nodes itself")


def _shown_type(found: Any) -> Any:
    """The type of an input as a model can give it: an image as its address."""
    return str if found is Image else found


def make_node_tools(trees: Mapping[str, Any], base: Path, code: Code, *, actions: int = 1) -> dict[str, NodeTool]:
    """The tools by name. code: of the agent. actions: that it draws at each step. Raises SpecError at its place."""
    found: dict[str, NodeTool] = {}
    for name, tree in trees.items():
        about, rest = tree.get("describe", ""), {key: value for key, value in tree.items() if key != "describe"}
        if not isinstance(about, str):
            raise SpecError("describe is a text: what the node does", path=("nodes", name, "describe"))
        found[name] = NodeTool(name, child_node(f"nodes.{name}", rest, base, ("nodes", name), code), about)
    for name, tool in found.items():
        if actions > 1 and tool.node.max_calls:
            raise SpecError(
                f"`actions` makes the calls of several answers at a step, and '{name}' asks a model at each",
                hint=f"Remove `actions` or the node '{name}'.",
                path=("actions",),
            )
    return found
