"""A planted world of navigation: rows of three kinds, each solved by another order of two blocks and then `stop`.

A wrong block spoils the row. Two ratings show the kind, with noise; `progress` says how much of the order is done. No
model is involved: code in the workflow does what blocks do. What any fixed order is worth is therefore known.
"""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

BLOCKS = ("reason", "decompose", "debate", "refine", "stop")
Orders = dict[str, tuple[str, ...]]
ORDERS: Orders = {"long": ("decompose", "reason"), "vague": ("debate", "reason"), "slippery": ("reason", "refine")}
#: The ratings of a kind: how hard, how clear.
RATINGS = {"long": (3.0, 3.0), "vague": (1.0, 1.0), "slippery": (1.0, 3.0)}
ROUNDS = 4
SIGNATURE = f"hard: float, clear: float, progress: float -> block: Literal{list(BLOCKS)}"


def make_rows(seed: int, count: int, orders: Orders = ORDERS) -> list[dict[str, Any]]:
    rng, kinds = random.Random(f"navigate:{seed}"), list(orders)
    found: list[dict[str, Any]] = []
    for number in range(count):
        kind = kinds[number % len(kinds)]
        hard, clear = (round(value + rng.uniform(-0.6, 0.6), 2) for value in RATINGS[kind])
        name = f"{kind} {seed} {number}"
        found.append({"name": name, "order": list(orders[kind]), "hard": hard, "clear": clear, "solved": 1})
    return found


def outcome(order: list[str], blocks: list[str]) -> float:
    """1 for the blocks of the order and then `stop`, within the rounds; else 0."""
    return float([*order, "stop"] == blocks[: len(order) + 1] and len(order) < ROUNDS)


def best_fixed(rows: list[dict[str, Any]]) -> float:
    """The mean score of the best of all fixed sequences of blocks."""
    sequences = itertools.product(BLOCKS, repeat=ROUNDS)
    return max(sum(outcome(row["order"], [*blocks]) for row in rows) / len(rows) for blocks in sequences)


APPLY = """
def apply(order, done, block):
    done = [*done, block]
    right = done == (order + ["stop"])[: len(done)]
    progress = min(len(done), len(order)) / len(order) if right else 0.0
    return {"done": done, "progress": progress}
"""
CHECK = 'def check(order, done):\n    return 1 if done == order + ["stop"] else 0'


def nodes(choose: dict[str, Any]) -> dict[str, Any]:
    return {
        "think": {
            "kind": "loop",
            "rounds": ROUNDS,
            "carry": {"done": [], "progress": 0.0},
            "until": "block == 'stop'",
            "nodes": {
                "choose": choose,
                "act": {
                    "code": "order: list, done: list, block -> done: list, progress: float",
                    "source": APPLY,
                },
            },
        },
        "check": {"code": "order: list, done: list -> solved: int", "source": CHECK},
    }


def write(
    folder: Path, optimizer: Any, seed: int, orders: Orders = ORDERS, counts: tuple[int, int, int] = (60, 30, 60)
) -> Path:
    """A workflow file of the world, and its rows. train, val and test come from one distribution."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (split, count) in enumerate(zip(("train", "val", "test"), counts, strict=True)):
        lines = [json.dumps(row) for row in make_rows(10 * seed + number, count, orders)]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    spec = {
        "name": "navigated",
        "seed": seed,
        "lm": {"model": "openai/none", "api_base": "http://127.0.0.1:9/v1"},
        "data": {split: f"{split}.jsonl" for split in ("train", "val", "test")},
        "metric": "exact_match(solved)",
        "nodes": nodes({"navigate": SIGNATURE}),
        "optimize": [optimizer],
        "budget": {"calls": 10},
    }
    path = folder / "workflow.yaml"
    path.write_text(json.dumps(spec), encoding="utf-8")
    return path
