"""One arm of workbench: a file and the commands that a user types.   workbench_arm.py ARM ROWS URL SEED CALLS OUT

Its budget is CALLS and what the proof of one winner takes. The scores are those of `workbench predict` with the
best candidate on val, proved or not.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rows import read_task, score

sys.path.insert(0, str(Path(__file__).parents[1]))

from commands import predict, workbench

#: By arm: what the file has besides the task. ITSELF: the model is its own proposer.
ITSELF = {"roles": {"proposer": "itself"}}
CHAIN = [{"bootstrap": {"trials": 4}}, {"rewrite": {"rounds": 6}}]
ARMS: dict[str, dict[str, Any]] = {
    "unchanged": {},
    "default": {},
    "default_proposer": ITSELF,
    "chain": {"roles": {"proposer": "templates/instructions"}, "optimize": CHAIN},
    "chain_proposer": {**ITSELF, "optimize": CHAIN},
    "bootstrap": {"optimize": ["bootstrap"]},
    "textgrad": {**ITSELF, "optimize": ["textgrad"]},
    "evolve": {**ITSELF, "optimize": ["evolve"]},
}


HERE = Path(__file__).parent
_METRIC = """from rows import score


def passes(example, prediction):
    return score(prediction["label"], example)
"""


def write(arm: str, rows: Path, url: str, seed: int, calls: int, folder: Path) -> Path:
    """Write the workflow file of an arm, with its rows beside it."""
    task, _, _, test = read_task(rows)
    lm = {"model": "local/model", "api_base": f"{url}/v1", "timeout": 900, "concurrency": 4}
    for name in ("train", "val", "test"):
        shutil.copy(rows / f"{name}.jsonl", folder)
    kind = task.get("type", f"Literal{task['labels']}")
    answer: dict[str, Any] = {"predict": f"text -> label: {kind}", "instructions": task["instructions"]}
    if task.get("reasoning"):
        answer["reasoning"] = True
    if kind == "str":
        os.environ["WORKBENCH_TRUST"] = str(folder)
        (folder / "passes.py").write_text(f"import sys\n\nsys.path.insert(0, {str(HERE)!r})\n\n{_METRIC}")
    spec: dict[str, Any] = {"name": arm, "lm": lm, "data": {name: f"{name}.jsonl" for name in ("train", "val", "test")}}
    spec |= {
        "metric": "python:passes.py:passes" if kind == "str" else "exact_match(label)",
        "seed": seed,
        "budget": {"calls": calls + 2 * len(test)},
        "nodes": {"answer": answer},
    }
    spec |= ARMS[arm]
    if spec.get("roles", {}).get("proposer") == "itself":
        spec["roles"] = {"proposer": {**lm, "temperature": 0.7}}
    file = folder / "workflow.yaml"
    file.write_text(json.dumps(spec, indent=1))
    return file


def main(arm: str, rows: Path, url: str, seed: int, calls: int, out: Path) -> None:
    folder = out.with_suffix("")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    file, best = write(arm, rows, url, seed, calls, folder), folder / "best.yaml"
    said, note, db = "", "", folder / "runs.db"
    if arm != "unchanged":
        said = workbench("optimize", file, "--out", best, "--keep-unproved", db=db)  # the best on val, as of the peers
        note = "" if "Changed:" in said else "no winner: the file as it is"
    found = predict(best if best.exists() else file, folder / "test.jsonl", db=db)
    scores = [score(answer.get("label"), row) for answer, row in zip(found, read_task(rows)[3], strict=True)]
    made = {"scores": scores, "note": note, "version": f"workbench {version('workbench-core')}"}
    out.write_text(json.dumps({**made, "said": said[-4000:]}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).resolve(), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), Path(sys.argv[6]))
