"""Tools that are nodes: their model calls are paid, journalled and replayed like all others."""

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

#: An input of a tool node: the row's earlier calls, with their results. No model fills it.
EARLIER = "earlier_calls"


class RowCalls:
    """The calls that agents made in a row so far, as text: an emulated world has to be consistent with them.

    Source: ToolEmu (Ruan et al., arXiv 2309.15817), whose emulator sees the trajectory of the agent.
    """

    def __init__(self) -> None:
        self.lines = list[str]()

    @classmethod
    def of(cls, ctx: Context) -> RowCalls:
        """Return the calls of the row and of the node's sample: each sample has its own world."""
        return ctx.row.get((cls, ctx.draw.replica), cls)

    def keep(self, tool: str, arguments: Mapping[str, Any], result: str) -> None:
        """Record a call of a tool with the result that the agent saw."""
        self.lines.append(f"{tool}({json.dumps(arguments, ensure_ascii=False, default=str)}) -> {result}")

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


class Unavailable(Exception):
    """The infrastructure behind a node failed. This is no evidence about the agent, whose example is left out."""

    def __init__(self, error: NodeError):
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True)
class NodeTool:
    """A node that an agent calls. The model fills the inputs that do not come from the row.

    about: its description for the model; by default that of its kind, or its outputs.
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
        """Return the node's output, or its outputs by name if it has several.

        most: maximum number of calls of model-asking nodes for one example; by default one per step of an agent.

        Raises NodeError("policy"), NodeError("tool") for errors that the model can see, and Unavailable.
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
    """Fetch missing tool descriptions from servers, and from nodes that know them only at run time.

    tools: by name. Tools that are nodes get a new description, unless they are in `described`. Raises SpecError and
    NodeError if a description is not available.
    """
    await know_tools(tools.values())
    for name, found in nodes.items():
        if found.node.introduce is not None and not found.about and name not in described:
            tools[name] = tools[name].described(await found.node.introduce(ctx))


def claim_call(tool: str, ctx: Context, key: str, most: int | None = None) -> None:
    """Refuse a call whose model calls the budget does not count.

    key: counts such calls apart from others. most: maximum for one example; by default one per step of an agent, whose
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
    """Return the type of an input as a model can provide it: for an image, its address."""
    return str if found is Image else found


def make_node_tools(trees: Mapping[str, Any], base: Path, code: Code, *, actions: int = 1) -> dict[str, NodeTool]:
    """Create the tools by name. code: of the agent. actions: answers drawn per step. Raise SpecError at the tool's
    place."""
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
