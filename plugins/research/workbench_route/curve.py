"""Cost-quality curves: what a router gives at each threshold, and which threshold is chosen."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from workbench_route.fitting import FOLDS
from workbench_route.learn import Problem, learn_router
from workbench_route.outcomes import Candidate, Row, Sample, realised
from workbench_route.reward import Reward, pick_by
from workbench_route.router import Router

#: Points of a curve.
POINTS = 101


@dataclass(frozen=True, slots=True)
class Point:
    """Mean score and mean cost of some rows. threshold: None where there is none."""

    score: float
    cost: float
    threshold: float | None = None


@dataclass(frozen=True)
class Table:
    """A router's inputs for some rows, and the outcome of each candidate. One list a row, one value a candidate."""

    router: Router
    scores: Sequence[Sequence[float]]
    costs: Sequence[Sequence[float]]
    found: Sequence[Sequence[Sample]]

    def route(self, threshold: float) -> list[int]:
        """The position of the candidate that each row goes to."""
        pairs = zip(self.scores, self.costs, strict=True)
        return [self.router.choose(scores, costs, threshold) for scores, costs in pairs]

    def point(self, threshold: float) -> Point:
        return mean_point([row[i] for row, i in zip(self.found, self.route(threshold), strict=True)], threshold)

    def curve(self) -> list[Point]:
        """A point for each of up to POINTS thresholds, from the reference to the cheapest.

        Thresholds are quantiles of those at which a row changes its candidate: then the points are evenly spread.
        """
        return [self.point(threshold) for threshold in thresholds_of(self)]

    def realised_curve(self) -> list[Point]:
        """The same with the candidates ordered by what they turn out to cost: what BEST-Route plots. It cannot be had,
        since nobody knows an answer's length before it is given."""
        actual = [[sample.cost for sample in row] for row in self.found]
        return Table(self.router, self.scores, actual, self.found).curve()


def make_table(router: Router, rows: Sequence[Row]) -> Table:
    """The router's view of some rows that have the outcomes of all its models."""
    candidates = [Candidate.named(name) for name in router.candidates]
    pick = pick_by({model: Reward(predictor) for model, predictor in router.rewards.items()})
    return Table(
        router,
        [router.scores(row.text, row.vector) for row in rows],
        [router.estimated_costs(row.text) for row in rows],
        [[realised(row, candidate, pick) for candidate in candidates] for row in rows],
    )


def cross_table(problem: Problem, router: Router, rows: Sequence[Row], seed: int) -> Table:
    """The router's view of its own rows, as it would be had it not seen them: the predictions for each fold are those
    of a router that was learned from the others."""
    order = list(range(len(rows)))
    random.Random(f"cross:{seed}").shuffle(order)
    parts: list[Table | None] = [None] * len(rows)
    for fold in range(min(FOLDS, len(rows))):
        own = [i for place, i in enumerate(order) if place % FOLDS == fold]
        others = [rows[i] for place, i in enumerate(order) if place % FOLDS != fold]
        blind = learn_router(problem, others, seed)
        for i in own:
            parts[i] = make_table(blind, [rows[i]])
    seen = [part for part in parts if part is not None]
    costs = [router.estimated_costs(row.text) for row in rows]
    return Table(router, [part.scores[0] for part in seen], costs, [part.found[0] for part in seen])


def thresholds_of(table: Table) -> list[float]:
    """The thresholds of a curve, from the one that takes the reference (`match`) or the best (`value`) everywhere."""
    router = table.router
    if router.rule == "match":
        met = {s for scores in table.scores for i, s in enumerate(scores) if i != router.position}
        return [max(met, default=1.0) + 1.0, *_spread(sorted(met, reverse=True))]
    changes = {0.0}
    for scores, costs in zip(table.scores, table.costs, strict=True):
        for i, cheap in enumerate(costs):
            for j, costly in enumerate(costs):
                if costly > cheap and scores[j] > scores[i]:
                    changes.add((scores[j] - scores[i]) * router.mean_cost / (costly - cheap))
    last = max(changes)
    return [*_spread(sorted(changes)), last * (1 + 1e-9) + 1e-12]


def _spread(values: Sequence[float]) -> list[float]:
    if len(values) <= POINTS:
        return list(values)
    return [values[round(i * (len(values) - 1) / (POINTS - 1))] for i in range(POINTS)]


def mean_point(samples: Sequence[Sample], threshold: float | None = None) -> Point:
    n = len(samples)
    return Point(math.fsum(s.score for s in samples) / n, math.fsum(s.cost for s in samples) / n, threshold)


def area_under(points: Sequence[Point], cheap: Point, strong: Point) -> float:
    """The mean score over all costs between two single models, by the line between neighbouring points.

    Beyond its ends a curve goes on level: nobody has to spend more.
    """
    import numpy

    by_cost: dict[float, float] = {}
    for point in points:
        by_cost[point.cost] = max(point.score, by_cost.get(point.cost, 0.0))
    costs, low, high = sorted(by_cost), cheap.cost, strong.cost
    if high <= low:
        return max(by_cost.values())
    edges = [low, *(c for c in costs if low < c < high), high]
    heights = numpy.interp(edges, costs, [by_cost[c] for c in costs])
    return float(numpy.trapezoid(heights, edges)) / (high - low)


def cost_at(points: Sequence[Point], score: float) -> float:
    """The least cost of a point with at least this score; infinite if there is none."""
    return min((point.cost for point in points if point.score >= score - 1e-12), default=math.inf)


def choose_point(
    points: Sequence[Point], *, least: float, ceiling: float = math.inf, save: bool = True
) -> Point | None:
    """The point that is chosen on val.

    Args:
        points: of the curve.
        least: the score that it must have.
        ceiling: the mean cost that it may have.
        save: the cheapest of those; otherwise the one with the best score. Ties go to the better score, or to the
            cheaper.

    Returns:
        None if there is no such point.
    """
    fit = [p for p in points if p.cost <= ceiling + 1e-12 and p.score >= least - 1e-12]
    if not fit:
        return None
    return min(fit, key=lambda p: (p.cost, -p.score) if save else (-p.score, p.cost))
