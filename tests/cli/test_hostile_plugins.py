"""Plugins that exit, raise late or take names: they are named and set aside, and the command goes on or says why."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROWS = "".join(f'{{"text": "row {n}", "label": "a"}}\n' for n in range(30))
FILE = (
    "name: w\nlm: bundled/nano\nmetric: exact_match(label)\nbudget: {calls: 60}\n"
    "data: {file: rows.jsonl, split: {train: 10, val: 10, test: 10}}\n"
    "nodes:\n  sort: {predict: 'text -> label'}\noptimize: [{random: {trials: 1}}]\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rows.jsonl").write_text(ROWS)
    (tmp_path / "w.yaml").write_text(FILE)
    return tmp_path


def install(folder: Path, code: str, name: str = "aaa") -> None:
    (folder / "hostile.py").write_text(f"from workbench import hookimpl\n{code}\n")
    info = folder / "hostile-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hostile\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[workbench]\n{name} = hostile\n")


def workbench(arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "workbench", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, cwd=folder, timeout=120)


@pytest.mark.parametrize("how", ["raise SystemExit(0)", "1 / 0"])
def test_a_hook_that_exits_or_raises_in_a_run_is_told_in_the_report(folder: Path, how: str) -> None:
    install(folder, f"@hookimpl\ndef run_started(run):\n    {how}")
    done = workbench(["optimize", "w.yaml"], folder)
    assert done.returncode == 0 and "plugin 'aaa' was set aside during the run" in done.stdout, (
        done.stdout + done.stderr
    )
    assert "saved" in done.stdout or "optimized.yaml" in done.stdout


def test_a_plugin_that_exits_when_it_is_first_used_says_so(folder: Path) -> None:
    install(folder, "@hookimpl\ndef register_optimizers(register):\n    register('late', 'late_module:Late')")
    (folder / "late_module.py").write_text("raise SystemExit(0)\n")
    (folder / "w.yaml").write_text(FILE.replace("random:", "late:"))
    done = workbench(["validate", "w.yaml"], folder)
    assert done.returncode == 2 and "optimizer 'late' of plugin 'aaa' cannot be loaded: SystemExit" in done.stderr


def test_a_plugin_that_exits_while_it_adds_commands_is_named(folder: Path) -> None:
    install(folder, "@hookimpl\ndef register_commands(cli):\n    raise SystemExit(0)")
    done = workbench(["bench", "--help"], folder)
    assert done.returncode == 0 and "Usage" in done.stdout, "the commands of other plugins are there"
    assert "plugin 'aaa' was set aside" in done.stderr


def test_a_bundled_plugin_keeps_its_names(folder: Path) -> None:
    install(folder, "@hookimpl\ndef register_optimizers(register):\n    register('random', 'x:y')")
    assert workbench(["validate", "w.yaml"], folder).returncode == 0
    line = next(x for x in workbench(["plugins"], folder).stdout.splitlines() if x.startswith("aaa "))
    assert "set aside" in line and "has registered already" in line


def test_no_plugins_loads_the_bundled_ones_alone(folder: Path) -> None:
    install(folder, "print('LOADED')")
    assert "LOADED" in workbench(["plugins"], folder).stdout
    done = workbench(["--no-plugins", "plugins"], folder)
    assert "LOADED" not in done.stdout and "random" in done.stdout and done.returncode == 0
