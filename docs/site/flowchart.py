"""The flowcharts of the gallery, drawn as SVG when the site is built, so that no page fetches a script to draw them."""

from __future__ import annotations

import re
from html import escape, unescape
from itertools import pairwise

import networkx as nx

_FRAME = re.compile(r'subgraph (n\d+)\["(.*)"\]')
_VERTEX = re.compile(r'(n\d+)[\[(]+"(.*?)"[\])]+')
_EDGE = re.compile(r'(n\d+) -->(?:\|"(.*)"\|)? ?(n\d+)')
_LINE, _GAP, _ROW = 18, 40, 58  # pixels: a line of text, between boxes, between layers

#: A box by its name in the chart, or the place in a layer that an edge passes: its start, its end, the layer.
_Key = str | tuple[str, str, str]


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
    size: dict[_Key, tuple[float, float]] = {
        name: (max(8 * max(map(len, lines)) + 20, 70), _LINE * len(lines) + 12) for name, lines in labels.items()
    }
    layers: list[list[_Key]] = [[name for name in labels if depth[name] == d] for d in range(max(depth.values()) + 1)]
    ways = {edge: list[_Key]() for edge in graph.edges}
    for (start, end), way in ways.items():  # an edge that skips a layer has a place of its own in it
        for d in range(depth[start] + 1, depth[end]):
            key = (start, end, str(d))
            size[key] = (30 if way else 6 * len(graph.edges[start, end]["label"]) + 8, 0)
            layers[d].append(key)
            way.append(key)
    places, width, height = _place(layers, size)
    parts = []
    for (start, end), way in ways.items():
        x, y = places[start]
        tall = {key: max(size[one][1] for one in layers[int(key[2])]) for key in way}
        bends = [corner for key in way for corner in (places[key], (places[key][0], places[key][1] + tall[key]))]
        share = 0.38 if graph.in_degree[end] > graph.out_degree[start] else 0.66  # where arrows are apart
        parts.append(_arrow([(x, y + size[start][1]), *bends, places[end]], graph.edges[start, end]["label"], share))
    parts += [_box(places[name], size[name], lines) for name, lines in labels.items()]
    marker = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z"/></marker></defs>'
    )
    what = "; ".join(" with ".join(lines) for lines in labels.values())
    head = f'<svg role="img" aria-label="{escape(what)}" width="{width:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">'
    return f'<div class="flowchart">{head}{marker}{"".join(parts)}</svg></div>'


def _place(
    layers: list[list[_Key]], size: dict[_Key, tuple[float, float]]
) -> tuple[dict[_Key, tuple[float, float]], float, float]:
    """The middle of the upper edge of each box, layer below layer; then width and height of the whole."""
    wide = [[size[key][0] for key in layer] for layer in layers]
    width = max(sum(row) + _GAP * (len(row) + 1) for row in wide)
    places, y = dict[_Key, tuple[float, float]](), 10.0
    for layer, row in zip(layers, wide, strict=True):
        x = (width - sum(row) - _GAP * (len(row) - 1)) / 2
        for key, w in zip(layer, row, strict=True):
            places[key] = (x + w / 2, y)
            x += w + _GAP
        y += max(size[key][1] for key in layer) + _ROW
    return places, width, y - _ROW + 12


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


def _arrow(corners: list[tuple[float, float]], label: str, share: float) -> str:
    """A curve from the first corner to the last, upright at each; its label stands where it passes a layer."""
    (x0, y0), (x1, y1) = corners[:2]
    line = f"M{x0:.0f} {y0:.0f}"
    for (a, b), (c, d) in pairwise(corners):
        line += f"C{a:.0f} {b + 30:.0f} {c:.0f} {d - 30:.0f} {c:.0f} {d:.0f}" if a != c else f"L{c:.0f} {d:.0f}"
    x, y = x0 + share * (x1 - x0), y0 + share * (y1 - y0)
    if len(corners) > 2:
        x, y = x1, (y1 + corners[2][1]) / 2
    text = f'<text class="label" x="{x:.0f}" y="{y + 4:.0f}">{escape(label)}</text>' if label else ""
    return f'<path d="{line}" marker-end="url(#tip)"/>{text}'
