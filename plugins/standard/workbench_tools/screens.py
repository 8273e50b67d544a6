"""Screens: nodes that check a tool's result before an agent reads it, and withhold results that are not clean."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from workbench.errors import FailureKind, NodeError, SpecError, suggest
from workbench.runtime import Context
from workbench.spec import Code
from workbench.workflow import NodeKind, Signature
from workbench_kit.acting import Unavailable, child_node, claim_call

#: Inputs of a screen that come from the call. Others are inputs of the agent.
_OF_CALL = ("result", "tool")


class Screens:
    """The screens of an agent by tool; `*` stands for all other tools.

    trees: their nodes, each of which writes `verdict`. Only `clean` lets a result pass. tools: the agent's tools; None
    if they are not known. code: of the agent. Raises SpecError.
    """

    def __init__(self, trees: Mapping[str, Any], base: Path, tools: Collection[str], code: Code):
        self.nodes = dict[str, NodeKind]()
        for name, tree in trees.items():
            if tools and name not in (*tools, "*"):
                raise SpecError(f"there is no tool '{name}'", hint=suggest(name, tools), path=("screens", name))
            self.nodes[name] = child_node(f"screens.{name}", tree, base, ("screens", name), code)
            if "verdict" not in self.nodes[name].outputs or not _may_say_clean(self.nodes[name]):
                raise SpecError(
                    "a screen writes `verdict`, and only `clean` lets a result pass",
                    hint="Write e.g. predict: \"result -> verdict: Literal['clean', 'order']\".",
                    path=("screens", name),
                )

    @property
    def inputs(self) -> list[str]:
        """Return the agent's inputs that its screens need."""
        return [name for node in self.nodes.values() for name in node.inputs if name not in _OF_CALL]

    @property
    def max_calls(self) -> int:
        return max((node.max_calls for node in self.nodes.values()), default=0)

    def claim(self, tool: str, ctx: Context, most: int | None) -> None:
        """Refuse a screened call whose model calls the budget does not count: by default a second one in a step."""
        if (node := self._node(tool)) is not None and node.max_calls:
            claim_call(tool, ctx, "screened", most)

    async def check(self, tool: str, result: Any, ctx: Context) -> Any:
        """Return the result if it is clean, else a notice that it is withheld. Raise Unavailable."""
        if (node := self._node(tool)) is None:
            return result
        given = {**ctx.span.inputs, "result": result, "tool": tool}
        try:
            found = await ctx.run_child(node, node.name, {name: given[name] for name in node.inputs})
            verdict = str(found["verdict"])
        except NodeError as error:
            if FailureKind(error.kind).infrastructure:
                raise Unavailable(error) from error
            verdict = "unreadable"  # a result that nobody has checked is not shown
        return result if verdict.strip().lower() == "clean" else f"(withheld: a screen calls this result {verdict})"

    def _node(self, tool: str) -> NodeKind | None:
        return self.nodes.get(tool, self.nodes.get("*"))


def _may_say_clean(screen: NodeKind) -> bool:
    """Return False for a screen whose listed verdicts lack `clean`: it would withhold every result."""
    signature = getattr(screen, "signature", None)
    fields = signature.outputs if isinstance(signature, Signature) else ()
    listed = [str(value).lower() for field in fields if field.name == "verdict" for value in field.values]
    return not listed or "clean" in listed
