"""Edits inside a node: its kind, tools, language model, and reasoning."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from workbench.errors import SpecError
from workbench.spec import NODE_KEYS
from workbench.workflow import Patch, Workflow, node_class
from workbench_edits.common import find_answering_nodes, has_kind, need_kind
from workbench_kit.searching import Edit, Menu, tree_at


class Replace(Edit):
    """Replace the kind of a node with the same signature: predict (one answer) or agent (with tools)."""

    kind: Literal["predict", "agent"] = Field(description="the new kind")
    tools: list[str] = Field(default_factory=list, description="tools of an agent")

    @classmethod
    def options(cls, workflow: Workflow, menu: Menu) -> Iterable[Edit]:
        found: list[Edit] = []
        for address, _ in find_answering_nodes(workflow):
            kind = tree_at(workflow, address)["kind"]
            if kind == "predict" and menu.tools and has_kind("agent"):
                found.append(cls(node=address, kind="agent", tools=list(menu.tools)))
            if kind == "agent" and has_kind("predict"):
                found.append(cls(node=address, kind="predict"))
        return found

    def brings(self) -> Menu:
        return Menu(tools=self.tools)

    def changed(self, workflow: Workflow) -> Patch:
        tree = tree_at(workflow, self.node)
        need_kind(tree, "predict" if self.kind == "agent" else "agent")
        kept = {*node_class(self.kind).Config.model_fields, *NODE_KEYS}
        tools = {"tools": self.tools} if self.kind == "agent" else {}
        return Patch({self.node: {**{k: v for k, v in tree.items() if k in kept}, "kind": self.kind, **tools}})


class Reason(Edit):
    """Ask for reasoning before the answer, or stop asking."""

    on: bool = Field(default=True, description="whether to ask for reasons")

    @classmethod
    def options(cls, workflow: Workflow, menu: Menu) -> Iterable[Edit]:
        found = [
            (a, node.config)
            for a, node in find_answering_nodes(workflow)
            if "reasoning" in type(node.config).model_fields
        ]
        return [cls(node=a, on=not config.reasoning) for a, config in found]

    def changed(self, workflow: Workflow) -> Patch:
        need_kind(tree_at(workflow, self.node), "predict")
        return Patch({f"{self.node}.reasoning": self.on})


class Tool(Edit):
    """Add or remove a tool of an agent."""

    tool: str = Field(description="address of the tool, e.g. python:tools.search")
    add: bool = Field(default=True, description="false: take it away")

    @classmethod
    def options(cls, workflow: Workflow, menu: Menu) -> Iterable[Edit]:
        found: list[Edit] = []
        for address, _ in find_answering_nodes(workflow):
            tree = tree_at(workflow, address)
            if tree["kind"] == "agent":
                has = tree.get("tools") or []
                found += [cls(node=address, tool=t) for t in menu.tools if t not in has]
                found += [cls(node=address, tool=t, add=False) for t in has]
        return found

    def brings(self) -> Menu:
        return Menu(tools=[self.tool] if self.add else [])

    def changed(self, workflow: Workflow) -> Patch:
        tree = tree_at(workflow, self.node)
        need_kind(tree, "agent")
        has = list(tree.get("tools") or [])
        if (self.tool in has) == self.add:
            raise SpecError(f"the agent {'has' if self.add else 'does not have'} the tool {self.tool}")
        tools = [*has, self.tool] if self.add else [t for t in has if t != self.tool]
        return Patch({f"{self.node}.tools": tools})


class Model(Edit):
    """Give a node another language model."""

    lm: str = Field(description="the model, e.g. openai/gpt-4.1-mini")

    @classmethod
    def options(cls, workflow: Workflow, menu: Menu) -> Iterable[Edit]:
        found = [
            (a, node.config) for a, node in find_answering_nodes(workflow) if "lm" in type(node.config).model_fields
        ]
        return [cls(node=a, lm=lm) for a, config in found for lm in menu.lms if lm != config.lm]

    def brings(self) -> Menu:
        return Menu(lms=[self.lm])

    def changed(self, workflow: Workflow) -> Patch:
        need_kind(tree_at(workflow, self.node), "predict", "agent")
        return Patch({f"{self.node}.lm": self.lm})
