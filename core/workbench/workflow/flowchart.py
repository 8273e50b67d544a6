"""A workflow drawn as a flowchart in Mermaid's notation, which GitHub, GitLab and many editors show as a picture."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from workbench.workflow.node import NodeKind
from workbench.workflow.queries import input_fields
from workbench.workflow.workflow import Workflow, enabled

if TYPE_CHECKING:
    import networkx


_SHAPES = {"box": '["{}"]', "round": '("{}")', "circle": '(("{}"))'}


def mermaid(workflow: Workflow) -> str:
    """The text of a flowchart: enabled nodes, the fields that pass between them, and what is inside a node.

    An edge bears the fields that its second node reads from its first; a `needs` without one bears nothing. What is
    read from the example comes from a vertex of its own. How a kind is drawn, it says itself (`NodeKind.diagram`).
    """
    nodes, ids = enabled(workflow), _Ids()
    given = input_fields(workflow)
    lines = ["flowchart TD"]
    if given:  # no node has an empty name
        lines.append(f"  {ids.new('')}{_SHAPES['round'].format('example')}")
    for name, node in nodes.items():
        kind = workflow.nodes[name]["kind"]
        lines += _drawn(node, f"{name}: {kind}", ids, ids.new(name), 1)
    writer: dict[tuple[str, str], list[str]] = {edge: [] for edge in workflow.graph.edges}
    for name, known in workflow.graph.nodes.data("sources"):
        for field, sources in known.items():
            for before in sources:
                writer[before, name].append(field)
        fields = [field for field, sources in known.items() if not sources]
        if fields:
            lines.append(_edge(ids[""], ids[name], ", ".join(fields)))
    lines += [_edge(ids[a], ids[b], ", ".join(fields)) for (a, b), fields in writer.items()]
    return "\n".join(lines) + "\n"


class _Ids(dict[str, str]):
    """Short identifiers: some words, such as `end`, cannot be identifiers in Mermaid. Later names win."""

    def __init__(self) -> None:
        super().__init__()
        self._count = count(1)

    def new(self, name: str) -> str:
        self[name] = f"n{next(self._count)}"
        return self[name]


def _drawn(node: NodeKind, label: str, ids: _Ids, own: str, depth: int) -> list[str]:
    """The lines of a node: one box, or a frame with what is inside."""
    indent, inside = "  " * depth, node.diagram()
    if inside is None:
        return [f"{indent}{own}{_SHAPES['box'].format(_quoted(label))}"]
    children, inner = node.children(), _Ids()
    inner._count = ids._count
    lines = [f'{indent}subgraph {own}["{_quoted(label)}"]']
    for vertex, values in inside.nodes(data=True):
        shown, shape = str(values.get("label", vertex)), _SHAPES[values.get("shape", "box")]
        if vertex in children:
            child = _drawn(children[vertex], shown, inner, inner.new(vertex), depth + 1)
            simple = len(child) == 1
            lines += [f"{indent}  {inner[vertex]}{shape.format(_quoted(shown))}"] if simple else child
        else:
            lines.append(f"{indent}  {inner.new(vertex)}{shape.format(_quoted(shown))}")
    lines += _inner_edges(inside, inner, indent)
    return [*lines, f"{indent}end"]


def _inner_edges(inside: networkx.DiGraph, ids: _Ids, indent: str) -> list[str]:
    return [indent + _edge(ids[a], ids[b], str(values.get("label", ""))) for a, b, values in inside.edges(data=True)]


def _edge(start: str, end: str, label: str) -> str:
    return f"  {start} -->" + (f'|"{_quoted(label)}"| ' if label else " ") + end


def _quoted(text: str) -> str:
    """Text between double quotes: what Mermaid or its Markdown would read is written as entities (#35; is `#`)."""
    short = text if len(text) <= 80 else text[:79] + "…"
    marks = '#"`<>\\;&|'
    return "".join(f"#{ord(c)};" if c in marks else " " if c in "\r\n\t" else c for c in short)
