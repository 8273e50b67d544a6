"""The quickstart does what the README says, and every workflow of the gallery runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.helpers.forking import run_module

WORKFLOWS = Path(__file__).parents[2] / "workflows"
QUICKSTART = WORKFLOWS / "quickstart.yaml"  # has a test of its own
#: Workflows of extras, and a package that each needs.
EXTRAS = {"feedback_markers.yaml": "torch", "grpo.yaml": "torch", "tool_calls.yaml": "torch"}


def optimize(name: str, folder: Path, *flags: str) -> dict:
    done = run_module("workbench", "optimize", str(WORKFLOWS / name), "--json", *flags, cwd=folder, timeout=280)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """A run of it, and its report."""
    folder = tmp_path_factory.mktemp("quickstart")
    return folder, optimize("quickstart.yaml", folder)


@pytest.mark.slow
def test_quickstart_shows_a_gain_within_its_budget(quickstart: tuple[Path, dict]) -> None:
    folder, report = quickstart
    gain = report["gain"]
    assert gain["shown"] and gain["p"] < 0.01 and gain["n"] >= 150, gain
    assert report["spent"]["calls"] <= report["budget"]["calls"]
    assert (folder / "optimized.yaml").exists()
    # The written file is a workflow that scores what the report says.
    words = ("eval", "optimized.yaml", "--split", "test", "--json")
    scored = run_module("workbench", *words, cwd=folder, timeout=200)
    assert scored.returncode == 0, scored.stderr
    assert json.loads(scored.stdout)["score"] == pytest.approx(report["best"]["test"]["score"])


@pytest.mark.slow
def test_a_finished_run_is_replayed_without_a_call(quickstart: tuple[Path, dict]) -> None:
    folder, report = quickstart
    again = run_module("workbench", "resume", report["run"], "--json", cwd=folder, timeout=100)
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
    [*sorted({*WORKFLOWS.glob("*.yaml")} - {QUICKSTART}), *(WORKFLOWS / "gallery" / name for name in SOME)],
    ids=lambda p: p.name,
)
def test_workflow_runs(path: Path, tmp_path: Path) -> None:
    if path.name in EXTRAS:
        pytest.importorskip(EXTRAS[path.name])
    report = optimize(str(path), tmp_path, "--budget-calls", "250", "--allow-unproved")
    assert report["status"] in ("finished", "budget") and report["spent"]["calls"] <= 250


@pytest.mark.slow
def test_require_gain_is_an_exit_code(tmp_path: Path) -> None:
    words = ("optimize", str(WORKFLOWS / "quickstart.yaml"), "--budget-calls", "20", "--require-gain")
    done = run_module("workbench", *words, "--allow-unproved", cwd=tmp_path, timeout=100)
    assert done.returncode == 100, done.stderr
    assert "The gain is not shown" in done.stdout
    assert run_module("workbench", "resume", cwd=tmp_path, timeout=100).returncode == 100, "the run keeps its gate"
