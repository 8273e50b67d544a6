"""`workflow`: a whole workflow as one node. A file is read once and its nodes become part of this workflow."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from workbench.children import child_node
from workbench.nodes import NodeConfig, NodeKind, needs_of
from workbench.policy import Inherited, PolicySpec
from workbench.runtime import Context


class SubWorkflowConfig(NodeConfig):
    """Settings of a `workflow` node: a file, or the nodes themselves."""

    file: str | None = Field(None, description="a workflow file, relative to this one; its nodes are taken over")
    nodes: dict[str, dict[str, Any]] = Field(default_factory=dict, description="nodes, in place of a file")
    rename: dict[str, str] = Field(default_factory=dict, description="inner field: outer field")

    @model_validator(mode="after")
    def _one(self) -> SubWorkflowConfig:
        if (self.file is None) == (not self.nodes):
            raise ValueError("give either a file or nodes")
        return self


class SubWorkflow(NodeKind):
    """Runs the nodes of another workflow in their order, as one step."""

    Config = SubWorkflowConfig
    primary = "file"
    config: SubWorkflowConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        self.order  # bad settings are told when the file is read  # noqa: B018

    @property
    def trees(self) -> Mapping[str, Mapping[str, Any]]:
        return self.config.nodes if self.config.file is None else self.read[0]

    @cached_property
    def read(self) -> tuple[Mapping[str, Mapping[str, Any]], PolicySpec]:
        """The nodes of the file, and its policy, which holds in them besides that of the outer file."""
        assert self.config.file is not None
        from workbench.errors import SpecError
        from workbench.library import expand, with_inherited
        from workbench.spec import load_spec

        def fail(path: tuple[str | int, ...], message: str, hint: str | None) -> SpecError:
            return SpecError(f"{self.config.file}: {message}", hint=hint)

        file = (Path(self.base) / self.config.file).resolve()
        spec = load_spec(file)[0]
        inherited: list[Inherited] = []
        try:
            trees = {n: expand(tree, file.parent, fail, (file,), inherited) for n, tree in spec.nodes.items()}
            return trees, with_inherited(spec.policy, inherited)
        except RecursionError:
            raise SpecError(f"{self.config.file} and the files that it refers to need each other",
                            hint="Write the functions out in one of them.") from None  # fmt: skip

    @cached_property
    def nodes(self) -> dict[str, NodeKind]:
        folder = self.base if self.config.file is None else (Path(self.base) / self.config.file).parent
        settings = ("needs", "optional", "enabled")
        return {
            name: child_node(
                f"nodes.{name}", {k: v for k, v in tree.items() if k not in settings}, folder, ("nodes", name)
            )
            for name, tree in self.trees.items()
            if tree.get("enabled", True)
        }

    @cached_property
    def order(self) -> list[str]:
        """Nodes by `needs` and by who writes what others read; in the order of the file where that leaves it open."""
        from workbench.errors import SpecError

        done: list[str] = []
        rest = list(self.nodes)
        while rest:
            later = {n: {o for m in rest if m != n for o in self.nodes[m].outputs} for n in rest}
            ready = [
                n for n in rest
                if not set(needs_of(dict(self.trees[n]))) & set(rest)
                and not any(i in later[n] and i not in self.nodes[n].outputs for i in self.nodes[n].inputs)
            ]  # fmt: skip
            if not ready:
                raise SpecError(f"the nodes {', '.join(rest)} wait for each other", path=("nodes",))
            done.append(ready[0])
            rest.remove(ready[0])
        return done

    def children(self) -> Mapping[str, NodeKind]:
        return {node.name: node for node in self.nodes.values()} if self.config.file is None else {}

    @property
    def inputs(self) -> tuple[str, ...]:
        written: set[str] = set()
        wanted: list[str] = []
        for name in self.order:
            wanted += [self._outer(i) for i in self.nodes[name].inputs if i not in written]
            written.update(self.nodes[name].outputs)
        return tuple(dict.fromkeys(wanted))

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._outer(o) for name in self.order for o in self.nodes[name].outputs))

    @property
    def max_calls(self) -> int:
        return sum(node.max_calls for node in self.nodes.values())

    def _outer(self, field: str) -> str:
        return self.config.rename.get(field, field)

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        inner = {outer: name for name, outer in self.config.rename.items()}
        values = {inner.get(name, name): value for name, value in inputs.items()}
        written: dict[str, Any] = {}
        policy = self.read[1] if self.config.file is not None else None
        for name in self.order:
            node = self.nodes[name]
            outputs = await ctx.run_child(node, node.name, {i: values[i] for i in node.inputs}, policy=policy)
            values.update(outputs)
            written.update(outputs)
        return {self._outer(name): value for name, value in written.items()}
