"""The quickstart does what the README says, and every workflow of the gallery runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

WORKFLOWS = Path(__file__).parents[2] / "workflows"
#: Workflows of extras, and a package that each needs.
EXTRAS = {"feedback_markers.yaml": "torch", "grpo.yaml": "torch", "tool_calls.yaml": "torch"}
CLI = [sys.executable, "-c", "from workbench.cli import main; main()"]


def optimize(name: str, folder: Path, *flags: str) -> dict:
    done = subprocess.run(
        [*CLI, "optimize", str(WORKFLOWS / name), "--json", *flags],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_quickstart_shows_a_gain_within_its_budget(tmp_path: Path) -> None:
    report = optimize("quickstart.yaml", tmp_path)
    gain = report["gain"]
    assert gain["shown"] and gain["p"] < 0.01 and gain["n"] >= 150, gain
    assert report["spent"]["calls"] <= report["budget"]["calls"]
    assert (tmp_path / "optimized.yaml").exists()
    # The written file is a workflow that scores what the report says.
    scored = subprocess.run(
        [*CLI, "eval", "optimized.yaml", "--split", "test", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert scored.returncode == 0, scored.stderr
    assert json.loads(scored.stdout)["score"] == pytest.approx(report["best"]["test"]["score"])


@pytest.mark.slow
def test_a_finished_run_is_replayed_without_a_call(tmp_path: Path) -> None:
    report = optimize("quickstart.yaml", tmp_path, "--budget-calls", "300", "--allow-unproved")
    again = subprocess.run(
        [*CLI, "resume", "last", "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert again.returncode == 0, again.stderr
    replay = json.loads(again.stdout.splitlines()[-1])
    for key in ("best", "baseline", "gain"):
        assert replay[key] == report[key], key
    assert replay["spent"]["calls"] == report["spent"]["calls"]


#: Of the gallery only a few are optimized here: test_gallery_scripted.py drives each file through all its nodes.
SOME = ("codeact.yaml", "mixture_of_agents.yaml", "jury.yaml")


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [*sorted(WORKFLOWS.glob("*.yaml")), *(WORKFLOWS / "gallery" / name for name in SOME)],
    ids=lambda p: p.name,
)
def test_workflow_runs(path: Path, tmp_path: Path) -> None:
    if path.name in EXTRAS:
        pytest.importorskip(EXTRAS[path.name])
    report = optimize(str(path), tmp_path, "--budget-calls", "250", "--allow-unproved")
    assert report["status"] in ("finished", "budget") and report["spent"]["calls"] <= 250


@pytest.mark.slow
def test_require_gain_is_an_exit_code(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *CLI,
            "optimize",
            str(WORKFLOWS / "quickstart.yaml"),
            "--budget-calls",
            "20",
            "--require-gain",
            "--allow-unproved",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 100, done.stderr
    assert "The gain is not shown" in done.stdout
