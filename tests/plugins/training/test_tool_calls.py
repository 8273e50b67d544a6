"""GRPO alone teaches `bundled/nano` the right tool call, by Tool-N1's binary reward; without a reward nothing moves.

One seed of the three in the plugin's README, that of the workflow, with a third of its steps.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
SECONDS = 360  # of one core, for GRPO and its proof

pytestmark = pytest.mark.timeout(900)  # one cold start for both tests, on a machine that other tests share


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The runs of workflows/tool_calls.yaml, one optimizer after the other: cold start, GRPO from there, and its
    control."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    command = [
        sys.executable,
        "contrib/bench/training/tool_calls.py",
        "--seeds",
        "1",
        "--steps",
        "20",
        "--threads",
        "1",
        "--work",
        str(tmp_path_factory.mktemp("tool_calls") / "work"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=840)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.long
def test_grpo_alone_shows_a_gain_over_its_cold_start_on_sealed_rows(found: dict[str, Any]) -> None:
    """15 points more at least, p < 0.01, in six minutes: the target of the project."""
    start, grpo = found["start"], found["grpo"]
    assert grpo["before"]["test"] == start["after"]["test"] and grpo["before"]["test"]["score"] > start["before"]["val"]
    gain = grpo["gain"]
    assert gain["shown"] and gain["n"] >= 150 and gain["diff"] >= 0.15 and gain["p"] < 0.01, gain
    assert grpo["cpu"] <= SECONDS, grpo["cpu"]


@pytest.mark.long
def test_without_a_reward_the_weights_and_the_score_stay(found: dict[str, Any]) -> None:
    start, control = found["start"], found["control"]
    steps = [message for message in control["told"] if message.startswith("step ")]
    assert steps and all("reward 0.000, " in message for message in steps)
    assert control["written"] == [Path(start["lm"]["extra"]["path"]).name]  # a name made from the weights themselves
    assert not control["gain"]["shown"] and control["after"]["test"] == control["before"]["test"]
    assert control["before"]["test"] == found["grpo"]["before"]["test"]
