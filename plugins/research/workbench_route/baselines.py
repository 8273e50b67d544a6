"""Baselines of a router: single models, a random mix of them, a cascade, nearest neighbours, and itself with shuffled
labels. A dial between a cheap and an expensive model alone saves cost, so a saving by itself shows nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from workbench_kit.searching import TfIdf
from workbench_route.curve import POINTS, Point, Table, make_table, mean_point
from workbench_route.features import split_words
from workbench_route.learn import Problem, learn_router
from workbench_route.outcomes import Candidate, Row, Sample, realised, shuffle_outcomes
from workbench_route.reward import Reward, fit_reward, pick_by

#: Neighbours that are asked, and the evidence that they must give, in standard errors.
NEIGHBOURS, EVIDENCE = 40, 0.5
Results = Sequence[Mapping[str, Sample]]  # by row, what came out of each candidate


def results_of(table: Table) -> Results:
    return [dict(zip(table.router.candidates, row, strict=True)) for row in table.found]


def single_points(results: Results) -> dict[str, Point]:
    """Each candidate for every row."""
    return {name: mean_point([row[name] for row in results]) for name in results[0]}


def cheapest_of(singles: Mapping[str, Point]) -> str:
    return min(singles, key=lambda name: (singles[name].cost, -singles[name].score))


def best_of(singles: Mapping[str, Point]) -> str:
    """The best single candidate; of equals the cheaper one."""
    return max(singles, key=lambda name: (singles[name].score, -singles[name].cost))


def mix_curve(cheap: Point, strong: Point) -> list[Point]:
    """Each row to the strong one with some probability, whatever it says: the line between the two."""
    return [
        Point(cheap.score + s * (strong.score - cheap.score), cheap.cost + s * (strong.cost - cheap.cost))
        for s in (i / (POINTS - 1) for i in range(POINTS))
    ]


def oracle_curve(results: Results, mean_cost: float) -> list[Point]:
    """The best choice for each row at each price of quality, by somebody who knows the outcomes."""
    prices = sorted({0.0, *(2.0 ** (i / 4) / 64 for i in range(48))})
    chosen = [
        [min(row.values(), key=lambda s: (p * s.cost / mean_cost - s.score, s.cost)) for row in results] for p in prices
    ]
    return [mean_point(samples) for samples in chosen]


def shuffled_table(problem: Problem, train: Sequence[Row], test: Sequence[Row], seed: int) -> Table:
    """The same router, learned from the outcomes of other rows."""
    return make_table(learn_router(problem, shuffle_outcomes(train, seed), seed), test)


def neighbour_curve(
    problem: Problem, train: Sequence[Row], test: Sequence[Row], results: Results, guarded: bool = True
) -> list[Point]:
    """The nearest rows of train (cosine of TF-IDF) say how good each candidate is, less its cost at each price.

    guarded: the reference is left only if the neighbours' paired differences to it are at least EVIDENCE standard
    errors above 0.
    """
    pick = pick_by({})
    index = TfIdf([Counter(split_words(row.text)) for row in train])
    known = [{c.name: realised(row, c, pick) for c in problem.candidates} for row in train]
    near: list[list[int]] = []
    for row in test:
        scores = index.scores(Counter(split_words(row.text)))
        near.append(sorted(scores, key=lambda i: (-scores[i], i))[:NEIGHBOURS])
    reference = problem.reference.name
    mean = math.fsum(row[reference].cost for row in known) / len(known) or 1e-12
    prices = sorted({0.0, *(2.0 ** (i / 4) / 128 for i in range(40))})
    points = []
    for price in prices:
        chosen = []
        for row, neighbours in zip(results, near, strict=True):
            values = {
                c.name: [known[i][c.name].score - price * known[i][c.name].cost / mean for i in neighbours]
                for c in problem.candidates
            }
            chosen.append(row[_by_neighbours(values, reference, guarded)])
        points.append(mean_point(chosen))
    return points


def _by_neighbours(values: Mapping[str, Sequence[float]], reference: str, guarded: bool) -> str:
    best, least = reference, 0.0
    base = values[reference]
    for name, own in values.items():
        if name == reference or not own:
            continue
        gains = [a - b for a, b in zip(own, base, strict=True)]
        mean = math.fsum(gains) / len(gains)
        error = math.sqrt(math.fsum((g - mean) ** 2 for g in gains) / max(1, len(gains) - 1) / len(gains))
        if mean > least and (not guarded or mean >= EVIDENCE * error):
            best, least = name, mean
    return best


def cascade_curve(problem: Problem, train: Sequence[Row], test: Sequence[Row], seed: int) -> list[Point]:
    """Cheapest first; the next one is asked where the confidence in the answer is below a level (FrugalGPT, arXiv
    2305.05176). All that were asked are paid. [] if the answers' texts are not known."""
    singles = [c for c in problem.candidates if c.samples == 1]
    means = {c: math.fsum(row.samples[c.model][0].cost for row in train) / len(train) for c in singles}
    order = sorted(singles, key=lambda c: means[c])
    rewards: dict[Candidate, Reward] = {}
    for candidate in order[:-1]:
        reward, _ = fit_reward(train, candidate.model, seed)
        if reward is None:
            return []
        rewards[candidate] = reward
    trust = [[rewards[c].confidence(row.text, [row.samples[c.model][0].answer], 0) for c in order[:-1]] for row in test]
    met = sorted({t for row in trust for t in row})
    levels = [0.0, *met[:: max(1, len(met) // POINTS)], 1.1]
    return [
        mean_point([_cascade(row, order, t, level) for row, t in zip(test, trust, strict=True)]) for level in levels
    ]


def _cascade(row: Row, order: Sequence[Candidate], trust: Sequence[float], level: float) -> Sample:
    cost = 0.0
    for position, candidate in enumerate(order):
        sample = row.samples[candidate.model][0]
        cost += sample.cost
        if position == len(trust) or trust[position] >= level:
            return Sample(sample.score, cost, sample.answer)
    raise AssertionError("the last one is always taken")
