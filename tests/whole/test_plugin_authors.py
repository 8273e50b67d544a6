"""What a plugin author does: a new plugin from the template, and the example plugin as a distribution of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from workbench.errors import SpecError
from workbench_scaffold.new import PLUGIN_KINDS, new_plugin

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
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(target), os.environ.get("PYTHONPATH", "")])}


def run(*args: str, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *args], cwd=cwd, env=env, capture_output=True, text=True, timeout=280)


CLI = ("-c", "from workbench.cli import main; main()")


@pytest.mark.slow
def test_a_new_plugin_passes_its_own_test_and_runs(tmp_path: Path) -> None:
    project = new_plugin("tabu-search", tmp_path)
    env = install(project, tmp_path / "site")
    tests = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", cwd=project, env=env)
    assert tests.returncode == 0, tests.stdout + tests.stderr
    valid = run(*CLI, "validate", "workflow.yaml", cwd=project, env=env)
    assert valid.returncode == 0 and "tabu_search" in valid.stdout, valid.stderr


def put_on_path(project: Path, site: Path) -> dict[str, str]:
    """What an editable installation does: the project is on the path, and its entry point is found. Reads both from the
    project's `pyproject.toml`."""
    about = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = site / f"{about['name'].replace('-', '_')}-{about['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {about['name']}\nVersion: {about['version']}\n")
    entries = about["entry-points"]["workbench"].items()
    (info / "entry_points.txt").write_text(
        "[workbench]\n" + "".join(f"{name} = {module}\n" for name, module in entries)
    )
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(site), str(project)))}


#: Made in the fast tier, besides an optimizer above and an exporter below.
FAST = ("metric", "lm")


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in FAST else pytest.mark.slow) for kind in PLUGIN_KINDS]
)
def test_a_new_plugin_of_each_kind_works_and_passes_its_own_test_frictions_30_44(kind: str, tmp_path: Path) -> None:
    project = new_plugin("my-thing", tmp_path, kind)
    env = put_on_path(project, tmp_path / "site")
    tests = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-Werror", cwd=project, env=env)
    passed = re.search(r"(\d+) passed", tests.stdout)
    assert tests.returncode == 0 and passed and int(passed[1]) >= 4, tests.stdout + tests.stderr
    listed = json.loads(run(*CLI, "plugin", "list", "--json", cwd=project, env=env).stdout)
    mine = next(plugin for plugin in listed if plugin["name"] == "my_thing")
    assert mine["error"] is None and mine["provides"] == {PLUGIN_KINDS[kind].table: ["my_thing"]}
    if (project / "workflow.yaml").exists():
        done = run(*CLI, "eval", "workflow.yaml", "--split", "val", "--json", cwd=project, env=env)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert report["n"] == 8 and set(report["failures"]) <= {"unparsed"}, report  # by the bundled model
    about = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "pytest" in about["optional-dependencies"]["test"][0]
    readme = (project / "README.md").read_text(encoding="utf-8")
    assert "pip install -e '.[test]' && python -m pytest" in readme and "$" not in readme


@pytest.mark.slow
def test_the_exporter_of_the_template_exports_a_run(tmp_path: Path) -> None:
    project = new_plugin("prompts", tmp_path, "exporter")
    env = put_on_path(project, tmp_path / "site")
    other = new_plugin("tabu", tmp_path, "optimizer")
    text = (other / "workflow.yaml").read_text(encoding="utf-8").replace("optimize: [tabu]", "optimize: [random]")
    (other / "workflow.yaml").write_text(text, encoding="utf-8")
    assert run(*CLI, "optimize", "workflow.yaml", cwd=other, env=env).returncode == 0
    done = run(*CLI, "export", "last", "--format", "prompts", "--out", "prompts.md", cwd=other, env=env)
    assert done.returncode == 0, done.stderr
    assert "## sort\n\n`text -> label`" in (other / "prompts.md").read_text(encoding="utf-8")


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="Did you mean 'metric'"):
        new_plugin("mine", tmp_path, "metrics")


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
    listed = json.loads(run(*CLI, "plugin", "list", "--json", cwd=tmp_path, env=env).stdout)
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
