"""Tools of the gallery on graphs, which are written as edges: "A-B A-E"."""

from __future__ import annotations


def distance(graph: str, start: str, goal: str) -> int:
    """Counts the edges of the shortest path between two nodes."""
    import networkx

    edges = [edge.split("-") for edge in graph.split()]
    return networkx.shortest_path_length(networkx.Graph(edges), start, goal)
