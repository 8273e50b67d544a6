"""Whole training runs for tests: the quickstart's task with few rows, queries on candidates and rows, and kills."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.helpers.forking import Job
from tests.helpers.sqlite import connect
from workbench.proof import Report
from workbench.run import Options, optimize, resume
from workbench_training.rollouts.token_rows import Row

WORKFLOWS = Path(__file__).parents[2] / "workflows"


def needs_torch() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    torch.set_num_threads(1)


def write(
    folder: Path,
    *,
    lm: Any = "bundled/nano",
    optimizers: Any = None,
    budget: dict[str, Any] | None = None,
    rows: tuple[int, int, int] = (16, 12, 20),
    data: dict[str, Any] | None = None,
    **settings: Any,
) -> Path:
    """The quickstart's task with few rows."""
    folder.mkdir(parents=True, exist_ok=True)
    train, val, test = rows
    spec = {
        "name": "tickets",
        "lm": lm,
        "metric": "exact_match(label)",
        "seed": 1,
        "data": {
            "file": str(WORKFLOWS / "data/tickets.jsonl"),
            "split": {"train": train, "val": val, "test": test},
            **(data or {}),
        },
        "nodes": {
            "sort": {
                "predict": "text -> label: Literal['billing', 'technical', 'shipping', 'returns', 'account']",
                "instructions": "Sort the support ticket by topic.",
                "decoding": {"max_tokens": 16},  # a label; drawn in another batch, a long answer may differ by rounding
            }
        },
        "optimize": optimizers or [{"grpo": SMALL}],
        "budget": budget or {"calls": 1000},
        **settings,
    }
    path = folder / "workflow.yaml"
    path.write_text(json.dumps(spec), encoding="utf-8")
    return path


SMALL = {
    "schedule": {"steps": 4, "tasks": 4, "rollouts": 4, "evaluate_every": 2, "save_every": 1},
    "learning": {"rate": 1e-3},
}


def unused_study() -> Any:
    """In place of a study for rollouts that are given."""
    return SimpleNamespace(lm=lambda role: None, workflow=SimpleNamespace(input_fields=[]))


def run(
    folder: Path,
    *,
    again: bool = False,
    heard: list[Any] | None = None,
    keep_unproved: bool = False,
    **settings: Any,
) -> Report:
    def listen(event: str, data: dict[str, Any]) -> None:
        if heard is not None and event == "optimizer_told":
            heard.append((data["message"], data["figures"]))

    common: dict[str, Any] = {
        "database": folder / "run.db",
        "listener": listen,
        "options": Options(out=str(folder / "out.yaml"), keep_unproved=keep_unproved, allow_unproved=True),
    }
    return resume("last", **common) if again else optimize(write(folder, **settings), **common)


def candidates(folder: Path) -> list[tuple[str, float | None]]:
    """(name of the trained weights, score on val) of the candidates."""
    with connect(folder / "run.db") as db:
        rows = db.execute(
            "select c.tree, e.score from candidates c join evaluations e on e.run_id = c.run_id and "
            "e.candidate = c.hash and e.split = 'val' order by c.seq"
        ).fetchall()
    found = []
    for text, score in rows:
        lm = json.loads(text).get("lm") or {}
        place = (lm.get("extra") or {}).get("path", "") if isinstance(lm, dict) else ""
        found.append((Path(place).name, score))
    return found


def assert_equal_weights(killed: Path, whole: Path, names: Sequence[tuple[str, str]]) -> None:
    """Trained weights of two runs agree up to rounding. names: of each pair of folders, in the order of training.

    Not to the last bit: a kill may come when a part of a batch is journalled, and the rest is drawn in a smaller one.
    Adam makes whole steps of the rounding in gradients near zero: up to 0.02 of the movement was seen, where one of the
    few steps of a run, if it were lost or made twice, is some 0.2.
    """
    from safetensors.torch import load_file

    def read(folder: Path) -> dict[str, Any]:
        files = sorted(folder.glob("*.safetensors"))
        assert files, folder
        return {f"{file.name} {key}": value for file in files for key, value in load_file(file).items()}

    def apart(one: dict[str, Any], two: dict[str, Any]) -> float:
        assert one.keys() == two.keys()
        return sum(float((one[key] - two[key]).abs().sum()) for key in one)

    pairs = [(read(killed / "run-weights" / a), read(whole / "run-weights" / b)) for a, b in names]
    moved = apart(pairs[0][1], pairs[-1][1])
    assert moved > 0
    for one, two in pairs:
        assert apart(one, two) < 0.05 * moved, (apart(one, two), moved)


def assert_equal_candidates(killed: Path, whole: Path) -> None:
    """Two runs have candidates of equal scores, with weights that are equal up to rounding."""
    assert [score for _, score in candidates(killed)] == [score for _, score in candidates(whole)]
    assert_equal_weights(killed, whole, list(zip(_trained(killed), _trained(whole), strict=True)))


def _trained(folder: Path) -> list[str]:
    """Names of the weights that the candidates have, of the LM or of a node, in order."""
    with connect(folder / "run.db") as db:
        trees = db.execute(
            "select tree from candidates where run_id = (select max(run_id) from candidates) order by seq"
        )
        return re.findall(r"run-weights/(\w+)", " ".join(tree for (tree,) in trees))


def learned_rows(monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    """Collects all rows that trainings learn from, from now on."""
    from workbench_training.learner import Learner

    seen: list[Row] = []
    real = Learner.step

    def watched(self: Learner, rows: Any, *args: Any, **more: Any) -> dict[str, float]:
        seen.extend(rows)
        return real(self, rows, *args, **more)

    monkeypatch.setattr(Learner, "step", watched)
    return seen


def calls_in(folder: Path) -> int:
    try:
        with connect(f"file:{folder}/run.db?mode=ro", uri=True, timeout=5) as db:
            return db.execute("select count(*) from calls where lm like 'policy:%'").fetchone()[0]
    except sqlite3.OperationalError:
        return 0


def kill_after(calls: int, job: Job, folder: Path, *, seconds: float) -> None:
    """Send SIGKILL as soon as the given number of policy calls is journalled, or fail after a timeout in seconds."""
    deadline = time.monotonic() + seconds
    while calls_in(folder) < calls and job.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.kill(job.pid, signal.SIGKILL)
    job.wait()
