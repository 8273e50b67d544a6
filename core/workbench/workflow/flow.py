"""The structure of a workflow: a hash of what it does, the flow of fields through it, and nodes taken out of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from workbench.errors import SpecError
from workbench.hashing import digest
from workbench.plugins import plugins
from workbench.workflow.graph import writers_of
from workbench.workflow.node import NodeKind
from workbench.workflow.queries import input_fields
from workbench.workflow.signature import Field, Signature, with_inputs
from workbench.workflow.tree import Tree
from workbench.workflow.workflow import Workflow, enabled, make_node, node_class


def graph_hash(workflow: Workflow) -> str:
    """Equal for workflows that do the same: names and order of nodes, disabled nodes and defaults do not count.

    Each node is digested with its settings and what comes before it (a Merkle hash of the graph). Two equal nodes side
    by side are told from one, but not which of them feeds whom: they do the same. Where several nodes write one field,
    the order of the file decides what is read and what is left in the end, so there it counts.
    """
    import networkx

    nodes, graph = enabled(workflow), workflow.graph
    several = {field: names for field, names in writers_of(nodes).items() if len(names) > 1}
    place = {name: index for index, name in enumerate(nodes)}
    made: dict[str, str] = {}
    for name in networkx.topological_sort(graph):
        fields = {b: sorted(set(nodes[name].inputs) & set(nodes[b].outputs)) for b in graph.predecessors(name)}
        before = sorted([made[b], read] for b, read in fields.items())
        # By how many writers a reader comes after: which of them it reads.
        after = {f: sum(place[w] < place[name] for w in several[f]) for f in set(nodes[name].inputs) & several.keys()}
        node = [_meaning(nodes[name]), bool(workflow.nodes[name].get("optional")), before]
        made[name] = digest([*node, after] if after else node)
    order = {field: [made[w] for w in names] for field, names in several.items()}
    return digest([workflow.tree.get("lm"), sorted(made.values()), *([order] if order else [])])


def _meaning(node: NodeKind) -> Tree:
    """A node's settings with their defaults, those of nodes inside it too."""
    settings = node.config.model_dump(mode="json")
    for address, child in node.children().items():
        first, _, rest = address.partition(".")
        holder: Any = settings.get(first) if rest else settings
        key: Any = rest or first
        key = int(key) if isinstance(holder, list) else key
        raw = holder[key] if isinstance(holder, list) or (isinstance(holder, dict) and key in holder) else None
        needs = raw.get("needs") if isinstance(raw, dict) else None
        if isinstance(holder, dict | list):
            holder[key] = {"needs": needs, **_meaning(child)}
    return {"class": type(node).__qualname__, **settings}


def output_fields(workflow: Workflow) -> list[str]:
    """The fields that it gives: written by a node after which none comes."""
    nodes, graph = enabled(workflow), workflow.graph
    return list(dict.fromkeys(f for name in graph if not graph.out_degree(name) for f in nodes[name].outputs))


def check_flow(workflow: Workflow, start: Workflow, given: Collection[str] = ()) -> None:
    """Whether a workflow that was made of `start` still reads what is there and gives what start gives.

    Raises SpecError for a field that nothing writes and start does not read from the example, for a result of start
    that is not written any more, and for types that do not fit where they do in start (only signatures have types).
    given: fields of an example that may be read though start does not read them.
    """
    nodes = enabled(workflow)
    before = input_fields(start)
    for field in input_fields(workflow):
        if field not in before and field not in given:
            reader = next(n for n, node in nodes.items() if field in node.inputs)
            raise SpecError(f"'{reader}' reads '{field}', which no node before it writes", path=("nodes", reader))
    now = {f for node in nodes.values() for f in node.outputs}
    lost = [f for f in output_fields(start) if f not in now]
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
    """By (writer, reader, field): the field and both types, where what is written is not what is read."""
    nodes, found = enabled(workflow), {}
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
    """Text may be read of anything."""
    if read.type in (str, Any) or written.type == read.type or (written.type, read.type) == (int, float):
        return True
    return bool(written.values and read.values) and set(written.values) <= set(read.values)


def _shown(field: Field) -> str:
    return field.type.__name__ if isinstance(field.type, type) else str(field.type).removeprefix("typing.")


def disable_nodes(workflow: Workflow, absent: Collection[str]) -> Tree:
    """The settings that take nodes out: disabled, and what they alone wrote is read no more.

    What stands in the example, too (a node that is out refined it), is still read. Raises SpecError for a node
    that cannot do without: only signatures lose inputs.
    """
    nodes = enabled(workflow)
    left = {name: node for name, node in nodes.items() if name not in absent}
    there = {f for node in left.values() for f in node.outputs} | set(input_fields(workflow))
    gone = [f for name in absent if name in nodes for f in nodes[name].outputs if f not in there]
    patch: Tree = {f"nodes.{name}.enabled": False for name in absent if name in nodes}
    for name, node in left.items():
        if set(gone) & set(node.inputs):
            patch[f"nodes.{name}"] = tree = without_inputs(workflow.nodes[name], gone)
            still = set(gone) & set(make_node(name, tree, workflow.base).inputs)
            if still:
                raise SpecError(
                    f"'{name}' cannot do without '{min(still)}', which {', '.join(absent)} writes", path=("nodes", name)
                )
    return patch


def without_inputs(tree: Any, fields: Iterable[str]) -> Any:
    """A node, and the nodes inside it, with these fields out of their signatures."""
    drop = set(fields)
    if isinstance(tree, list):
        return [without_inputs(value, drop) for value in tree]
    if not isinstance(tree, dict):
        return tree
    signed = {k for k in tree if k == "signature" or (k in plugins().names("node_kinds") and _is_signed(k))}
    return {
        k: with_inputs(v, drop=drop)
        if k in signed and isinstance(v, str)
        else v
        if k == "demos"
        else without_inputs(v, drop)
        for k, v in tree.items()
    }


def _is_signed(kind: str) -> bool:
    return node_class(kind).primary == "signature"
