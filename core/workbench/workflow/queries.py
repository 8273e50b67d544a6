"""Questions about a workflow: its nodes, those inside others, what may be learnt, what is in force."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from workbench.spec import LMSpec, lm_spec, named_lm
from workbench.workflow.graph import fields_from_outside
from workbench.workflow.node import NodeKind
from workbench.workflow.workflow import Workflow, enabled, make_node


def calls_of(workflow: Workflow) -> int:
    """The most LM calls for one example, retries not counted."""
    return sum(node.max_calls for node in enabled(workflow).values())


def input_fields(workflow: Workflow) -> list[str]:
    """The fields that the workflow reads from an example: read by a node, written by none before it."""
    return fields_from_outside(workflow.graph)


def learnable_addresses(workflow: Workflow, kind: str | None = None) -> dict[str, str]:
    """Addresses that optimizers may change and what each is; only those of one kind (e.g. "demos") if given."""
    found: dict[str, str] = {}

    def walk(prefix: str, node: NodeKind) -> None:
        found.update({f"{prefix}.{name}": what for name, what in node.learnable.items()})
        for name, child in node.children().items():
            walk(f"{prefix}.{name}", child)

    for name, node in enabled(workflow).items():
        walk(f"nodes.{name}", node)
    return {a: w for a, w in found.items() if kind is None or w == kind}


def all_nodes(workflow: Workflow) -> Iterator[NodeKind]:
    """The enabled nodes and those inside them."""
    return with_inner(enabled(workflow).values())


def with_inner(nodes: Iterable[NodeKind]) -> Iterator[NodeKind]:
    """Nodes and those inside them."""
    for node in nodes:
        yield node
        yield from with_inner(node.children().values())


def node_at(workflow: Workflow, address: str) -> NodeKind:
    """The innermost node whose setting an address names. Raises KeyError."""
    parts = address.split(".")
    if parts[0] != "nodes" or len(parts) < 2 or parts[1] not in workflow.nodes:
        raise KeyError(address)
    node, path = make_node(parts[1], workflow.nodes[parts[1]], workflow.base), parts[2:]
    while path:
        children = node.children()
        match = next((k for k in children if path[: len(k.split("."))] == k.split(".")), None)
        if match is None:
            break
        node, path = children[match], path[len(match.split(".")) :]
    return node


def setting(workflow: Workflow, address: str) -> Any:
    """The value in force at an address: as written, else the default of its node; None where there is neither."""
    value = workflow.get(address, None)
    if value is not None or not address.startswith("nodes."):
        return value
    name, config = address.rpartition(".")[2], node_at(workflow, address).config
    return next((getattr(config, n) for n, f in type(config).model_fields.items() if name in (n, f.alias)), None)


def text_at(workflow: Workflow, address: str) -> str:
    """The text in force at an address; empty where there is none."""
    return str(setting(workflow, address) or "")


def task_lm(lm: LMSpec, workflow: Workflow) -> LMSpec:
    """The file's language model, with what patches of the workflow's `lm` changed of it.

    Another model keeps the server and the settings only where the same provider serves it, and never the price.
    """
    changed = workflow.tree.get("lm")
    if not changed:
        return lm
    changed = named_lm(changed)
    model = changed.get("model", lm.model)
    if _provider(model) != _provider(lm.model):
        return lm_spec(changed)
    kept = lm.model_dump(exclude_unset=True, mode="json", exclude={"price"} if model != lm.model else None)
    return lm_spec({**kept, **changed})


def _provider(model: str) -> str:
    return re.split("[/:]", model, maxsplit=1)[0]
