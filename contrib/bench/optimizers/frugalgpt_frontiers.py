"""The recorded frontiers of FrugalGPT's cascades by the measures of our own curves.

    python contrib/bench/optimizers/frugalgpt_frontiers.py FOLDER

FOLDER has table.jsonl: accuracy and mean cost of each model alone, and of the cascade (arXiv 2305.05176) at twenty
budgets, on five data sets; none of it is in this repository. Nothing says which question which model answered right, so
a cascade of ours cannot be run on it, and these figures are a yardstick beside ours, not a check of them. Two further
tables of the folder are left out: most of their models have a placeholder for an accuracy, and totals for costs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from workbench_route.baselines import best_of, cheapest_of, mix_curve
from workbench_route.curve import Point, area_under, cost_at

CASCADE = "FrugalGPT"


@dataclass(frozen=True)
class Frontier:
    """One data set. singles: each model alone, by name. cascade: by budget."""

    name: str
    singles: Mapping[str, Point]
    cascade: list[Point]
    over_budget: int

    def figures(self) -> dict[str, float]:
        """The best single model; the cascade's best score, and its least cost at the score of that model, as a share of
        its cost; the areas of both between the cheapest and the best single model."""
        cheap, best = self.singles[cheapest_of(self.singles)], self.singles[best_of(self.singles)]
        return {
            "best single": best.score,
            "cascade": max(point.score for point in self.cascade),
            "cost at best single": cost_at(self.cascade, best.score) / best.cost,
            "area": area_under([*self.cascade, cheap], cheap, best),
            "area of the mix": area_under(mix_curve(cheap, best), cheap, best),
        }


def read_frontiers(folder: Path) -> list[Frontier]:
    """The frontiers of the five tables that have an accuracy and a mean cost of each model."""
    tables: dict[str, list[Mapping[str, str]]] = {}
    for line in (folder / "table.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if (name := row["inputs"]["table"]).startswith("summary_"):
            tables.setdefault(name.split("_")[1], []).append(row["labels"])
    return [_frontier(name, rows) for name, rows in tables.items()]


def _frontier(name: str, rows: Iterable[Mapping[str, str]]) -> Frontier:
    singles, cascade, over = dict[str, Point](), list[Point](), 0
    for row in rows:
        point = Point(float(row["Test_acc"]), float(row["Test_cost"]))
        if row["Method"] == CASCADE:
            cascade.append(point)
            over += point.cost > float(row["Budget"])
        else:
            singles[row["Method"]] = point
    return Frontier(name, singles, cascade, over)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    out = ["| data set | best single | cascade | cost at best single | area | area of the mix | over budget |"]
    out.append("| --- | --- | --- | --- | --- | --- | --- |")
    for frontier in read_frontiers(parser.parse_args().folder):
        cells = " | ".join(f"{value:.3f}" for value in frontier.figures().values())
        out.append(f"| {frontier.name} | {cells} | {frontier.over_budget} of {len(frontier.cascade)} |")
    sys.stdout.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
