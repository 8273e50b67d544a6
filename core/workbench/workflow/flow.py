"""The structure of a workflow: the flow of fields through it, and disabling nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from workbench.base.type_guards import is_dict, is_list
from workbench.errors import SpecError
from workbench.plugins import plugins
from workbench.workflow.node import NodeKind
from workbench.workflow.signature import Field, Signature, with_inputs
from workbench.workflow.tree import Tree
from workbench.workflow.workflow import Workflow, make_node, node_class


def check_flow(workflow: Workflow, start: Workflow, given: Collection[str] = ()) -> None:
    """Check that a workflow made from `start` reads only fields that exist, and still gives the outputs of `start`.

    Args:
        workflow: the changed workflow.
        start: the workflow that it was made from.
        given: fields of an example that may be read although `start` does not read them.

    Raises:
        SpecError: a field is read that no node writes and that `start` does not read from the example; an output of
            `start` is no longer written; or types no longer fit that did in `start` (only signatures have types).
    """
    nodes = workflow.enabled_nodes
    before = start.input_fields
    for field in workflow.input_fields:
        if field not in before and field not in given:
            reader = next(n for n, node in nodes.items() if field in node.inputs)
            raise SpecError(f"'{reader}' reads '{field}', which no node before it writes", path=("nodes", reader))
    now = {f for node in nodes.values() for f in node.outputs}
    lost = [f for f in start.output_fields if f not in now]
    if lost:
        raise SpecError(f"no node gives '{lost[0]}' any more", path=("nodes",))
    known = set(_misfits(start).values())
    for (writer, reader, field), types in _misfits(workflow).items():
        if types not in known:
            raise SpecError(
                f"'{reader}' reads '{field}' as {types[2]}, and '{writer}' writes it as {types[1]}",
                path=("nodes", reader),
            )


def _misfits(workflow: Workflow) -> dict[tuple[str, str, str], tuple[str, str, str]]:
    """Map (writer, reader, field) to (field, type written, type read), for types that do not fit."""
    nodes, found = workflow.enabled_nodes, dict[tuple[str, str, str], tuple[str, str, str]]()
    for writer, reader in workflow.graph.edges:
        here, there = (_typed(nodes[n], side) for n, side in ((writer, "outputs"), (reader, "inputs")))
        for name in here.keys() & there.keys():
            if not _fits(here[name], there[name]):
                found[writer, reader, name] = (name, _shown(here[name]), _shown(there[name]))
    return found


def _typed(node: NodeKind, side: str) -> Mapping[str, Field]:
    signature = getattr(node, "signature", None)
    return {f.name: f for f in getattr(signature, side)} if isinstance(signature, Signature) else {}


def _fits(written: Field, read: Field) -> bool:
    """Return True if a field can be read as declared. Anything can be read as text."""
    if read.type in (str, Any) or written.type == read.type or (written.type, read.type) == (int, float):
        return True
    return bool(written.values and read.values) and set(written.values) <= set(read.values)


def _shown(field: Field) -> str:
    return field.type.__name__ if isinstance(field.type, type) else str(field.type).removeprefix("typing.")


def disable_nodes(workflow: Workflow, absent: Collection[str]) -> Tree:
    """Return the settings (a patch's `set`) that disable nodes and drop their fields from all readers.

    A field that is also in the example, because a disabled node only refined it, is still read. Raises SpecError for a
    reader that cannot lose such an input: only signatures can.
    """
    nodes = workflow.enabled_nodes
    left = {name: node for name, node in nodes.items() if name not in absent}
    there = {f for node in left.values() for f in node.outputs} | set(workflow.input_fields)
    gone = [f for name in absent if name in nodes for f in nodes[name].outputs if f not in there]
    patch: Tree = {f"nodes.{name}.enabled": False for name in absent if name in nodes}
    for name, node in left.items():
        if set(gone) & set(node.inputs):
            patch[f"nodes.{name}"] = tree = _drop_inputs(workflow.nodes[name], gone)
            still = set(gone) & set(make_node(name, tree, workflow.base, workflow.code).inputs)
            if still:
                raise SpecError(
                    f"'{name}' cannot do without '{min(still)}', which {', '.join(absent)} writes", path=("nodes", name)
                )
    return patch


def _drop_inputs(tree: Any, fields: Iterable[str]) -> Any:
    """Return a node, with these fields removed from its signature and from those of the nodes inside it."""
    drop = set(fields)
    if is_list(tree):
        return [_drop_inputs(value, drop) for value in tree]
    if not is_dict(tree):
        return tree
    signed = {k for k in tree if k == "signature" or (k in plugins().names("node_kinds") and _is_signed(k))}
    return {
        k: with_inputs(v, drop=drop)
        if k in signed and isinstance(v, str)
        else v
        if k == "demos"
        else _drop_inputs(v, drop)
        for k, v in tree.items()
    }


def _is_signed(kind: str) -> bool:
    return node_class(kind).primary == "signature"
