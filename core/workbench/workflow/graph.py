"""The graph of a workflow: which node reads which field from which, and running the nodes in that order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from workbench.base.concurrency import gather_all
from workbench.errors import FailureKind, NodeError, SpecError, suggest
from workbench.workflow.node import NodeKind

if TYPE_CHECKING:
    import networkx

    Graph = networkx.DiGraph[str]

Trees = Mapping[str, Mapping[str, Any]]


def build_graph(nodes: Mapping[str, NodeKind], trees: Trees, carried: Collection[str] = ()) -> Graph:
    """Build a directed graph of the nodes: edges for each `needs`, and from the writers of a field to its readers.

    If several nodes write a field, a reader gets the value of the last writer before it in the file. If that one is
    optional and failed, it gets the value of the one before that. A node that reads and writes the same field refines
    it. So the order in the file decides, and not which node was faster. Each vertex has the attribute `sources`,
    {field: [its writers]}, for every field that the node reads: the first writer in the list with a value counts, and
    if none has one, the example's field.

    Args:
        nodes: the enabled nodes, in the order of the file.
        trees: all nodes of the file as trees, for `needs` and `optional`.
        carried: fields that a reader gets from outside if no node before it in the file writes them, e.g. from the
            previous round.

    Raises:
        SpecError: an unknown name in `needs`, a cycle, or no nodes.
    """
    import networkx

    if not nodes:
        raise SpecError("no node is enabled", hint="Enable at least one.", path=("nodes",))
    graph: Graph = networkx.DiGraph()
    for name in nodes:
        graph.add_node(name, sources={})
    place = {name: index for index, name in enumerate(nodes)}
    writers = writers_of(nodes)
    open_ends: list[tuple[str, str]] = []
    for name, node in nodes.items():
        for need in needs_of(trees[name]):
            if need not in trees:
                message = f"'{name}' needs unknown node '{need}'"
                raise SpecError(message, hint=suggest(need, nodes), path=("nodes", name, "needs"))
            if need in nodes:
                graph.add_edge(need, name)
        for field in node.inputs:
            others = [n for n in writers.get(field, ()) if n != name]
            before = [n for n in reversed(others) if place[n] < place[name]]
            if not before and others and field in node.outputs:
                open_ends.append((name, field))
            later = [] if field in node.outputs or field in carried else others
            sources = until_required(before or later, trees)
            graph.nodes[name]["sources"][field] = sources
            graph.add_edges_from((source, name) for source in sources)
    if not networkx.is_directed_acyclic_graph(graph):  # much faster than a search for a cycle
        # The type stubs leave the results of both algorithms open.
        found = networkx.find_cycle(graph)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        cycle = cast("list[tuple[str, str]]", found)
        ring = " -> ".join([edge[0] for edge in cycle] + [cycle[0][0]])
        message = f"the nodes form a cycle: {ring}"
        raise SpecError(message, hint="Remove one of these dependencies.", path=("nodes", cycle[0][0]))
    for name, field in open_ends:
        # A node that refines a field has no edge from later writers, but `needs` may put one of them before it.
        earlier: set[str] = networkx.ancestors(graph, name)  # pyright: ignore[reportUnknownMemberType]
        graph.nodes[name]["sources"][field] = [n for n in writers[field] if n in earlier]
    return graph


def writers_of(nodes: Mapping[str, NodeKind]) -> dict[str, list[str]]:
    """Map each field to its writers, in the order of the file."""
    found: dict[str, list[str]] = {}
    for name, node in nodes.items():
        for field in dict.fromkeys(node.outputs):
            found.setdefault(field, []).append(name)
    return found


def until_required(names: list[str], trees: Trees) -> list[str]:
    """Return the names up to the first node that is not optional. Those after it are never read."""
    required = next((i for i, name in enumerate(names) if not trees[name].get("optional")), len(names))
    return names[: required + 1]


def needs_of(tree: Mapping[str, Any]) -> list[str]:
    """Return the names under a node's `needs`."""
    needs: str | list[str] = tree.get("needs") or []
    return [needs] if isinstance(needs, str) else list(needs)


def fields_from_outside(graph: Graph) -> list[str]:
    """List the fields that a node reads and no node writes for it."""
    known: Iterator[dict[str, list[str]]] = (graph.nodes[name]["sources"] for name in graph)
    return list(dict.fromkeys(field for found in known for field, sources in found.items() if not sources))


class Schedule:
    """A schedule that runs the nodes of a graph in dependency order. Independent nodes run concurrently.

    Args:
        nodes: the enabled nodes, in the order of the file.
        trees: all nodes of the file as trees, for `needs` and `optional`.
        graph: their graph (`build_graph`), if already built.
        carried: fields from the previous round (`build_graph`).

    `order`: the names, sorted by dependency, then by the order of the file. `inputs`: the fields that the nodes read
    from outside. `sources`: by node and field, the nodes that may have written it; the first that did counts.
    """

    def __init__(
        self,
        nodes: Mapping[str, NodeKind],
        trees: Trees,
        graph: Graph | None = None,
        carried: Collection[str] = (),
    ):
        import networkx

        graph = build_graph(nodes, trees, carried) if graph is None else graph
        self.nodes, self.inputs = nodes, fields_from_outside(graph)
        place = {name: index for index, name in enumerate(nodes)}
        self.order: list[str] = list(networkx.lexicographical_topological_sort(graph, key=place.__getitem__))
        self._before = {n: list(graph.predecessors(n)) for n in self.order}
        self.sources: dict[str, dict[str, list[str]]] = {n: graph.nodes[n]["sources"] for n in self.order}
        self._chain = all(a in self._before[b] for a, b in zip(self.order, self.order[1:], strict=False))
        self._several = {field: names for field, names in writers_of(nodes).items() if len(names) > 1}
        self._optional = {n for n in self.order if trees[n].get("optional")}

    async def run(
        self,
        step: Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]],
        given: Mapping[str, Any],
        written: dict[str, Mapping[str, Any]],
    ) -> None:
        """Run every node, each as soon as those before it are done.

        After a failure the other nodes still finish. Their calls are paid for, so they are recorded, and a replay sees
        the same. An optional node that fails writes nothing.

        Args:
            step: runs one node: takes its name and inputs, and returns its outputs.
            given: the fields from outside.
            written: filled with the outputs of each node, by name.

        Raises:
            NodeError: the first required node failed. Any other error is raised in its place.
        """

        async def one(name: str) -> None:
            try:
                written[name] = await step(name, self._inputs(name, given, written))
            except NodeError as error:
                if name in self._optional:
                    return
                sources = self.sources[name]
                if error.kind == FailureKind.DATA and any(sources.get(error.field, sources.values())):
                    error.kind = FailureKind.UPSTREAM  # a missing or bad output of another node is not the row's fault
                raise

        if self._chain:
            for name in self.order:
                await one(name)
            return
        tasks: dict[str, asyncio.Task[None]] = {}

        async def after(name: str) -> None:
            for before in self._before[name]:
                await tasks[before]
            await one(name)

        for name in self.order:
            tasks[name] = asyncio.create_task(after(name))
        await gather_all(tasks.values())

    def merged(self, written: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Merge all fields that were written. The last writer in the file wins, or the node that refined its value."""
        values = {field: value for name in self.nodes for field, value in written.get(name, {}).items()}
        for field, writers in self._several.items():
            wrote = [name for name in writers if field in written.get(name, ())]
            if wrote:
                values[field] = written[self._last(field, wrote)][field]
        return values

    def _last(self, field: str, wrote: list[str]) -> str:
        name, rest = wrote[-1], wrote[:-1]
        while (refiner := next((n for n in rest if name in self.sources[n].get(field, ())), None)) is not None:
            name = refiner
            rest.remove(refiner)
        return name

    def _inputs(self, name: str, given: Mapping[str, Any], written: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        inputs: dict[str, Any] = {}
        for field, sources in self.sources[name].items():
            writer = next((n for n in sources if field in written.get(n, ())), None)
            if writer is not None:
                inputs[field] = written[writer][field]
            elif field in given:
                inputs[field] = given[field]
            else:
                lost = f"{' and '.join(sources)} failed, and " if sources else ""
                raise NodeError(
                    "data",
                    f"{lost}the example has no field '{field}'; it has: {', '.join(given)}",
                    node=name,
                    field=field,
                )
        return inputs
