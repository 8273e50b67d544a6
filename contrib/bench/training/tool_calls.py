"""What GRPO alone adds to workflows/tool_calls.yaml, beside a control that earns nothing.

    python contrib/bench/training/tool_calls.py --seeds 0 1 2

The workflow's two optimizers run one after the other, each as a run of its own: `sft` makes the cold start, and `grpo`
begins with these weights, so that its baseline on the sealed rows is the cold start. `control` is that second run with
a reward of weight 0 and fewer steps. Writes a JSON line for each seed: scores on the sealed rows, the paired proof,
seconds on the clock and of CPU, and the names of the weights, which are made from their content.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from workbench.proof import Report
from workbench.run import Options, optimize

WORKFLOW = Path(__file__).parents[3] / "workflows" / "tool_calls.yaml"
CONTROL_STEPS = 2


def run(folder: Path, spec: dict[str, Any], optimizer: dict[str, Any]) -> dict[str, Any]:
    """Run one optimizer of the workflow; its report and what it took."""
    folder.mkdir(parents=True)
    file = folder / "workflow.yaml"
    file.write_text(
        json.dumps({**spec, "optimize": [optimizer], "proof": {"when_unchanged": "test"}}), encoding="utf-8"
    )
    told: list[str] = []

    def listen(event: str, data: dict[str, Any]) -> None:
        if event == "optimizer_told":
            told.append(data["message"])
            print(f"{folder.name}: {data['message']}", file=sys.stderr, flush=True)

    begun, cpu = time.monotonic(), time.process_time()
    report = optimize(file, database=folder / "run.db", listener=listen, options=Options(out=str(folder / "out.yaml")))
    seconds, cpu = time.monotonic() - begun, time.process_time() - cpu
    found = report.as_dict()
    return {
        "status": report.status,
        "before": found["baseline"],
        "after": found["best"],
        "gain": found["gain"],
        "calls": report.spent["calls"],
        "seconds": round(seconds, 1),
        "cpu": round(cpu, 1),
        "told": told,
        "lm": weights_of(report),
        "written": written(folder),
    }


def weights_of(report: Report) -> Any:
    """The language model of the winner, as a workflow file names it."""
    lm: Any = report.winner.get("lm", None)
    return lm if lm is None or isinstance(lm, str) else json.loads(json.dumps(lm, default=lambda v: v.model_dump()))


def written(folder: Path) -> list[str]:
    """Names of all weights that were submitted."""
    return sorted(p.name for p in (folder / "run-weights").glob("[0-9a-f]" * 16))


def measure(work: Path, seed: int, data: Path | None, steps: int | None) -> dict[str, Any]:
    spec = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    spec["seed"] = seed
    spec["data"] = {
        split: str(data / Path(file).name if data else WORKFLOW.parent / file) for split, file in spec["data"].items()
    }
    sft, grpo = spec.pop("optimize")
    start = run(work / "start", spec, sft)
    spec["lm"] = start["lm"]
    if steps is not None:
        grpo["grpo"]["schedule"]["steps"] = steps
    found = {"seed": seed, "start": start, "grpo": run(work / "grpo", spec, grpo)}
    (part,), schedule = grpo["grpo"]["rewards"], grpo["grpo"]["schedule"]
    nothing = {
        **grpo["grpo"],
        "rewards": [{**part, "weight": 0.0}],
        "schedule": {**schedule, "steps": CONTROL_STEPS, "evaluate_every": CONTROL_STEPS},
    }
    return found | {"control": run(work / "control", spec, {"grpo": nothing})}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--data", type=Path, help="folder of other rows than the workflow's, such as those for tuning")
    parser.add_argument("--steps", type=int, help="of GRPO, in place of the workflow's")
    parser.add_argument("--work", type=Path, help="keep the runs in this folder")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1), help="of torch")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as scratch:
        for seed in options.seeds:
            found = measure((options.work or Path(scratch)) / f"seed-{seed}", seed, options.data, options.steps)
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
