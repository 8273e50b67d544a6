"""`selforg`: members answer alone, then members with representative answers are heard by those with similar ones.

Source: SelfOrg (arXiv 2510.00685): contributions are approximate Shapley values of the similarity to the group; edges
lead from higher to lower contribution between similar answers, so the graph has no cycle; answers propagate in its
order, and the graph is rebuilt each round; no judge, no training. Departures: similarity is the cosine of word counts
instead of embeddings, which need a model, and there is no threshold; neighbours and rounds are ours, since the part of
the paper that could be read does not give them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from pydantic import Field

from workbench.base.concurrency import gather_all
from workbench.runtime import Context
from workbench_teams.members import Answer, TeamConfig, TeamNode, no_answer_error

#: Members that each member hears. The paper's number is unknown to us.
NEIGHBOURS = 2

Vector = Mapping[str, float]


class SelfOrgConfig(TeamConfig):
    """Settings of a `selforg` node."""

    rounds: int = Field(
        1, ge=0, le=10, description="rounds in which members hear others; 0: the group answers immediately"
    )


class SelfOrg(TeamNode):
    """Members answer, then hear similar members with more representative answers; the answer with the most weight wins
    (SelfOrg)."""

    Config = SelfOrgConfig
    primary = "of"
    learnable = {"rounds": "int", "members": "members"}
    config: SelfOrgConfig

    @property
    def max_calls(self) -> int:
        again = sum(node.max_calls for node in self.later.values())
        return sum(node.max_calls for node in self.first.values()) + self.config.rounds * again

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        found = await gather_all(self.answer(m, inputs, ctx, 0) for m in self.active)
        answers = {m: a for m, a in zip(self.active, found, strict=True) if a is not None}
        if not answers:
            raise no_answer_error()
        importance, edges = self._graph(answers)
        for number in range(1, self.config.rounds + 1):
            if len({self.ballot(a) for a in answers.values()}) == 1:
                break
            for member in sorted(answers, key=lambda m: (-importance[m], self.ballot(answers[m]))):
                if heard := [self.shown(answers[m]) for m in edges[member]]:
                    new = await self.answer(member, inputs, ctx, number, heard)
                    answers = answers if new is None else {**answers, member: new}
            importance, edges = self._graph(answers)
        ctx.note(importance=importance, edges=edges)
        return self._together(answers, importance)

    def _graph(self, answers: Mapping[str, Answer]) -> tuple[dict[str, float], dict[str, list[str]]]:
        """(contribution of each member, the members that each one hears)."""
        texts = [self.shown(a) for a in answers.values()]
        vectors = vectorize(texts)
        values = dict(zip(answers, compute_contributions(vectors), strict=True))
        heard = build_edges(vectors, list(values.values()), texts)
        names = list(answers)
        return values, {names[i]: [names[j] for j in heard[i]] for i in range(len(names))}

    def _together(self, answers: Mapping[str, Answer], importance: Mapping[str, float]) -> Answer:
        """The answer with the most weight. Equal answers add up; ties go to the first."""
        weight: dict[str, float] = {}
        for member, answer in answers.items():
            weight[self.ballot(answer)] = weight.get(self.ballot(answer), 0.0) + importance[member]
        best = max(weight, key=lambda b: (round(weight[b], 9), -list(weight).index(b)))
        return next(a for a in answers.values() if self.ballot(a) == best)


def vectorize(texts: Sequence[str]) -> list[Vector]:
    """Unit vectors of word counts, without inverse document frequencies: shared words are what answers agree on."""
    found = []
    for text in texts:
        bag = Counter(re.findall(r"\w+", text.lower())) or Counter([text])
        norm = math.sqrt(sum(n * n for n in bag.values()))
        found.append({word: n / norm for word, n in bag.items()})
    return found


def cosine(a: Vector, b: Vector) -> float:
    lengths = math.sqrt(math.fsum(x * x for x in a.values())) * math.sqrt(math.fsum(x * x for x in b.values()))
    return math.fsum(x * b.get(word, 0.0) for word, x in a.items()) / lengths if lengths else 0.0


def average_vectors(vectors: Sequence[Vector]) -> Vector:
    total: dict[str, float] = {}
    for vector in vectors:
        for word, x in vector.items():
            total[word] = total.get(word, 0.0) + x / len(vectors)
    return total


def compute_contributions(vectors: Sequence[Vector]) -> list[float]:
    """Approximate Shapley values: each answer's similarity to the mean of all, as shares that add up to 1."""
    group = average_vectors(vectors)
    values = [cosine(v, group) for v in vectors]
    total = math.fsum(values)
    return [v / total if total else 1 / len(values) for v in values]


def compute_shapley(vectors: Sequence[Vector]) -> list[float]:
    """Exact Shapley values of the game whose coalitions are worth the similarity of their mean to the mean of all.

    2^n coalitions: for tests and small teams. The values add up to 1.
    """
    n, group = len(vectors), average_vectors(vectors)

    def worth(members: Sequence[int]) -> float:
        return cosine(average_vectors([vectors[i] for i in members]), group) if members else 0.0

    values = []
    for i in range(n):
        others = [j for j in range(n) if j != i]
        value = 0.0
        for size in range(n):
            share = math.factorial(size) * math.factorial(n - size - 1) / math.factorial(n)
            value += share * math.fsum(worth([*s, i]) - worth(s) for s in combinations(others, size))
        values.append(value)
    return values


def build_edges(vectors: Sequence[Vector], values: Sequence[float], texts: Sequence[str]) -> list[list[int]]:
    """For each answer, the indices of the answers that it hears, most similar first: those with a higher contribution
    (ties: the text that sorts first). Such a graph has no cycle."""
    rank = sorted(range(len(values)), key=lambda i: (-round(values[i], 9), texts[i], i))
    place = {i: p for p, i in enumerate(rank)}
    heard = []
    for i in range(len(values)):
        near = [(j, cosine(vectors[i], vectors[j])) for j in range(len(values)) if place[j] < place[i]]
        near.sort(key=lambda x: (-round(x[1], 9), place[x[0]]))
        heard.append([j for j, _ in near[:NEIGHBOURS]])
    return heard
