"""A hash of the behavior of a workflow, by which equal candidates are found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.base.hashing import digest
from workbench.base.type_guards import is_dict, is_list
from workbench.workflow import NodeKind, Tree, Workflow


def graph_hash(workflow: Workflow) -> str:
    """Return a hash that is equal for workflows with the same behavior.

    Names and order of nodes, disabled nodes and defaults make no difference. It is a Merkle hash: each node is digested
    with its settings and the digests of the nodes before it. Two equal nodes side by side give another hash than one,
    but it does not matter which of them feeds which reader. If several nodes write one field, their order in the file
    decides which value is read and which remains, so there the order counts.
    """
    import networkx

    nodes, graph = workflow.enabled_nodes, workflow.graph
    several = {field: names for field, names in _writers_of(nodes).items() if len(names) > 1}
    place = {name: index for index, name in enumerate(nodes)}
    made: dict[str, str] = {}
    for name in networkx.topological_sort(graph):
        fields = {b: sorted(set(nodes[name].inputs) & set(nodes[b].outputs)) for b in graph.predecessors(name)}
        before = sorted([made[b], read] for b, read in fields.items())
        # The number of a field's writers before its reader: it decides which of them the reader gets.
        after = {f: sum(place[w] < place[name] for w in several[f]) for f in set(nodes[name].inputs) & several.keys()}
        node = [_meaning(nodes[name]), bool(workflow.nodes[name].get("optional")), before]
        made[name] = digest([*node, after] if after else node)
    order = {field: [made[w] for w in names] for field, names in several.items()}
    return digest([workflow.tree.get("lm"), sorted(made.values()), *([order] if order else [])])


def _meaning(node: NodeKind) -> Tree:
    """Return a node's settings with their defaults, including those of the nodes inside it."""
    settings = node.config.model_dump(mode="json")
    for address, child in node.children().items():
        first, _, rest = address.partition(".")
        holder: Any = settings.get(first) if rest else settings
        key: Any = rest or first
        if is_list(holder):
            key = int(key)
        elif not is_dict(holder):
            continue
        raw = holder[key] if is_list(holder) or key in holder else None
        holder[key] = {"needs": raw.get("needs") if is_dict(raw) else None, **_meaning(child)}
    return {"class": type(node).__qualname__, **settings}


def _writers_of(nodes: Mapping[str, NodeKind]) -> dict[str, list[str]]:
    """Map each field to its writers, in the order of the file."""
    found: dict[str, list[str]] = {}
    for name, node in nodes.items():
        for field in dict.fromkeys(node.outputs):
            found.setdefault(field, []).append(name)
    return found
