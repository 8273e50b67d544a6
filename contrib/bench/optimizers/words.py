"""A gain by written text on a real model: labels that say nothing, until an instruction says what they stand for.

    python contrib/bench/peers/rows.py DATA rows
    python contrib/bench/peers/openvino_server.py q15-q8.gguf 8190
    python contrib/bench/optimizers/words.py --server http://127.0.0.1:8190 --rows rows/banking --out words.jsonl

The labels of the rows are replaced by codes, Q1 to Q8, as queues of a help desk have them: a file that lists them tells
the model nothing, and only the rows say what they mean. `rewrite` has the model itself as its proposer and may change
the instruction alone; `bootstrap` shows rows as examples, for comparison. Both have the same calls, rows and seed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from workbench.proof import paired_proof

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "peers"))

from commands import predict, workbench
from rows import read_task

ARMS: dict[str, Any] = {
    "unchanged": None,
    "rewrite": [{"rewrite": {"rounds": 6, "width": 3, "batch": 32, "patience": 6}}],
    "bootstrap": ["bootstrap"],
}


def run(arm: str, seed: int, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The scores of an arm on the sealed rows, and the end of what the run printed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    task, *parts = read_task(args.rows)
    codes = {label: f"Q{number}" for number, label in enumerate(task["labels"], 1)}
    for name, part in zip(("train", "val", "test"), parts, strict=True):
        lines = [json.dumps({"text": row["text"], "queue": codes[row["label"]]}) + "\n" for row in part]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    lm = {"model": "local/model", "api_base": f"{args.server}/v1", "timeout": 900, "concurrency": 4}
    queue = f"Literal{[*codes.values()]}"
    spec: dict[str, Any] = {
        "name": f"queues-{arm}",
        "lm": lm,
        "roles": {"proposer": {**lm, "temperature": 0.7}},
        "data": {name: f"{name}.jsonl" for name in ("train", "val", "test")},
        "metric": "exact_match(queue)",
        "seed": seed,
        "budget": {"calls": args.calls + 2 * len(parts[2])},
        "nodes": {"answer": {"predict": f"text -> queue: {queue}", "instructions": "Name the queue for the message."}},
    }
    file, best, db, said = folder / "workflow.yaml", folder / "best.yaml", folder / "runs.db", ""
    file.write_text(json.dumps({**spec, "optimize": ARMS[arm]} if ARMS[arm] else spec))
    if ARMS[arm]:
        said = workbench("optimize", file, "--out", best, "--keep-unproved", db=db)
    found = predict(best if best.exists() else file, folder / "test.jsonl", db=db)
    scores = [float(a["queue"] == codes[row["label"]]) for a, row in zip(found, parts[2], strict=True)]
    return {"arm": arm, "seed": seed, "scores": scores, "said": said[-3000:]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="http://127.0.0.1:8190")
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("words.jsonl"))
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=[*ARMS])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--calls", type=int, default=400, help="of each search; its proof is apart")
    args = parser.parse_args()
    done = [json.loads(line) for line in args.out.open()] if args.out.exists() else []
    for seed in args.seeds:
        for arm in args.arms:
            found = next((one for one in done if (one["arm"], one["seed"]) == (arm, seed)), None)
            if found is None:
                found = run(arm, seed, args, args.out.with_suffix("") / f"{arm}-{seed}")
                done.append(found)
                with args.out.open("a") as file:
                    file.write(json.dumps(found) + "\n")
            less = ""
            if start := next((one for one in done if (one["arm"], one["seed"]) == ("unchanged", seed)), None):
                proof = paired_proof(start["scores"], found["scores"])
                less = f"{proof.diff:+.3f} [{proof.ci95[0]:+.3f}, {proof.ci95[1]:+.3f}]"
            print(f"| {arm} | {seed} | {sum(found['scores']) / len(found['scores']):.3f} | {less} |", flush=True)


if __name__ == "__main__":
    main()
