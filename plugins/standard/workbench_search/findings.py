"""Metrics of open-ended answers, lists of findings: `findings_f1` and `list_format`.

Source: O^2-Searcher (arXiv 2505.16582), as its published rewards have it. Its reward of an open-ended answer is half of
the weighted mean of form (1), F1 (1) and diversity of queries (0.5); `rewards` of grpo write it as three terms.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.task import Example, Score
from workbench_kit.searching import split_words
from workbench_search.queries import cosine

ENOUGH = 10  # number of items in a full list
ALIKE = 0.6  # items more alike than this repeat each other


class FindingsF1:
    """F1 of the findings of an answer against the key findings of the row.

    A finding of the row counts as found if some finding of the answer is similar, by the cosine of their words; the
    most similar one is matched to it. Precision and recall count matched findings of the answer, so one finding cannot
    stand for two. Departures: words instead of embedded sentences, with our own threshold (theirs is 0.75 for
    embeddings). Their assignment by the largest sum, which may give up a pair above the threshold for two below it, is
    omitted.

    Args:
        field: the answer, a list or a text with an item a line.
        target: the row's list of key findings.
        threshold: of the cosine.
    """

    def __init__(self, field: str, target: str | None = None, threshold: float = 0.5):
        if not 0 < threshold <= 1:
            raise ValueError("threshold must lie above 0, and at most at 1")
        self.field, self.target, self.threshold = field, target or field, threshold

    def __call__(self, example: Example, prediction: Mapping[str, Any], trace: Any = None) -> Score:
        for values, name, what in ((prediction, self.field, "prediction"), (example, self.target, "row")):
            if name not in values:
                raise ValueError(f"the {what} has no field '{name}'; it has: {', '.join(values) or 'none'}")
        wanted = list_items(example[self.target])
        if not wanted:
            raise ValueError(f"the row's '{self.target}' lists no findings")
        given = list_items(prediction[self.field])
        bags = [Counter(split_words(item)) for item in given]
        keys = [Counter(split_words(item)) for item in wanted]
        alike = [[cosine(bag, key) for key in keys] for bag in bags]
        found = count_matches(alike, self.threshold)
        value = 2 * found / (len(given) + len(wanted)) if found else 0.0
        return Score(value, None if value == 1 else f"{found} of {len(wanted)} findings among {len(given)} items")


class ListFormat:
    """Scores the form of a list: an item per line, `- item`, long enough and without repetition.

    (0.5 form + 0.3 length + 0.5 diversity) / 1.3 - 3 * share of items that occurred before, within [0, 1]. Form: the
    share of lines that are items; length: items / 10, at most 1.

    Args:
        field: the answer.
    """

    def __init__(self, field: str):
        self.field = field

    def __call__(self, example: Example, prediction: Mapping[str, Any], trace: Any = None) -> Score:
        if self.field not in prediction:
            raise ValueError(f"the prediction has no field '{self.field}'; it has: {', '.join(prediction) or 'none'}")
        value = score_list(str(prediction[self.field]))
        return Score(value, None if value == 1 else "write a list, one item a line, each beginning with `- `")


def list_items(value: Any) -> list[str]:
    """Return the items of a list, or of a text with one item per line."""
    lines = value if isinstance(value, Sequence) and not isinstance(value, str) else str(value).splitlines()
    items = (str(line).strip().removeprefix("- ").strip() for line in lines)
    return [item for item in items if item and item != "-"]


def count_matches(alike: Sequence[Sequence[float]], threshold: float) -> int:
    """Count the given items that are the best for some wanted one. alike: similarity by given item, then wanted
    item."""
    best = set[int]()
    for column in zip(*alike, strict=True):
        most = max(range(len(column)), key=column.__getitem__)
        if column[most] >= threshold:
            best.add(most)
    return len(best)


def score_list(text: str) -> float:
    """Return the score, in [0, 1]."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    items = [line[2:].strip() for line in lines if line.startswith("- ") and line[2:].strip()]
    if not lines:
        return 0.0
    repeated = 1 - len(set(items)) / max(1, len(items))
    shape, length = len(items) / len(lines), min(len(items) / ENOUGH, 1.0)
    value = (0.5 * shape + 0.3 * length + 0.5 * measure_item_diversity(items)) / 1.3 - 3 * repeated
    return min(1.0, max(0.0, value))


def measure_item_diversity(items: Sequence[str]) -> float:
    """Compute 1 - s^1.5, and at least 0; s is half of the largest cosine between two items, 0.3 times twice the share
    of pairs above 0.6, and 0.2 times the mean. Cosines are between TF-IDF vectors over words of two characters or more.
    """
    if len(items) <= 1:
        return 1.0
    bags = [Counter(word for word in split_words(item) if len(word) > 1) for item in items]
    seen = Counter(word for bag in bags for word in bag)
    idf = {word: math.log((1 + len(bags)) / (1 + count)) + 1 for word, count in seen.items()}
    vectors = [{word: count * idf[word] for word, count in bag.items()} for bag in bags]
    pairs = [cosine(a, b) for i, a in enumerate(vectors) for b in vectors[i + 1 :] if a and b]
    every = len(bags) * (len(bags) - 1) / 2  # those without words are unlike all others
    alike = sum(value > ALIKE for value in pairs) / every
    s = 0.5 * max(pairs, default=0.0) + 0.3 * 2 * alike + 0.2 * math.fsum(pairs) / every
    return max(0.0, 1 - s**1.5)
