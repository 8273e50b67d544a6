"""Trains the model behind an agent that is not changed: workflows/sorter.py on `bundled/nano`, by sft or dpo.

    python contrib/bench/training/external_agent.py sft [--work FOLDER]

The agent sends its own prompt, and knows nothing of the training. 24 tickets to learn from, 40 to choose by, 60 sealed.
Printed: what the optimizer told, then the proof as JSON. It starts a program for each run of a row: hundreds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from workbench.run import Options, optimize

ROOT = Path(__file__).parents[3]
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sft": {"rounds": 2, "rollouts": 16, "tasks": 24, "learning": {"rate": 3e-4}},
    "dpo": {"rounds": 4, "rollouts": 16, "tasks": 24, "learning": {"rate": 3e-4}},
}


def write(folder: Path, optimizer: str) -> Path:
    spec = {
        "name": "sorter",
        "lm": "bundled/nano",
        "metric": "exact_match(label)",
        "seed": 1,
        "data": {"file": str(ROOT / "workflows/data/tickets.jsonl"), "split": {"train": 24, "val": 40, "test": 60}},
        "nodes": {
            "agent": {
                "external": "text -> label: Literal['billing', 'technical', 'shipping', 'returns', 'account']",
                "command": ["python", str(ROOT / "workflows/sorter.py")],
                "calls": 2,
            }
        },
        "optimize": [{optimizer: {**OPTIMIZERS[optimizer], "device": "cpu"}}],
        "budget": {"calls": 4000},
    }
    path = folder / "workflow.yaml"
    path.write_text(json.dumps(spec), encoding="utf-8")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("optimizer", choices=OPTIMIZERS)
    parser.add_argument("--work", type=Path, help="folder of the run; default: a temporary one")
    asked = parser.parse_args()

    def listen(event: str, data: dict[str, Any]) -> None:
        if event == "optimizer_told":
            print(data["message"], flush=True)

    with tempfile.TemporaryDirectory() as made:
        folder = asked.work or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        begun = time.monotonic()
        options = Options(out=str(folder / "out.yaml"), allow_unproved=True, keep_unproved=True)
        report = optimize(write(folder, asked.optimizer), options=options, database=folder / "run.db", listener=listen)
        found = report.as_dict()
        seconds = round(time.monotonic() - begun)
        print(json.dumps({"gain": found["gain"], "calls": found["spent"]["calls"], "seconds": seconds}))


if __name__ == "__main__":
    main()
