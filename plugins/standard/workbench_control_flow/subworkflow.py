"""`workflow`: a whole workflow as one node. A file is read once and its nodes become part of this workflow."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from workbench.errors import SpecError
from workbench.runtime import Context
from workbench.spec import Inherited, PolicySpec, check_nodes, load_yaml_file, read_outside
from workbench.task import expand_references
from workbench.workflow import NodeConfig, NodeKind, Schedule
from workbench_control_flow.body import make_nodes


class SubWorkflowConfig(NodeConfig):
    """Settings of a `workflow` node: a file, or the nodes themselves."""

    file: str | None = Field(None, description="a workflow file, relative to this one; its nodes are taken over")
    nodes: dict[str, dict[str, Any]] = Field(default_factory=dict, description="nodes, instead of a file")
    rename: dict[str, str] = Field(default_factory=dict, description="inner field: outer field")

    @model_validator(mode="after")
    def _one(self) -> SubWorkflowConfig:
        if (self.file is None) == (not self.nodes):
            raise ValueError("give either a file or nodes")
        return self


class SubWorkflow(NodeKind):
    """Runs the nodes of another workflow as one step, in that workflow's order."""

    Config = SubWorkflowConfig
    primary = "file"
    config: SubWorkflowConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        try:
            self.schedule  # bad settings are told when the file is read  # noqa: B018
        except RecursionError:
            raise SpecError(
                f"{config.file} and the files that it refers to hold each other as sub-workflows",
                hint="Write the nodes out in one of them.",
                path=("file",),
            ) from None

    @property
    def trees(self) -> Mapping[str, Mapping[str, Any]]:
        return self.config.nodes if self.config.file is None else self.read[0]

    @cached_property
    def read(self) -> tuple[Mapping[str, Mapping[str, Any]], PolicySpec]:
        """Return the nodes of the file, and its policy, which applies to them in addition to that of the outer file."""
        assert self.config.file is not None
        read_outside(self.config.file, self.base, "file")
        file = (Path(self.base) / self.config.file).resolve()
        try:
            spec = check_nodes(load_yaml_file(file))
        except SpecError as error:  # the message includes its place, which is in another file
            raise SpecError(str(error), path=("file",)) from None
        inherited: list[Inherited] = []
        try:
            trees = {n: expand_references(tree, file.parent, (file,), inherited) for n, tree in spec.nodes.items()}
            return trees, spec.policy.inherit(inherited)
        except SpecError as error:
            raise self._in_file(error) from None
        except RecursionError:
            raise SpecError(
                f"{self.config.file} and the files that it refers to need each other",
                hint="Write the functions out in one of them.",
            ) from None

    @cached_property
    def nodes(self) -> dict[str, NodeKind]:
        folder = self.base if self.config.file is None else (Path(self.base) / self.config.file).resolve().parent
        return make_nodes(self.trees, folder, self.code)

    def _in_file(self, error: SpecError) -> SpecError:
        return SpecError(f"{self.config.file}: {error.message}", hint=error.hint, path=("file",))

    @cached_property
    def schedule(self) -> Schedule:
        nodes = self.nodes
        try:
            return Schedule(nodes, self.trees)
        except SpecError as error:
            if self.config.file is None:
                raise
            raise self._in_file(error) from None

    def children(self) -> Mapping[str, NodeKind]:
        return {node.name: node for node in self.nodes.values()} if self.config.file is None else {}

    @property
    def _referred_nodes(self) -> list[NodeKind]:
        """Return the nodes of a file, which are not children of this node."""
        return [inner for node in self.nodes.values() for inner in node.walk()] if self.config.file is not None else []

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(role for node in self._referred_nodes for role in node.roles))

    def tool_names(self) -> Collection[str]:
        return {name for node in self._referred_nodes for name in node.tool_names()}

    def external_inputs(self) -> Any:
        if self.config.file is None:
            return None
        trees, policy = self.read
        inner = [found for node in self._referred_nodes if (found := node.external_inputs()) is not None]
        return [list(trees.items()), policy.model_dump(mode="json"), inner]

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._outer(field) for field in self.schedule.inputs))

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._outer(o) for node in self.nodes.values() for o in node.outputs))

    @property
    def max_calls(self) -> int:
        return sum(node.max_calls for node in self.nodes.values())

    def _outer(self, field: str) -> str:
        return self.config.rename.get(field, field)

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        inner = {outer: name for name, outer in self.config.rename.items()}
        given = {inner.get(name, name): value for name, value in inputs.items()}
        written: dict[str, Mapping[str, Any]] = {}
        policy = self.read[1] if self.config.file is not None else None

        async def step(name: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
            node = self.nodes[name]
            return await ctx.run_child(node, node.name, values, policy=policy, place=self.schedule.order.index(name))

        await self.schedule.run(step, given, written)
        return {self._outer(name): value for name, value in self.schedule.merged(written).items()}
