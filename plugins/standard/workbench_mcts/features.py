"""The features of a candidate for a surrogate: choices, edits, and numbers of the graph."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.workflow import Workflow
from workbench_kit.searching import describe_edit, places
from workbench_mcts.design import Candidate

if TYPE_CHECKING:
    import numpy


@dataclass(frozen=True)
class Features:
    """labels: a value by name. numbers: of the graph, by name."""

    labels: dict[str, str]
    numbers: dict[str, float]


def extract_features(candidate: Candidate) -> Features:
    labels = {n: str(v) for n, v in candidate.genome.picks.items() if not isinstance(v, float)}
    labels |= {f"edit {describe_edit(edit)}": "yes" for edit in candidate.genome.edits}
    reals = {n: v for n, v in candidate.genome.picks.items() if isinstance(v, float)}
    return Features(labels, {**_numbers(candidate.workflow), **reals})


def _numbers(workflow: Workflow) -> dict[str, float]:
    """Return the size, depth and cost of the graph, and the number of its nodes by kind."""
    import networkx

    graph, nodes = workflow.graph, list(places(workflow))
    kinds = Counter(f"kind {type(node).__name__}" for _, node in nodes)
    fields = Counter(f"{a.rpartition('.')[2]} inputs" for a, node in nodes for _ in node.inputs)
    size = {
        "nodes": len(graph),
        "edges": graph.number_of_edges(),
        "depth": networkx.dag_longest_path_length(graph),
        "calls": sum(node.max_calls for a, node in nodes if a.count(".") == 1),
        "instructions": sum(len(str(getattr(node.config, "instructions", ""))) for _, node in nodes) / 100,
    }
    return {name: float(value) for name, value in {**size, **kinds, **fields}.items()}


def compare_labels(ones: Sequence[Features], others: Sequence[Features]) -> numpy.ndarray:
    """Return the share of names with equal values, shape (len(ones), len(others)); 1 if there are no names."""
    import numpy

    names = list(dict.fromkeys(n for f in itertools.chain(ones, others) for n in f.labels))
    if not names:
        return numpy.ones((len(ones), len(others)))
    codes: dict[Any, int] = {}
    here, there = (
        numpy.array([[codes.setdefault((n, f.labels.get(n)), len(codes)) for n in names] for f in fs]).reshape(
            -1, len(names)
        )
        for fs in (ones, others)
    )
    return (here[:, None, :] == there[None, :, :]).mean(axis=2)


def stack_numbers(rows: Sequence[Features], names: Sequence[str]) -> numpy.ndarray:
    """Return the numbers as an array of shape (len(rows), len(names)); 0 for a missing number."""
    import numpy

    return numpy.array([[f.numbers.get(n, 0.0) for n in names] for f in rows]).reshape(len(rows), len(names))
