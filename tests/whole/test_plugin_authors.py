"""What a plugin author does: a new plugin from the template, and the example plugin as a distribution of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from workbench.cli.scaffold import new_plugin
from workbench.errors import SpecError

ROOT = Path(__file__).parents[2]


def install(project: Path, target: Path) -> dict[str, str]:
    """Install a plugin into a folder of its own; returns an environment in which it is found."""
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "--target",
            str(target),
            str(project),
        ],
        check=True,
        capture_output=True,
        timeout=240,
    )
    return {**os.environ, "PYTHONPATH": str(target)}


def run(*args: str, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *args], cwd=cwd, env=env, capture_output=True, text=True, timeout=280)


CLI = ("-c", "from workbench.cli import main; main()")


def test_a_new_plugin_passes_its_own_test_and_runs(tmp_path: Path) -> None:
    project = new_plugin("tabu-search", tmp_path)
    env = install(project, tmp_path / "site")
    tests = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", cwd=project, env=env)
    assert tests.returncode == 0, tests.stdout + tests.stderr
    valid = run(*CLI, "validate", "workflow.yaml", cwd=project, env=env)
    assert valid.returncode == 0 and "tabu_search" in valid.stdout, valid.stderr


def test_friction_44_a_new_plugin_names_what_its_test_needs(tmp_path: Path) -> None:
    project = new_plugin("tabu-search", tmp_path)
    extras = tomllib.loads((project / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert any(needed.startswith("pytest") for needed in extras["test"])
    assert "pip install -e '.[test]' && python -m pytest\n" in (project / "README.md").read_text()


@pytest.mark.parametrize("name", ["1st", "class", "a b", "random", ""])
def test_a_bad_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        new_plugin(name, tmp_path)


def test_a_folder_that_is_there_is_not_touched(tmp_path: Path) -> None:
    new_plugin("mine", tmp_path)
    with pytest.raises(SpecError, match="already exists"):
        new_plugin("mine", tmp_path)


@pytest.mark.slow
def test_the_example_plugin_is_found_usable_by_name_and_keeps_its_promises(tmp_path: Path) -> None:
    project = ROOT / "contrib/example_plugin"
    env = install(project, tmp_path / "site")
    listed = json.loads(run(*CLI, "plugins", "--json", cwd=tmp_path, env=env).stdout)
    example = next(p for p in listed if p["name"] == "example")
    assert example["distribution"] == "workbench-example" and example["provides"]["optimizers"] == ["hillclimb"]

    (tmp_path / "rows.jsonl").write_text("".join(f'{{"q": "{i}", "a": "{i}"}}\n' for i in range(9)))
    spec = {
        "data": {"file": "rows.jsonl"},
        "metric": "shorter(a, limit=5)",
        "nodes": {"n": {"predict": "q -> a"}},
        "search": {"nodes.n.demos": {"demos": 2}},
        "optimize": [{"hillclimb": {"steps": 3}}],
    }
    (tmp_path / "w.yaml").write_text(json.dumps(spec))
    valid = run(*CLI, "validate", "w.yaml", cwd=tmp_path, env=env)
    assert valid.returncode == 0 and "hillclimb" in valid.stdout, valid.stderr

    tests = run(
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-o",
        "addopts=",
        str(project / "tests"),
        cwd=tmp_path,
        env=env,
    )
    assert tests.returncode == 0, tests.stdout + tests.stderr
