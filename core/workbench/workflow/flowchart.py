"""A workflow drawn as a flowchart in Mermaid's notation, which GitHub, GitLab and many editors show as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

from workbench.workflow.node import NodeKind
from workbench.workflow.workflow import Workflow

if TYPE_CHECKING:
    pass

_SHAPES = {"box": '["{}"]', "round": '("{}")', "circle": '(("{}"))'}


def mermaid(workflow: Workflow) -> str:
    """Return a flowchart: enabled nodes, the fields that pass between them, and the parts inside a node.

    An edge is labelled with the fields that its second node reads from its first; an edge for `needs` alone has no
    label. The example is a vertex of its own. `NodeKind.diagram` decides how a node is drawn.
    """
    nodes, ids = workflow.enabled_nodes, _Ids()
    lines = ["flowchart TD"]
    if workflow.input_fields:  # no node has an empty name
        lines.append(f"  {ids.new('')}{_SHAPES['round'].format('example')}")
    for name, node in nodes.items():
        kind = workflow.nodes[name]["kind"]
        lines += _drawn(node, f"{name}: {kind}", ids, ids.new(name), 1)
    writer: dict[tuple[str, str], list[str]] = {edge: [] for edge in workflow.graph.edges}
    for name in workflow.graph:
        known: dict[str, list[str]] = workflow.graph.nodes[name]["sources"]
        for field, sources in known.items():
            for before in sources:
                writer[before, name].append(field)
        fields = [field for field, sources in known.items() if not sources]
        if fields:
            lines.append(_edge(ids[""], ids[name], ", ".join(fields)))
    lines += [_edge(ids[a], ids[b], ", ".join(fields)) for (a, b), fields in writer.items()]
    return "\n".join(lines) + "\n"


class _Ids(dict[str, str]):
    """Short identifiers by name, since words such as `end` cannot be identifiers in Mermaid. Later names win."""

    def __init__(self, numbers: Iterator[int] | None = None) -> None:
        super().__init__()
        self.numbers = count(1) if numbers is None else numbers

    def new(self, name: str) -> str:
        self[name] = f"n{next(self.numbers)}"
        return self[name]


def _drawn(node: NodeKind, label: str, ids: _Ids, own: str, depth: int) -> list[str]:
    """Return the lines of a node: a box, or a frame with its parts inside."""
    indent, inside = "  " * depth, node.diagram()
    if inside is None:
        return [f"{indent}{own}{_SHAPES['box'].format(_quoted(label))}"]
    children, inner = node.children(), _Ids(ids.numbers)
    lines = [f'{indent}subgraph {own}["{_quoted(label)}"]']
    for vertex, values in inside.nodes(data=True):
        shown, shape = str(values.get("label", vertex)), _SHAPES[values.get("shape", "box")]
        if vertex in children:
            child = _drawn(children[vertex], shown, inner, inner.new(vertex), depth + 1)
            simple = len(child) == 1
            lines += [f"{indent}  {inner[vertex]}{shape.format(_quoted(shown))}"] if simple else child
        else:
            lines.append(f"{indent}  {inner.new(vertex)}{shape.format(_quoted(shown))}")
    for a, b, values in inside.edges(data=True):
        lines.append(indent + _edge(inner[a], inner[b], str(values.get("label", ""))))
    return [*lines, f"{indent}end"]


def _edge(start: str, end: str, label: str) -> str:
    return f"  {start} -->" + (f'|"{_quoted(label)}"| ' if label else " ") + end


def _quoted(text: str) -> str:
    """Text for double quotes: characters with a meaning in Mermaid or its Markdown become entities (#35; is `#`)."""
    short = text if len(text) <= 80 else text[:79] + "…"
    marks = '#"`<>\\;&|'
    return "".join(f"#{ord(c)};" if c in marks else " " if c in "\r\n\t" else c for c in short)
