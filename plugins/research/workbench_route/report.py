"""The router beside everything that it has to beat, on the rows of val."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from workbench_route import baselines
from workbench_route.curve import Point, Table, area_under, cost_at
from workbench_route.learn import Problem
from workbench_route.outcomes import Row

#: Share of the reference's score at which costs are compared.
SHARE = 0.99


def single_points(table: Table) -> dict[str, Point]:
    """Each candidate for all rows."""
    return baselines.single_points(baselines.results_of(table))


def make_curves(
    problem: Problem, table: Table, train: Sequence[Row], rows: Sequence[Row], seed: int
) -> dict[str, list[Point]]:
    """The curve of the router and of each baseline. One that cannot be had is left out: a cascade without answers."""
    results = baselines.results_of(table)
    singles = baselines.single_points(results)
    cheap, strong = singles[baselines.cheapest_of(singles)], singles[table.router.reference]
    curves = {
        "router": table.curve(),
        "router, realised costs": table.realised_curve(),
        "random mix": baselines.mix_curve(cheap, strong),
        "cascade": baselines.cascade_curve(problem, train, rows, seed),
        "k-NN": baselines.neighbour_curve(problem, train, rows, results, guarded=False),
        "guarded k-NN": baselines.neighbour_curve(problem, train, rows, results),
        "shuffled labels": baselines.shuffled_table(problem, train, rows, seed).curve(),
        "oracle": baselines.oracle_curve(results, table.router.mean_cost),
    }
    return {name: [*points, strong] for name, points in curves.items() if points}


def compare(
    problem: Problem, table: Table, train: Sequence[Row], rows: Sequence[Row], point: Point | None, seed: int
) -> dict[str, Any]:
    """Figures of the router and its baselines, for the log of a run.

    area: the mean score over all costs between the cheapest candidate and the reference. cost_at_99: the least cost
    with 99% of the reference's score, as a share of the reference's. chosen: the point at the threshold.
    """
    singles = single_points(table)
    cheapest, best = baselines.cheapest_of(singles), baselines.best_of(singles)
    strong = singles[table.router.reference]
    curves = make_curves(problem, table, train, rows, seed)
    scale = strong.cost or 1.0
    chosen = None
    if point is not None and point.threshold is not None:
        routes = Counter(table.router.candidates[i] for i in table.route(point.threshold))
        chosen = {**_as_dict(point), "threshold": point.threshold, "routes": dict(sorted(routes.items()))}
    return {
        "rows": {"train": len(train), "val": len(rows)},
        "unit": problem.unit,
        "singles": {name: _as_dict(single) for name, single in singles.items()},
        "cheapest": cheapest,
        "best_single": best,
        "area": {name: round(area_under(points, singles[cheapest], strong), 4) for name, points in curves.items()},
        "cost_at_99": {name: _share(points, strong.score, scale) for name, points in curves.items()},
        "constant": sorted(name for name, head in table.router.heads.items() if head.constant),
        "chosen": chosen,
    }


def _share(points: Sequence[Point], score: float, scale: float) -> float | None:
    found = cost_at(points, SHARE * score) / scale
    return round(found, 4) if found < float("inf") else None


def _as_dict(point: Point) -> dict[str, float]:
    return {"score": round(point.score, 4), "cost": float(f"{point.cost:.6g}")}


def summary(site: str, figures: Mapping[str, Any]) -> str:
    """The figures in a few words."""
    area, singles, chosen = figures["area"], figures["singles"], figures["chosen"]
    best = figures["best_single"]
    single = f"best single, {best}: {singles[best]['score']:.3f} at {singles[best]['cost']:.4g} {figures['unit']}"
    compared = ", ".join(f"{name} {area[name]:.3f}" for name in area if name != "router")
    blind = figures["constant"]
    unseen = f"; the text says nothing about {', '.join(blind)}" if blind else ""
    if chosen is None:
        return f"{site}: no threshold meets the aim on val ({single}); area {area['router']:.3f}; {compared}{unseen}"
    routes = ", ".join(f"{name} {count}" for name, count in chosen["routes"].items())
    return (
        f"{site}: on val {chosen['score']:.3f} at {chosen['cost']:.4g} {figures['unit']} ({single}); "
        f"rows: {routes}; area {area['router']:.3f}; {compared}{unseen}"
    )
