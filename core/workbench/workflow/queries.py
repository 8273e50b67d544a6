"""Queries about a workflow: which settings optimizers may change, and which node and value an address names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

from workbench.base.type_guards import is_dict
from workbench.spec import LMSpec, lm_spec
from workbench.workflow.node import NodeConfig, NodeKind, TextRole
from workbench.workflow.tree import leaves_of
from workbench.workflow.workflow import Workflow, make_node


def learnable_addresses(workflow: Workflow, kind: str | None = None) -> dict[str, str]:
    """Map each address that optimizers may change to its kind: text, demos, ... (`NodeKind.learnable`).

    kind: return only this kind, e.g. "demos".
    """
    found: dict[str, str] = {}

    def walk(prefix: str, node: NodeKind) -> None:
        found.update({f"{prefix}.{name}": what for name, what in node.learnable.items()})
        for name, child in node.children().items():
            walk(f"{prefix}.{name}", child)

    for name, node in workflow.enabled_nodes.items():
        walk(f"nodes.{name}", node)
    return {a: w for a, w in found.items() if kind is None or w == kind}


def node_at(workflow: Workflow, address: str) -> NodeKind:
    """Return the innermost node that has the setting at an address. Raises KeyError if there is none."""
    return _find(workflow, address)[0]


def text_role(workflow: Workflow, address: str) -> TextRole:
    """Return the role of the text at an address. Raises KeyError if no node has it."""
    node, path = _find(workflow, address)
    name = ".".join(path)
    role = node.text_role(name)
    return role._replace(parts={address.removesuffix(name) + own: text for own, text in role.parts.items()})


def _find(workflow: Workflow, address: str) -> tuple[NodeKind, list[str]]:
    """Return the innermost node at an address, and the path of the setting within it."""
    parts = address.split(".")
    if parts[0] != "nodes" or len(parts) < 2 or parts[1] not in workflow.nodes:
        raise KeyError(address)
    node, path = make_node(parts[1], workflow.nodes[parts[1]], workflow.base, workflow.code), parts[2:]
    while path:
        children = node.children()
        match = next((k for k in children if path[: len(k.split("."))] == k.split(".")), None)
        if match is None:
            break
        node, path = children[match], path[len(match.split(".")) :]
    return node, path


def setting_at(workflow: Workflow, address: str) -> Any:
    """Return the value in force at an address: the written one, else the node's default; None if there is neither."""
    value = workflow.get(address, None)
    if value is not None or not address.startswith("nodes."):
        return value
    name, config = address.rpartition(".")[2], cast(NodeConfig, node_at(workflow, address).config)
    fields = type(config).model_fields.items()
    return next((getattr(config, n) for n, f in fields if name in (n, f.alias)), None)


def text_at(workflow: Workflow, address: str) -> str:
    """Return the text in force at an address; empty if there is none."""
    return str(setting_at(workflow, address) or "")


def task_lm(lm: LMSpec, workflow: Workflow) -> LMSpec:
    """Return the file's language model, with the changes that patches made to the workflow's `lm`.

    A new model keeps the server and the settings only if the same provider serves it, and never the price.
    """
    changed = workflow.tree.get("lm")
    if not changed:
        return lm
    changed = changed if is_dict(changed) else {"model": changed}
    model = changed.get("model", lm.model)
    if _provider(model) != _provider(lm.model):
        return lm_spec(changed)
    kept = lm.model_dump(exclude_unset=True, mode="json", exclude={"price"} if model != lm.model else None)
    return lm_spec({**kept, **changed})


def list_changes(before: Workflow, after: Workflow, lm: LMSpec) -> list[tuple[str, Any, Any]]:
    """List (address, value before, value after) for each setting with another value. lm: the file's language model.

    Settings of a model are compared in full, with its server and price. A change between two empty values is left out.
    """
    differ = [c for c in before.diff(after) if not (_is_empty(c[1]) and _is_empty(c[2]))]
    models = {prefix: None for address, *_ in differ if (prefix := _model_prefix(address))}
    found = [c for c in differ if not _model_prefix(c[0])]
    for prefix in models:
        old, new = (_model_at(workflow, prefix, lm) for workflow in (before, after))
        found += [(a, old.get(a), new.get(a)) for a in {**old, **new} if old.get(a) != new.get(a)]
    return sorted(found, key=lambda change: change[0])


def _is_empty(value: Any) -> bool:
    return value is None or value in ([], {})


def _model_prefix(address: str) -> str | None:
    """Return the address of the model, `lm` or `nodes....lm`, that a setting belongs to; None if it belongs to none."""
    parts = address.split(".")
    at = next((n for n, part in enumerate(parts) if part == "lm" and n != 1), None)
    return None if at is None else ".".join(parts[: at + 1])


def _model_at(workflow: Workflow, address: str, lm: LMSpec) -> dict[str, Any]:
    """Return the explicit settings, by address, of the model at `nodes....lm`, else of the workflow's model."""
    own = workflow.get(address, None) if address != "lm" else None
    asked = lm_spec(own) if own else task_lm(lm, workflow)
    return dict(leaves_of(asked.model_dump(exclude_unset=True, mode="json"), address))


def called_lms(workflow: Workflow, lm: LMSpec, inside: NodeKind | None = None) -> Iterator[LMSpec]:
    """Yield the language models that nodes name or use by default, without those of roles. lm: the file's model;
    inside: only for this node and the nodes inside it."""
    for node in (inside or workflow).walk():
        config = cast(NodeConfig, node.config)
        if "lm" in type(config).model_fields:
            own = getattr(config, "lm", None)
            yield lm_spec(own) if own else task_lm(lm, workflow)
        if own := getattr(config, "embedder", None):
            yield lm_spec(own)


def _provider(model: str) -> str:
    return re.split("[/:]", model, maxsplit=1)[0]
