"""The command that trains a real model on a GPU runs, with tiny weights and a few rows, on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DATA = next((p for p in (ROOT / "shared/data", ROOT.parent / "shared/data") if p.is_dir()), None)


@pytest.mark.skipif(DATA is None, reason="the shared data are not here")
def test_both_tasks_run_on_both_sides(tmp_path: Path) -> None:
    command = [sys.executable, "contrib/bench/train_real.py", "--toy", "--data", str(DATA), "--out", str(tmp_path / "out.jsonl"),
               "--work", str(tmp_path / "work")]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [r["task"] for r in rows] == ["bfcl", "gsm8k"]
    for row in rows:
        assert {name: len(scores) for name, scores in row["scores"].items()} == dict.fromkeys(
            ("base", "sft", "ours", "trl"), 4
        )
        drawn = [step["rollouts"] for step in row["told"] if "rollouts" in step]
        assert drawn == [4.0, 4.0] and len(row["trl_curve"]) == 2  # both sides: two steps of four rollouts
