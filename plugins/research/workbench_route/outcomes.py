"""Outcomes: what each model made of each row, and what follows from them for `n` samples of a model.

Labels and draws are those of BEST-Route (arXiv 2506.22716), with two departures. Draws of n samples are made without
replacement: with it, as there, the same sample is drawn twice and more samples look worth less than they are. And with
`value` a candidate is judged by its expected quality instead of by how often it is no worse than the reference: where
the reference fails as well, being no worse is worth nothing.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

#: Draws of n samples that are considered for a row at most.
MAX_DRAWS = 40


@dataclass(frozen=True, slots=True)
class Sample:
    """An answer. score: in [0, 1]. cost: in any unit, the same for all. answer: its text; None if there is none."""

    score: float
    cost: float
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """An input and the answers to it.

    text: what the decision sees. samples: by model, in the order in which they would be drawn. vector: of the text, if
    there is an embedder.
    """

    id: str
    text: str
    samples: Mapping[str, Sequence[Sample]]
    vector: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model, and how many of its answers are drawn."""

    model: str
    samples: int = 1

    @property
    def name(self) -> str:
        return self.model if self.samples == 1 else f"{self.model}*{self.samples}"

    @classmethod
    def named(cls, name: str) -> Candidate:
        """The candidate of a name: `small`, or `small*3` for the best of three answers."""
        model, _, count = name.partition("*")
        return cls(model, int(count) if count else 1)


#: Which of several answers to an input is taken: (row, model, positions of the answers) -> one of the positions.
Pick = Callable[[Row, str, Sequence[int]], int]


def first_answer(row: Row, model: str, positions: Sequence[int]) -> int:
    """The first answer that is there."""
    return next((i for i in positions if row.samples[model][i].answer is not None), positions[0])


def most_frequent(answers: Sequence[str | None]) -> int:
    """The position of the first of those answers that are given most often."""
    given = [answer for answer in answers if answer is not None]
    if not given:
        return 0
    return answers.index(max(given, key=lambda answer: (given.count(answer), -given.index(answer))))


def draw_scores(row: Row, candidate: Candidate, pick: Pick) -> list[float]:
    """The scores of a candidate over draws of its samples, each without replacement.

    All subsets of n samples in their order; of very many, MAX_DRAWS drawn at random (seeded by the row, so that a
    replay sees the same). With fewer samples than n the subset is all of them.
    """
    drawn = row.samples[candidate.model]
    n = min(candidate.samples, len(drawn))
    if math.comb(len(drawn), n) <= MAX_DRAWS:
        subsets: list[tuple[int, ...]] = list(itertools.combinations(range(len(drawn)), n))
    else:
        rng = random.Random(f"draws:{row.id}:{candidate.name}")
        subsets = [tuple(sorted(rng.sample(range(len(drawn)), n))) for _ in range(MAX_DRAWS)]
    return [drawn[pick(row, candidate.model, subset)].score for subset in subsets]


def match_label(scores: Sequence[float], reference: Sequence[float]) -> float:
    """The share of pairs in which a candidate's score is at least the reference's."""
    pairs = len(scores) * len(reference)
    return sum(score >= other for score in scores for other in reference) / pairs


def realised(row: Row, candidate: Candidate, pick: Pick) -> Sample:
    """Return the candidate's outcome for a row: the pick of its first n samples, at the cost of all of them."""
    drawn = row.samples[candidate.model][: candidate.samples]
    cost = math.fsum(sample.cost for sample in drawn)
    return replace(drawn[pick(row, candidate.model, range(len(drawn)))], cost=cost)


def shuffle_outcomes(rows: Sequence[Row], seed: int) -> list[Row]:
    """The same rows with the outcomes of other rows: the control, in which the text says nothing about the outcome."""
    order = list(range(len(rows)))
    random.Random(f"shuffled:{seed}").shuffle(order)
    return [replace(row, samples=rows[other].samples) for row, other in zip(rows, order, strict=True)]


def complete_rows(rows: Sequence[Row], candidates: Sequence[Candidate]) -> list[Row]:
    """The rows that have an outcome of every model; a call that failed for want of a server leaves a gap."""
    models = {candidate.model for candidate in candidates}
    return [row for row in rows if all(row.samples.get(model) for model in models)]
