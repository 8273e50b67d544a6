"""Routing on recorded outcomes: the cost-quality curve of the router and of everything that it has to beat.

    python contrib/bench/optimizers/routing_recorded.py FOLDER [--seeds 5] [--rule value] [NAME ...]

FOLDER has router_gsm8k, router_mmlu and replay_bbh, each with train.jsonl and dev.jsonl; none of it is in this
repository. Both are pooled and divided anew for each seed, by question: 60% to learn from, 15% to choose the threshold,
25% to report. Costs: of the routers' data US dollars by characters / 4 at a price for each model (assumed, see
PRICES; the data name none); of replay_bbh characters of prompt and answer. router_mmlu has no answers, so that a
cascade cannot be had there. An interval is that of the mean over the seeds (t, paired where two are compared); their
test rows overlap, so it says how much the division decides, and not how another set of questions would come out.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench_route import baselines, curve
from workbench_route.learn import Problem, fit_constants, learn_router
from workbench_route.outcomes import Candidate, Row, Sample

#: US dollars for a million tokens, by model.
PRICES = {"mistralai/Mixtral-8x7B-Instruct-v0.1": 0.24, "gpt-4-1106-preview": 24.7}
#: t of 95% by degrees of freedom.
T95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 9: 2.26, 19: 2.09}


def read_rows(folder: Path) -> Iterator[Row]:
    for split in ("train", "dev"):
        with (folder / f"{split}.jsonl").open(encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                text = str(next(iter(row["inputs"].values())))
                yield Row(row["id"], text, dict(_samples(row["labels"], text)))


def _samples(labels: dict[str, Any], text: str) -> Iterator[tuple[str, tuple[Sample]]]:
    for name, run in labels.get("runs", {}).items():
        cost = float(run["prompt_chars"] + run["output_chars"])
        yield name, (Sample(float(run["correct"]), cost, run["output"]),)
    for name, run in labels.get("models", {}).items():
        if name in PRICES:
            usd = PRICES[name] * 1e-6 * (len(text) + run.get("response_chars", 1)) / 4
            yield name, (Sample(float(run["correct"]), usd, run.get("response")),)


def divide(rows: list[Row], seed: int) -> tuple[list[Row], list[Row], list[Row]]:
    """Train, val and test; rows with the same question stay together."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(" ".join(row.text.lower().split()), []).append(row)
    names = sorted(groups)
    random.Random(f"split:{seed}").shuffle(names)
    cuts = [0, round(0.6 * len(names)), round(0.75 * len(names)), len(names)]
    train, val, test = ([r for n in names[a:b] for r in groups[n]] for a, b in itertools.pairwise(cuts))
    return train, val, test


def one(name: str, rows: list[Row], seed: int, rule: str) -> dict[str, Any]:
    train, val, test = divide(rows, seed)
    models = sorted(rows[0].samples, key=lambda m: statistics.fmean(r.samples[m][0].cost for r in rows))
    candidates = [Candidate(m) for m in models]
    problem = Problem(candidates, candidates[-1], rule=rule, unit="chars" if "bbh" in name else "usd")  # type: ignore[arg-type]
    router = learn_router(problem, train, seed)
    table, on_val = curve.make_table(router, test), curve.make_table(router, val)
    results = baselines.results_of(table)
    singles = baselines.single_points(results)
    cheap, strong = singles[baselines.cheapest_of(singles)], singles[candidates[-1].name]
    curves = {
        "router": table.curve(),
        "router, costs realised": table.realised_curve(),
        "k-NN": baselines.neighbour_curve(problem, train, test, results, guarded=False),
        "guarded k-NN": baselines.neighbour_curve(problem, train, test, results),
        "cascade": baselines.cascade_curve(problem, train, test, seed),
        "random mix": baselines.mix_curve(cheap, strong),
        "constant in place of the text": curve.make_table(
            learn_router(problem, train, seed, fit_constants), test
        ).curve(),
        "shuffled labels": baselines.shuffled_table(problem, train, test, seed).curve(),
        "oracle": baselines.oracle_curve(results, router.mean_cost),
    }
    found: dict[str, Any] = {"cheap": (cheap.score, cheap.cost / strong.cost), "strong": (strong.score, 1.0)}
    areas, costs = {}, {}
    for label, points in curves.items():
        if points:
            whole = [*points, strong] if label != "oracle" else points
            areas[label] = curve.area_under([*points, cheap, strong] if label == "cascade" else points, cheap, strong)
            costs[label] = curve.cost_at(whole, 0.99 * strong.score) / strong.cost
    least = 0.99 * baselines.single_points(baselines.results_of(on_val))[candidates[-1].name].score
    point = curve.choose_point(on_val.curve(), least=least)
    chosen = table.point(point.threshold) if point is not None and point.threshold is not None else strong
    found["chosen on val"] = (chosen.score / strong.score, chosen.cost / strong.cost)
    heads = {
        n: "constant" if h.constant else "+".join(type(m).__name__ for m in h.models) for n, h in router.heads.items()
    }
    return {**found, "areas": areas, "costs": costs, "heads": heads, "size": len(router.dump())}


def interval(values: list[float]) -> str:
    mean = statistics.fmean(values)
    if len(values) < 2:
        return f"{mean:.3f}"
    half = T95.get(len(values) - 1, 1.96) * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:.3f} [{mean - half:.3f}, {mean + half:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=["router_gsm8k", "router_mmlu", "replay_bbh"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rule", choices=["value", "match"], default="value")
    options = parser.parse_args()
    for name in options.names:
        rows = list(read_rows(options.folder / name))
        runs = [one(name, rows, seed, options.rule) for seed in range(options.seeds)]
        out = [f"\n{name}: {len(rows)} rows, rule {options.rule}, {options.seeds} seeds"]
        for key in ("cheap", "strong", "chosen on val"):
            parts = [interval([run[key][i] for run in runs]) for i in (0, 1)]
            out.append(f"{key}: score {parts[0]}{' of strong' if 'val' in key else ''}, cost {parts[1]} of strong")
        out.append("| | area | router ahead by | cost at 99% of strong |\n| --- | --- | --- | --- |")
        for label in runs[0]["areas"]:
            ahead = interval([run["areas"]["router"] - run["areas"][label] for run in runs])
            cost = interval([run["costs"][label] for run in runs])
            out.append(f"| {label} | {interval([run['areas'][label] for run in runs])} | {ahead} | {cost} |")
        out.append(f"heads: {[run['heads'] for run in runs]}; characters: {[run['size'] for run in runs]}")
        sys.stdout.write("\n".join(out) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
