"""Rows of the tasks, from a folder with the benchmarks' rows, one folder for each.

    python contrib/bench/peers/rows.py DATA OUT

DATA/NAME/{train,dev}.jsonl have lines {"inputs": {...}, "labels": {...}, "meta": {...}}. Each OUT/TASK gets
train.jsonl, val.jsonl and test.jsonl with the fields `text` and `label`, and task.json with the labels and the start.
"""

from __future__ import annotations

import json
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

CARDS = (
    *("activate_my_card", "card_arrival", "card_delivery_estimate", "card_linking", "card_not_working"),
    *("card_payment_not_recognised", "declined_card_payment", "pending_card_payment"),
)
TOOLS = (
    "FinanceTool",
    "ProductSearch",
    "JobTool",
    "TripTool",
    "PDF&URLTool",
    "ResearchFinder",
    "RepoTool",
    "MusicTool",
)
Row = Mapping[str, Any]


def read_task(folder: Path) -> tuple[dict[str, Any], list[Any], list[Any], list[Any]]:
    """(the task, rows of train, of val, of test), as `main` wrote them."""
    parts = [[json.loads(line) for line in (folder / f"{name}.jsonl").open()] for name in ("train", "val", "test")]
    return json.loads((folder / "task.json").read_text()), parts[0], parts[1], parts[2]


def write_prompt(task: Mapping[str, Any]) -> str:
    """Write the start of peers that have a system prompt and nothing else."""
    return f"{task['instructions']} Answer with one of these and nothing else: {', '.join(task['labels'])}"


def banking(row: Row) -> tuple[str, str] | None:
    label = row["labels"]["category"]
    return (row["inputs"]["text"], label) if label in CARDS else None


def toole(row: Row) -> tuple[str, str] | None:
    label = row["labels"]["tool"]
    return (row["inputs"]["query"], label) if label in TOOLS else None


def booleans(row: Row) -> tuple[str, str] | None:
    return (row["inputs"]["input"], row["labels"]["target"]) if row["meta"]["task"] == "boolean_expressions" else None


#: By task: the folder, what is taken of it, the start, and the rows of train and val.
TASKS: dict[str, tuple[str, Callable[[Row], tuple[str, str] | None], str, tuple[int, int]]] = {
    "banking": ("banking77", banking, "Classify the customer's message.", (64, 48)),
    "toole": ("toole", toole, "Choose the tool for the request.", (64, 48)),
    "booleans": ("bbh", booleans, "Answer the question.", (24, 32)),
}


def split(rows: Sequence[dict[str, str]], train: int, val: int) -> list[list[dict[str, str]]]:
    """(train, val, test), with as many rows of each label in train, and in val."""
    by_label = defaultdict[str, list[dict[str, str]]](list)
    for row in rows:
        by_label[row["label"]].append(row)
    parts: list[list[dict[str, str]]] = [[], [], []]
    for own in by_label.values():
        ends = [0, train // len(by_label), (train + val) // len(by_label), len(own)]
        for part, first, last in zip(parts, ends, ends[1:], strict=False):
            part += own[first:last]
    return parts


def main(data: Path, out: Path) -> None:
    for task, (folder, pick, start, sizes) in TASKS.items():
        lines = [json.loads(line) for name in ("train", "dev") for line in (data / folder / f"{name}.jsonl").open()]
        rows = [{"text": found[0], "label": found[1]} for line in lines if (found := pick(line)) is not None]
        rows = list({row["text"]: row for row in rows}.values())
        random.Random(task).shuffle(rows)
        parts = split(rows, *sizes)
        parts[2] = parts[2][:100]
        (out / task).mkdir(parents=True, exist_ok=True)
        for name, part in zip(("train", "val", "test"), parts, strict=True):
            random.Random(name).shuffle(part)
            (out / task / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
        labels = sorted({row["label"] for row in rows})
        (out / task / "task.json").write_text(json.dumps({"instructions": start, "labels": labels}))
        print(task, *map(len, parts), labels)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
