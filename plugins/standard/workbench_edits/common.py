"""Helpers of the edits: find nodes that a language model answers, and handle names and settings of nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from workbench.errors import SpecError
from workbench.plugins import plugins
from workbench.spec import NODE_KEYS
from workbench.workflow import NodeKind, Signature, Tree, Workflow
from workbench_kit.searching import places


def find_answering_nodes(workflow: Workflow, top: bool = False) -> Iterator[tuple[str, NodeKind]]:
    """Yield (address, node) for nodes with a signature and instructions. top: skip nodes inside other nodes."""
    for address, node in places(workflow):
        if is_answering(node) and not (top and address.count(".") > 1):
            yield address, node


def is_answering(node: NodeKind) -> bool:
    return isinstance(getattr(node, "signature", None), Signature) and "instructions" in type(node.config).model_fields


def has_kind(kind: str) -> bool:
    return kind in plugins().names("node_kinds")


def top_name(address: str) -> str:
    """Return NAME from the address `nodes.NAME`. Raise SpecError for a node inside another one."""
    parts = address.split(".")
    if parts[0] != "nodes" or len(parts) != 2:
        raise SpecError(f"'{address}' is not a node of the graph", hint="Write e.g. nodes.answer.")
    return parts[1]


def need_kind(tree: Tree, *kinds: str) -> None:
    if tree["kind"] not in kinds:
        raise SpecError(f"this edit is for {' and '.join(kinds)}, not for {tree['kind']}")


def split_settings(tree: Tree) -> tuple[Tree, Tree]:
    """Return (the node's own settings, the settings of its place in the graph)."""
    return {k: v for k, v in tree.items() if k not in NODE_KEYS}, {k: v for k, v in tree.items() if k in NODE_KEYS}


def drop_demos(tree: Tree) -> Tree:
    """Return the settings without demos, which lack the field that an edit adds."""
    return {k: v for k, v in tree.items() if k not in ("demos", "retrieve")}


def make_fresh_name(taken: Any, name: str) -> str:
    """Return the name, with a number appended if it is taken."""
    taken = set(taken)
    return next(n for n in (name, *(f"{name}{i}" for i in range(2, len(taken) + 3))) if n not in taken)


def list_fields(workflow: Workflow) -> list[str]:
    """List all fields that any node reads or writes."""
    return [f for _, node in places(workflow) for f in (*node.inputs, *node.outputs)]


def need_sole_writer(workflow: Workflow, name: str) -> None:
    """Raise SpecError if another node writes one of its outputs.

    The order in the file would then decide which value is read.
    """
    others = {f for n, node in workflow.enabled_nodes.items() if n != name for f in node.outputs}
    twice = [f for f in workflow.enabled_nodes[name].outputs if f in others]
    if twice:
        raise SpecError(f"another node writes '{twice[0]}' too")
