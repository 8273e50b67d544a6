"""The flowcharts of the gallery, drawn as SVG when the site is built, so that no page fetches a script to draw them."""

from __future__ import annotations

import re
from html import escape, unescape
from itertools import groupby

import networkx as nx

_FRAME = re.compile(r'subgraph (n\d+)\["(.*)"\]')
_VERTEX = re.compile(r'(n\d+)[\[(]+"(.*?)"[\])]+')
_EDGE = re.compile(r'(n\d+) -->(?:\|"(.*)"\|)? ?(n\d+)')
_LINE, _GAP, _ROW = 18, 40, 76  # pixels: a line of text, between boxes, between layers


def draw_flowchart(text: str) -> str:
    """An SVG element of a chart as `workbench show --mermaid` writes it (of Mermaid's notation no more is read).

    A frame is one box here: its name, then what is inside, a line each. What flows inside a frame is not drawn.
    Raises ValueError for a line that it cannot read.
    """
    graph, labels = _read(text)
    loose = nx.DiGraph(graph)
    while not nx.is_directed_acyclic_graph(loose):
        loose.remove_edge(*nx.find_cycle(loose)[-1])  # it is drawn, but decides no layer
    depth = {name: d for d, layer in enumerate(nx.topological_generations(loose)) for name in layer}
    layers = [list(names) for _, names in groupby(sorted(labels, key=lambda n: depth[n]), key=lambda n: depth[n])]
    size = {name: (max(8 * max(map(len, lines)) + 20, 70), _LINE * len(lines) + 12) for name, lines in labels.items()}
    width = max(sum(size[n][0] + _GAP for n in layer) for layer in layers) + _GAP
    places, y = {}, 10
    for layer in layers:
        x = (width - sum(size[n][0] + _GAP for n in layer) + _GAP) / 2
        for name in layer:
            places[name] = (x + size[name][0] / 2, y)
            x += size[name][0] + _GAP
        y += max(size[n][1] for n in layer) + _ROW - _LINE
    height = y - _ROW + _LINE + 12
    parts = [_arrow(places[a], size[a], places[b], label) for a, b, label in graph.edges(data="label")]
    parts += [_box(places[name], size[name], lines) for name, lines in labels.items()]
    marker = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z"/></marker></defs>'
    )
    what = "; ".join(" with ".join(lines) for lines in labels.values())
    head = f'<svg role="img" aria-label="{escape(what)}" width="{width:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">'
    return f'<div class="flowchart">{head}{marker}{"".join(parts)}</svg></div>'


def _read(text: str) -> tuple[nx.DiGraph, dict[str, list[str]]]:
    """The graph of the outermost boxes with the labels of its edges, and the lines of text of each box."""
    graph, labels, open_frames = nx.DiGraph(), dict[str, list[str]](), list[str]()
    for line in (line.strip() for line in text.splitlines()[1:]):
        if line == "end":
            open_frames.pop()
        elif found := _FRAME.fullmatch(line):
            _add(labels, open_frames, *found.groups())
            open_frames.append(found[1])
        elif found := _VERTEX.fullmatch(line):
            _add(labels, open_frames, *found.groups())
        elif found := _EDGE.fullmatch(line):
            if not open_frames:
                graph.add_edge(found[1], found[3], label=_plain(found[2] or ""))
        elif line:
            raise ValueError(f"not a line of a flowchart of ours: {line}")
    graph.add_nodes_from(labels)
    return graph, labels


def _add(labels: dict[str, list[str]], open_frames: list[str], name: str, label: str) -> None:
    if open_frames:
        labels[open_frames[0]].append(f"{'· ' * len(open_frames)}{_plain(label)}")
    else:
        labels[name] = [_plain(label)]


def _plain(label: str) -> str:
    return unescape(re.sub(r"#(\d+);", r"&#\1;", label))


def _box(place: tuple[float, float], size: tuple[float, float], lines: list[str]) -> str:
    (x, y), (w, h) = place, size
    kind = ' class="frame"' if len(lines) > 1 else ""
    texts = [f'<text x="{x:.0f}" y="{y + 18 + _LINE * i:.0f}">{escape(line)}</text>' for i, line in enumerate(lines)]
    return f'<rect{kind} x="{x - w / 2:.0f}" y="{y:.0f}" width="{w:.0f}" height="{h:.0f}" rx="5"/>' + "".join(texts)


def _arrow(start: tuple[float, float], size: tuple[float, float], end: tuple[float, float], label: str) -> str:
    (x0, y0), (x1, y1) = (start[0], start[1] + size[1]), end
    if y1 < y0:  # back: it leaves on the right, and comes in from there
        x0, x1 = x0 + size[0] / 3, x1 + size[0] / 3
    line = f"M{x0:.0f} {y0:.0f}C{x0:.0f} {y0 + 30:.0f} {x1:.0f} {y1 - 30:.0f} {x1:.0f} {y1 - 1:.0f}"
    return (
        f'<path d="{line}" marker-end="url(#tip)"/>'
        f'<text class="label" x="{(x0 + 2 * x1) / 3:.0f}" y="{(y0 + 2 * y1) / 3 - 4:.0f}">{escape(label)}</text>'
    )
