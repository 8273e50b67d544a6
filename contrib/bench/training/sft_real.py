"""A real small model that learns the labels of a real task, with a sealed proof, beside examples in its prompt.

    python contrib/bench/peers/rows.py DATA rows
    python contrib/bench/training/sft_real.py --model SMOLLM2_FOLDER --rows rows/toole --out sft.jsonl

`sft`: an adapter, trained on the labels of the rows of train. `bootstrap`: the same rows as examples in the prompt,
with 400 calls of search. Both have the same val and sealed rows, and begin with the same model and prompt. Each
finished arm is a line and is not run again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any

from workbench.proof import paired_proof
from workbench.run import Options, optimize
from workbench.store import ReadOnlyStore

SPLITS = ("train", "val", "test")
ARMS: dict[str, dict[str, Any]] = {
    "sft": {
        "source": "labels",
        "labels": {"label": "label"},
        "epochs": 6,
        "evaluate_every": 2,
        "lora": {},
        "learning": {"rate": 1e-3},
    },
    "bootstrap": {},
}


def run(arm: str, model: Path, rows: Path, seed: int, folder: Path) -> dict[str, Any]:
    """Run one optimizer; its report, and the scores of the winner on the sealed rows."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in SPLITS:
        shutil.copy(rows / f"{name}.jsonl", folder)
    task = json.loads((rows / "task.json").read_text())
    test = sum(1 for _ in (rows / "test.jsonl").open())
    answer = {"predict": f"text -> label: Literal{task['labels']}", "instructions": task["instructions"]}
    spec = {
        "name": f"{rows.name} by {arm}",
        "lm": {"model": f"hf:{model.resolve()}", "max_tokens": 32},
        "data": {name: f"{name}.jsonl" for name in SPLITS},
        "metric": "exact_match(label)",
        "nodes": {"answer": answer},
        "optimize": [{arm: ARMS[arm]}],
        "budget": {"calls": 400 + 2 * test},
        "seed": seed,
    }
    file = folder / "workflow.yaml"
    file.write_text(json.dumps(spec, indent=1))
    begun = time.monotonic()
    report = optimize(file, database=folder / "run.db", options=Options(out=str(folder / "out.yaml")))
    print("\n".join(report.lines()), flush=True)
    found = report.as_dict()
    return {
        "task": rows.name,
        "arm": arm,
        "seed": seed,
        "before": found["baseline"],
        "after": found["best"],
        "gain": found["gain"],
        "scores": sealed_scores(folder / "run.db", found["best"]["workflow"]),
        "calls": report.spent["calls"],
        "seconds": round(time.monotonic() - begun),
    }


def sealed_scores(database: Path, candidate: str) -> dict[str, float | None]:
    """The scores of a candidate on the sealed rows, by row."""
    with ReadOnlyStore(database) as store:
        rows = store.rows(
            "select example, score from results where evaluation_id in "
            "(select id from evaluations where split = 'test' and candidate = ?)",
            candidate,
        )
        return {row["example"]: row["score"] for row in rows}


def table(done: list[dict[str, Any]]) -> str:
    """The arms, and the differences of `sft` to `bootstrap` on the same rows."""
    lines = []
    for one in done:
        low, high = one["gain"]["ci95"]
        before, after = one["before"]["test"]["score"], one["after"]["test"]["score"]
        gain = f"{one['gain']['diff']:+.3f} [{low:+.3f}, {high:+.3f}]"
        lines.append(f"| {one['task']} | {one['arm']} | {one['seed']} | {before:.3f} | {after:.3f} | {gain} |")
    arms = {(one["task"], one["seed"], one["arm"]): one["scores"] for one in done}
    for task, seed, arm in arms:
        if arm == "sft" and (other := arms.get((task, seed, "bootstrap"))) is not None:
            own = arms[task, seed, arm]
            proof = paired_proof([other[row] for row in own], [*own.values()])
            low, high = proof.ci95
            lines.append(f"{task}, seed {seed}: sft less bootstrap {proof.diff:+.3f} [{low:+.3f}, {high:+.3f}]")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=[*ARMS])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    args = parser.parse_args()
    done = [json.loads(line) for line in args.out.open()] if args.out.exists() else []
    known = {(one["task"], one["arm"], one["seed"]) for one in done}
    for seed in args.seeds:
        for arm in args.arms:
            if (args.rows.name, arm, seed) not in known:
                folder = args.out.with_suffix("") / f"{args.rows.name}-{arm}-{seed}"
                found = run(arm, args.model, args.rows, seed, folder)
                with args.out.open("a") as file:
                    file.write(json.dumps(found) + "\n")
                done.append(found)
    print(table(done))


if __name__ == "__main__":
    main()
