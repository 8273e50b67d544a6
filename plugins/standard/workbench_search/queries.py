"""The metric `query_diversity`: how little the queries of a run overlap."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.task import Example, Score
from workbench_kit.searching import split_words

MAX = 20  # later queries do not count
SAME = 0.98  # more alike than this, all of them are one query
WORDS = 8  # shorter queries count for less


class QueryDiversity:
    """The independence of a run's queries (O^2-Searcher, arXiv 2505.16582; as its published reward has it).

    Each query counts with its mean distance from the others, times a weight of their number (0.5 up to 5 queries,
    rising to 1 at 15, then from 0.88 down), times its length in words / 8, in [0.1, 1]. With fewer than two queries 0.
    If all of them are the same, 0.5 * 0.2^(n - 1). Departures: distances are cosines between counts of words, where the
    authors embed sentences; lengths are in words, theirs in tokens; nothing is rounded, and Chinese is not translated.

    Args:
        tool: the name of the tool that takes queries.
        argument: of that tool.
    """

    def __init__(self, tool: str = "search", argument: str = "query"):
        self.tool, self.argument = tool, argument

    def __call__(self, example: Example, prediction: Mapping[str, Any], trace: Any) -> Score:
        queries = find_queries(trace, self.tool, self.argument)
        value = measure_diversity(queries)
        return Score(value, None if value >= 0.5 else f"{len(queries)} queries, which repeat each other or are short")


def find_queries(trace: Any, tool: str, argument: str) -> list[str]:
    """Return the queries that agents sent to a tool, in order."""
    spans = trace.spans if trace else ()
    asked = [call["arguments"] for span in spans for call in span.notes.get("tools", ()) if call["name"] == tool]
    found = [arguments.get(argument) for arguments in asked if isinstance(arguments, Mapping)]
    return [str(query) for query in found if query is not None and str(query).strip()]


def measure_diversity(queries: Sequence[str]) -> float:
    """Compute the diversity, in [0, 1]."""
    queries = queries[:MAX]
    n = len(queries)
    if n < 2:
        return 0.0
    bags = [Counter(split_words(query)) for query in queries]
    alike = [[cosine(a, b) for b in bags] for a in bags]
    if all(value > SAME for row in alike for value in row):
        return 0.5 * 0.2 ** (n - 1)
    apart = [math.fsum(1 - value for j, value in enumerate(row) if j != i) / (n - 1) for i, row in enumerate(alike)]
    lengths = [min(1.0, max(0.1, bag.total() / WORDS)) for bag in bags]
    return _weight(n) * math.fsum(a * length for a, length in zip(apart, lengths, strict=True)) / n


def _weight(n: int) -> float:
    if n <= 5:
        return 0.5
    return 0.5 + (n - 5) * 0.05 if n <= 15 else 0.9 - (n - 15) * 0.02


def cosine(a: Mapping[str, float], b: Mapping[str, float]) -> float:
    """Compute the cosine of two bags of words, in [0, 1]; two empty ones are equal."""
    norms = math.sqrt(math.fsum(v * v for v in a.values()) * math.fsum(v * v for v in b.values()))
    if not norms:
        return float(not a and not b)
    return min(1.0, math.fsum(v * b[word] for word, v in a.items() if word in b) / norms)
