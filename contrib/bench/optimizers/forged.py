"""Programs that a real model forges, beside the same model's own answers, on the same sealed rows.

    python contrib/bench/peers/llama_server.py MODEL.gguf 8190
    python contrib/bench/optimizers/forged.py --server http://127.0.0.1:8190 --data DATA --out forged.jsonl

DATA/bbh/{train,dev}.jsonl have lines {"inputs": {"input"}, "labels": {"target"}, "meta": {"task"}}. By task: 20 rows of
train, 20 of val, 60 sealed ones. `answers`: the model reads a row and answers. `forged`: the model is the proposer
of `forge` for a `code` node that begins as a program that returns nothing; no model is called for a row afterwards.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path
from typing import Any

from workbench.proof import paired_proof

sys.path.insert(0, str(Path(__file__).parents[1]))

from commands import predict, workbench

#: By task of BBH: the type of the answer, and what is asked for.
TASKS = {
    "word_sorting": ("str", "Sort the words alphabetically, separated by spaces."),
    "multistep_arithmetic_two": ("int", "Compute the value."),
    "boolean_expressions": ("Literal['True', 'False']", "Evaluate the expression."),
    "object_counting": ("int", "Count the objects that are asked for."),
    "navigate": ("Literal['Yes', 'No']", "Do you return to the starting point?"),
}
EMPTY = "def solve(text):\n    return None\n"


def read_rows(data: Path, task: str, seed: int) -> dict[str, list[dict[str, str]]]:
    lines = [json.loads(line) for name in ("train", "dev") for line in (data / "bbh" / f"{name}.jsonl").open()]
    rows = [(one["inputs"]["input"], one["labels"]["target"]) for one in lines if one["meta"]["task"] == task]
    rows = [{"text": text, "label": label} for text, label in dict(rows).items()]
    random.Random(f"{task}:{seed}").shuffle(rows)
    return {"train": rows[:20], "val": rows[20:40], "test": rows[40:100]}


def run(task: str, seed: int, calls: int, server: str, data: Path, folder: Path) -> dict[str, Any]:
    """Return the scores of both arms on the sealed rows, and the difference. An arm that ended is not run again."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = read_rows(data, task, seed)
    for name, part in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    kind, asked = TASKS[task]
    lm = {"model": "local/model", "api_base": f"{server}/v1", "timeout": 900, "concurrency": 4, "max_tokens": 100}
    spec = {
        "name": task,
        "description": asked,
        "lm": lm,
        "data": {name: f"{name}.jsonl" for name in rows},
        "metric": "exact_match(label)",
        "seed": seed,
    }
    answers = {"nodes": {"solve": {"predict": f"text -> label: {kind}", "instructions": asked}}}
    program = {
        "nodes": {"solve": {"code": f"text -> label: {kind}", "function": "solve", "source": EMPTY}},
        "roles": {"proposer": {**lm, "max_tokens": 1000}},
        "optimize": [{"forge": {"samples": 16}}],
        "budget": {"calls": calls},
    }
    found = dict[str, Any]()
    for arm, rest in (("answers", answers), ("forged", program)):
        file, best, ended = (folder / f"{arm}{end}" for end in (".yaml", "-best.yaml", "-scores.json"))
        if ended.exists():
            found |= json.loads(ended.read_text())
            continue
        file.write_text(json.dumps({**spec, **rest}))
        own = dict[str, Any]()
        if arm == "forged":
            own["said"] = workbench("optimize", file, "--out", best, db=folder / "runs.db")
        given = predict(best if best.exists() else file, folder / "test.jsonl", db=folder / "runs.db")
        own[arm] = [float(str(a["label"]) == b["label"]) for a, b in zip(given, rows["test"], strict=True)]
        ended.write_text(json.dumps(own))
        found |= own
    proof = paired_proof(found["answers"], found["forged"])
    return {"task": task, "seed": seed, **found, "diff": proof.diff, "ci95": proof.ci95}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="http://127.0.0.1:8190")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("forged.jsonl"))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=[*TASKS])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--calls", type=int, default=60, help="of the search; a program is scored without any")
    args = parser.parse_args()
    done = [json.loads(line) for line in args.out.open()] if args.out.exists() else []
    known = {(one["task"], one["seed"]) for one in done}
    for seed in args.seeds:
        for task in args.tasks:
            if (task, seed) not in known:
                found = run(task, seed, args.calls, args.server, args.data, args.out.with_suffix("") / f"{task}-{seed}")
                with args.out.open("a") as file:
                    file.write(json.dumps(found) + "\n")
                done.append(found)
                low, high = found["ci95"]
                answers, forged = (sum(found[arm]) / len(found[arm]) for arm in ("answers", "forged"))
                print(
                    f"| {task} | {answers:.3f} | {forged:.3f} | {found['diff']:+.3f} [{low:+.3f}, {high:+.3f}] |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
