"""Edits that add, remove, split and merge nodes, and change what they read."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from workbench.errors import SpecError
from workbench.workflow import Patch, Workflow, disable_nodes, with_inputs, written_fields
from workbench_edits.common import (
    drop_demos,
    find_answering_nodes,
    has_kind,
    list_fields,
    make_fresh_name,
    need_kind,
    need_sole_writer,
    top_name,
)
from workbench_kit.searching import Edit, Menu, tree_at

#: Steps that help many tasks: the field that each one writes, and its instructions.
_STEPS = {
    "plan": "Write a short plan for solving the task. Do not solve it.",
    "notes": "List what in the input matters for the task.",
}


class Insert(Edit):
    """Add a step before a node: a language model writes a text that the node then reads."""

    field: str = Field(pattern=r"^[a-z_]\w{0,31}$", description="name of the text")
    instructions: str = Field(min_length=1, max_length=4000, description="what the new step is told")

    @classmethod
    def options(cls, workflow: Workflow, menu: Menu) -> Iterable[Edit]:
        if not has_kind("predict"):
            return []
        there = set(list_fields(workflow))
        return [
            cls(node=a, field=f, instructions=text)
            for a, _ in find_answering_nodes(workflow, top=True)
            for f, text in _STEPS.items()
            if f not in there
        ]

    def changed(self, workflow: Workflow) -> Patch:
        tree, name = tree_at(workflow, self.node), top_name(self.node)
        need_kind(tree, "predict", "agent")
        if self.field in list_fields(workflow):
            raise SpecError(f"there is a field '{self.field}' already", hint="Take another name for the text.")
        inputs = ", ".join(written_fields(tree["signature"])[0])
        step = {"kind": "predict", "signature": f"{inputs} -> {self.field}".strip(), "instructions": self.instructions}
        read = {**drop_demos(tree), "signature": with_inputs(tree["signature"], add=[self.field])}
        return Patch({f"nodes.{make_fresh_name(workflow.nodes, f'{name}_{self.field}')}": step, self.node: read})


class Remove(Edit):
    """Remove a node; its readers stop reading its outputs."""

    @classmethod
    def options(cls, workflow: Workflow, menu: Menu) -> Iterable[Edit]:
        wanted = set(workflow.output_fields)
        nodes = workflow.enabled_nodes
        return [
            cls(node=f"nodes.{n}") for n, node in nodes.items() if len(nodes) > 1 and not wanted & set(node.outputs)
        ]

    def changed(self, workflow: Workflow) -> Patch:
        name = top_name(self.node)
        if name not in workflow.enabled_nodes:
            raise SpecError(f"'{name}' takes no part")
        changes = disable_nodes(workflow, [name])
        others = {f for n, node in workflow.enabled_nodes.items() if n != name for f in node.outputs}
        if workflow.is_needed(name) or others & set(workflow.enabled_nodes[name].outputs):
            return Patch(changes)  # its place among the writers of a field must not change
        del changes[f"nodes.{name}.enabled"]
        return Patch(changes, (self.node,))


class Restore(Edit):
    """Enable a disabled node."""

    @classmethod
    def options(cls, workflow: Workflow, menu: Menu) -> Iterable[Edit]:
        return [cls(node=f"nodes.{n}") for n, tree in workflow.nodes.items() if not tree.get("enabled", True)]

    def changed(self, workflow: Workflow) -> Patch:
        name = top_name(self.node)
        if workflow.nodes.get(name, {}).get("enabled", True):
            raise SpecError(f"there is no node '{name}' that is switched off")
        return Patch(unset=(f"nodes.{name}.enabled",))


class Rewire(Edit):
    """Let a node read another field, or stop reading one."""

    field: str = Field(description="the field")
    read: bool = Field(default=True, description="false: read it no more")

    @classmethod
    def options(cls, workflow: Workflow, menu: Menu) -> Iterable[Edit]:
        import networkx

        given, found, nodes = workflow.input_fields, list[Edit](), workflow.enabled_nodes
        for address, node in find_answering_nodes(workflow, top=True):
            name = top_name(address)
            later = networkx.descendants(workflow.graph, name)
            there = [f for n, other in nodes.items() if n != name and n not in later for f in other.outputs]
            for field in dict.fromkeys([*given, *there]):
                if field not in (*node.inputs, *node.outputs):
                    found.append(cls(node=address, field=field))
            found += [cls(node=address, field=f, read=False) for f in node.inputs if len(node.inputs) > 1]
        return found

    def changed(self, workflow: Workflow) -> Patch:
        tree, name = tree_at(workflow, self.node), top_name(self.node)
        need_kind(tree, "predict", "agent")
        change = with_inputs(
            tree["signature"], add=[self.field] if self.read else (), drop=() if self.read else [self.field]
        )
        if change == tree["signature"]:
            raise SpecError(f"'{name}' {'reads' if self.read else 'does not read'} '{self.field}' already")
        kept = drop_demos(tree) if self.read else tree
        return Patch({self.node: {**kept, "signature": change}})


class Split(Edit):
    """Split a node that writes several fields: a second step writes the last one and reads the others."""

    @classmethod
    def options(cls, workflow: Workflow, menu: Menu) -> Iterable[Edit]:
        found = [(a, workflow.get(a)) for a, node in find_answering_nodes(workflow, top=True) if len(node.outputs) > 1]
        return [cls(node=a) for a, tree in found if tree["kind"] == "predict"]

    def changed(self, workflow: Workflow) -> Patch:
        tree, name = tree_at(workflow, self.node), top_name(self.node)
        need_kind(tree, "predict")
        need_sole_writer(workflow, name)
        inputs, outputs = written_fields(tree["signature"])
        if len(outputs) < 2:
            raise SpecError(f"'{name}' writes one field only", hint="Insert a step before it instead.")
        first = {k: v for k, v in drop_demos(tree).items() if k != "needs"}
        first["signature"] = f"{', '.join(inputs)} -> {', '.join(outputs[:-1])}".strip()
        if tree.get("needs"):
            first["needs"] = tree["needs"]
        second = {**drop_demos(tree), "signature": f"{', '.join([*inputs, *outputs[:-1]])} -> {outputs[-1]}"}
        return Patch({f"nodes.{make_fresh_name(workflow.nodes, f'{name}_first')}": first, self.node: second})


class Merge(Edit):
    """Merge a node into one that reads its output."""

    into: str = Field(description="address of the second node, e.g. nodes.answer")

    @classmethod
    def options(cls, workflow: Workflow, menu: Menu) -> Iterable[Edit]:
        nodes = dict(find_answering_nodes(workflow, top=True))
        return [
            cls(node=f"nodes.{a}", into=f"nodes.{b}")
            for a, b in workflow.graph.edges
            if f"nodes.{a}" in nodes and f"nodes.{b}" in nodes
        ]

    def changed(self, workflow: Workflow) -> Patch:
        one, two = tree_at(workflow, self.node), tree_at(workflow, self.into)
        need_kind(one, "predict")
        need_kind(two, "predict")
        name, other = top_name(self.node), top_name(self.into)
        need_sole_writer(workflow, name)
        if workflow.is_needed(name):
            raise SpecError(f"another node needs '{name}'")
        readers = set(workflow.graph.successors(name)) - {other}
        (inputs, outputs), (later, last) = written_fields(one["signature"]), written_fields(two["signature"])
        written = {_name(f) for f in outputs}
        if readers or not written & {_name(f) for f in later}:
            raise SpecError(f"'{other}' is not the only node that reads what '{name}' writes")
        reads = {_name(f): f for f in (*inputs, *later) if _name(f) not in written}
        told = "\n".join(t for t in (one.get("instructions"), two.get("instructions")) if t)
        merged = {
            **drop_demos(two),
            "signature": f"{', '.join(reads.values())} -> {', '.join([*outputs, *last])}".strip(),
        }
        return Patch({self.into: {**merged, "instructions": told} if told else merged}, (self.node,))


def _name(field: str) -> str:
    return field.partition(":")[0].strip()
