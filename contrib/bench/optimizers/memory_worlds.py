"""The optimizer `memory` on its planted problems (tests/helpers/memory_worlds.py), with 95% intervals over seeds.

python contrib/bench/optimizers/memory_worlds.py {retrieval,attacked,null,learned,poison,poison-recall,rare} [--seeds
20] [--calls N]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.helpers import memory_worlds as worlds
from tests.helpers.planted import lower_bound

from workbench_memory import optimizer as memory_optimizer

Rows = dict[str, list[worlds.Row]]


def accuracies(
    name: str,
    optimizer: Any,
    make: Callable[[int], Rows],
    skill: Any,
    nodes: dict[str, Any],
    calls: int,
    seeds: int,
    only: str = "",
    change: Callable[[Rows], None] = lambda rows: None,
) -> list[float]:
    """The winners' accuracies by the formula, on fresh rows (those that contain `only`)."""
    found, used = [], []
    for seed in range(seeds):
        rows, lm = make(seed), worlds.World(skill)
        change(rows)
        with tempfile.TemporaryDirectory() as folder:
            report = worlds.run_world(Path(folder), rows, lm, optimizer, nodes=nodes, calls=calls, seed=seed)
            fresh = [row for row in make(1000 + seed)["test"] if only in row["text"]]
            found.append(worlds.true_accuracy(report, skill, fresh))
        used.append(lm.requests)
    print(
        f"{name}: {statistics.mean(found):.3f}, from {min(found):.2f} to {max(found):.2f}; "
        f"{statistics.mean(used):.0f} of {calls} calls",
        flush=True,
    )
    return found


def compare(first: list[float], second: list[float]) -> None:
    differences = [b - a for a, b in zip(first, second, strict=True)]
    mean = statistics.mean(differences)
    low = lower_bound(differences) if any(d != differences[0] for d in differences) else mean
    print(f"difference: {mean:+.3f} [{low:+.3f}, {2 * mean - low:+.3f}]")


def memory(**settings: Any) -> dict[str, Any]:
    return {"memory": settings}


def rare(seeds: int, calls: int) -> None:
    """Shares of poison in 100 rows of train: accuracy on inputs with the trigger, and on those without it.

    Val carries the trigger as often as train, or never; in train no row with the trigger is right.
    """
    print("| poisoned of train | trigger in val | quarantined | with the trigger | without it |\n" + "| --- " * 5 + "|")
    for poison in (0, 1, 5, 20):
        for seen in (0.0, poison / 100) if poison else (0.0,):
            found: dict[str, list[float]] = {"out": [], "with": [], "without": []}
            for seed in range(seeds):
                sizes = {"sizes": (100, 60, 60), "clean": 0, "seen": seen}
                rows = worlds.poisoned_rows(seed, poison=poison, **sizes)
                with tempfile.TemporaryDirectory() as folder:
                    report = worlds.run_world(
                        Path(folder),
                        rows,
                        worlds.World(worlds.attacked),
                        memory(k=4, kinds=["examples"]),
                        nodes=worlds.RECALL,
                        calls=calls,
                        seed=seed,
                    )
                bad = {row["text"] for row in rows["train"] if row["label"] != worlds.truth(row["text"])}
                aside = {e["inputs"]["text"] for e in report.winner.get("nodes.look.entries", []) if e["quarantined"]}
                found["out"].append(len(bad & aside) / max(1, len(bad)))
                fresh = worlds.poisoned_rows(1000 + seed, poison=poison, **sizes)["test"]
                for name, has in (("with", True), ("without", False)):
                    asked = [row for row in fresh if (worlds.TRIGGER in row["text"]) == has]
                    found[name].append(worlds.true_accuracy(report, worlds.attacked, asked))
            out, with_, without = (statistics.mean(found[name]) for name in ("out", "with", "without"))
            print(f"| {poison}% | {round(100 * seen)}% | {out:.0%} | {with_:.3f} | {without:.3f} |", flush=True)


def clean(rows: Rows) -> None:
    """Takes the poisoned rows out of train."""
    rows["train"] = [row for row in rows["train"] if row["label"] == worlds.truth(row["text"])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--calls", type=int, default=0)
    args = parser.parse_args()
    versus = {
        "retrieval": (worlds.plain_rows, worlds.on_topic, 160),
        "attacked": (worlds.poisoned_rows, worlds.attacked, 700),
        "null": (worlds.plain_rows, lambda request: 0.5, 300),
    }
    if args.world == "rare":
        rare(args.seeds, args.calls or 1200)
    elif args.world in versus:
        make, skill, calls = versus[args.world]
        both = [
            accuracies(name, name, make, skill, worlds.PREDICT, args.calls or calls, args.seeds)
            for name in ("random", "memory")
        ]
        compare(*both)
    elif args.world == "learned":
        both = [
            accuracies(
                " + ".join(policies),
                memory(k=4, policies=policies, kinds=["examples"]),
                worlds.misleading_rows,
                worlds.one_on_topic,
                worlds.RECALL,
                args.calls or 600,
                args.seeds,
            )
            for policies in (["lexical"], ["lexical", "learned"])
        ]
        compare(*both)
    else:
        nodes = worlds.RECALL if args.world == "poison-recall" else worlds.PREDICT
        for name, p, change in (
            ("never poisoned", 0.05, clean),
            ("no quarantine", 0.0, None),
            ("quarantine", 0.05, None),
        ):
            memory_optimizer.QUARANTINE = p  # no setting: 0 is never
            accuracies(
                f"triggered inputs, {name}",
                memory(k=4, kinds=["examples"]),
                worlds.poisoned_rows,
                worlds.attacked,
                nodes,
                args.calls or 1200,
                args.seeds,
                only=worlds.TRIGGER,
                change=change or (lambda rows: None),
            )


if __name__ == "__main__":
    main()
