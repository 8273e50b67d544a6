"""Rows of the tasks, from a folder with the benchmarks' rows, one folder for each.

    python contrib/bench/peers/rows.py DATA OUT

DATA/NAME/{train,dev}.jsonl have lines {"inputs": {...}, "labels": {...}, "meta": {...}}. Each OUT/TASK gets
train.jsonl, val.jsonl and test.jsonl with the fields `text` and `label`, and task.json with the labels and the start.
A label is one of a closed set, a number (`gsm8k`), or a program (`mbpp`): right if it passes the `tests` of its row.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
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


def score(said: Any, row: Mapping[str, str]) -> float:
    """1 for a right answer, else 0: the label itself, its number, or a program that passes the row's tests."""
    if "tests" in row:
        return float(_passes(str(said), row["tests"]))
    try:
        return float(float(said) == float(row["label"]))
    except (TypeError, ValueError):
        return float(str(said).strip() == row["label"])


def _passes(program: str, tests: str) -> bool:
    """Run a program of a small model and its tests in a process of its own, five seconds at most. No sandbox."""
    fenced = re.search(r"```(?:python)?\n(.*?)```", program, re.DOTALL)
    command = [sys.executable, "-I", "-c", f"{fenced[1] if fenced else program}\n{tests}"]
    try:
        return subprocess.run(command, capture_output=True, timeout=5, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def write_prompt(task: Mapping[str, Any]) -> str:
    """Write the start of peers that have a system prompt and nothing else. Raises SystemExit for open answers."""
    if not task["labels"]:
        raise SystemExit("this arm runs on tasks with a closed set of labels only")
    return f"{task['instructions']} Answer with one of these and nothing else: {', '.join(task['labels'])}"


def banking(row: Row) -> tuple[str, ...] | None:
    label = row["labels"]["category"]
    return (row["inputs"]["text"], label) if label in CARDS else None


def toole(row: Row) -> tuple[str, ...] | None:
    label = row["labels"]["tool"]
    return (row["inputs"]["query"], label) if label in TOOLS else None


def booleans(row: Row) -> tuple[str, ...] | None:
    return (row["inputs"]["input"], row["labels"]["target"]) if row["meta"]["task"] == "boolean_expressions" else None


def gsm8k(row: Row) -> tuple[str, ...] | None:
    return row["inputs"]["question"], row["labels"]["answer"]


def mbpp(row: Row) -> tuple[str, ...] | None:
    tests, text = row["labels"]["tests"], row["inputs"]["prompt"]
    return (
        f"{text} It must pass this test: {tests[0]}",
        row["labels"]["canonical_solution"].replace("\r", ""),
        "\n".join(tests),
    )


#: Tasks with open answers: the type of the output, and whether the start reasons before it.
OPEN = {"gsm8k": ("float", True), "mbpp": ("str", False)}
#: By task: the folder, what is taken of it, the start, and the rows of train and val.
TASKS: dict[str, tuple[str, Callable[[Row], tuple[str, ...] | None], str, tuple[int, int]]] = {
    "banking": ("banking77", banking, "Classify the customer's message.", (64, 48)),
    "toole": ("toole", toole, "Choose the tool for the request.", (64, 48)),
    "booleans": ("bbh", booleans, "Answer the question.", (24, 32)),
    "gsm8k": ("gsm8k", gsm8k, "Solve the problem.", (64, 48)),
    "mbpp": ("mbpp", mbpp, "Write the Python function.", (64, 48)),
}


def split(rows: Sequence[dict[str, str]], train: int, val: int) -> list[list[dict[str, str]]]:
    """(train, val, test), with as many rows of each label in train, and in val, if labels are a closed set."""
    by_label, closed = defaultdict[str, list[dict[str, str]]](list), len({row["label"] for row in rows}) <= 20
    for row in rows:
        by_label[row["label"] if closed else ""].append(row)
    parts: list[list[dict[str, str]]] = [[], [], []]
    for own in by_label.values():
        ends = [0, train // len(by_label), (train + val) // len(by_label), len(own)]
        for part, first, last in zip(parts, ends, ends[1:], strict=False):
            part += own[first:last]
    return parts


def main(data: Path, out: Path) -> None:
    for task, (folder, pick, start, sizes) in TASKS.items():
        lines = [json.loads(line) for name in ("train", "dev") for line in (data / folder / f"{name}.jsonl").open()]
        picked = [found for line in lines if (found := pick(line)) is not None]
        rows = [dict(zip(("text", "label", "tests"), found, strict=False)) for found in picked]
        rows = list({row["text"]: row for row in rows}.values())
        random.Random(task).shuffle(rows)
        parts = split(rows, *sizes)
        parts[2] = parts[2][:100]
        (out / task).mkdir(parents=True, exist_ok=True)
        for name, part in zip(("train", "val", "test"), parts, strict=True):
            random.Random(name).shuffle(part)
            (out / task / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
        labels = [] if task in OPEN else sorted({row["label"] for row in rows})
        kind, reasoning = OPEN.get(task, (f"Literal{labels}", False))
        made = {"instructions": start, "labels": labels, "type": kind, "reasoning": reasoning}
        (out / task / "task.json").write_text(json.dumps(made))
        print(task, *map(len, parts), labels)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
