"""Install hints name what works, and a stranger's package of our name is told once at the start."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from workbench.base.distribution import BUNDLED, PROJECT, pip_install
from workbench.plugins import GROUP, Plugins

ROOT = Path(__file__).parents[2]


def install(folder: Path, name: str, *files: str, top_level: str | None = None) -> None:
    """An installed distribution with empty files. From Python 3.12 on, files that are not there do not count."""
    info = folder / f"{name}-0.8.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.8\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    for file in map(folder.joinpath, files):
        file.parent.mkdir(exist_ok=True)
        file.touch()
    if top_level is not None:
        (info / "top_level.txt").write_text(f"{top_level}\n")


def started(folder: Path, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "workbench", *args],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])},
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("how", ["record", "top_level"])
def test_a_strangers_package_of_our_name_is_told_once(how: str, tmp_path: Path) -> None:
    if how == "record":
        install(tmp_path, "workbench", "workbench/other.py", "workbench-0.8.dist-info/METADATA")  # does not hide ours
    else:
        install(tmp_path, "workbench", top_level="workbench")
    for args in (["--version"], ["--help"], ["plugin", "list"]):
        (line,) = (line for line in started(tmp_path, *args).splitlines() if "two distributions" in line)
        assert "workbench-core" in line and "workbench 0.8" in line and "pip uninstall workbench" in line


def test_others_are_not_told_of(tmp_path: Path) -> None:
    install(tmp_path, "workbench", "another/__init__.py")
    install(tmp_path, "other_bench", "workbench/other.py")  # to find it, all files of all would have to be read
    assert started(tmp_path, "--version") == ""


def test_friction_32_the_name_is_that_of_the_project_and_hints_name_its_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == PROJECT
    assert pip_install("training[grpo]") == f"pip install -e './plugins/training[grpo]' in your clone of {PROJECT}"
    assert pip_install("wandb>=0.21") == "pip install 'wandb>=0.21'"
    extras = dict[str, set[str]]()
    for folder in BUNDLED.values():
        about = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        extras[folder.rpartition("/")[2]] = {*about.get("optional-dependencies", {})}
    for folder in ("core", "plugins", "docs", "workflows", "contrib"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix not in (".py", ".md", ".yaml", ".toml", ".txt") or "reference" in path.parts:
                continue
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"\bagent-workbench\b", text), path
            used = re.findall(
                r"pip_install\(['\"](\w+)(?:\[(\w+)\])?['\"]\)|-e '?\./(?:plugins/)?(\w+)(?:\[(\w+)\])?", text
            )
            for name, extra in ((a or c, b or d) for a, b, c, d in used):
                assert name in extras and extra in ("", *extras[name]), (path, name, extra)


def test_metadata_are_read_once_however_many_plugins_a_distribution_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading them takes longer than importing a plugin does."""
    read: list[object] = []
    parse = metadata.Distribution.metadata.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(metadata.Distribution, "metadata", property(lambda self: read.append(self) or parse(self)))
    found = [entry for entry in metadata.entry_points(group=GROUP) if entry.dist and entry.dist.name in BUNDLED]
    read.clear()
    infos = Plugins(found).infos
    assert len(infos) == len(found) > 30 and {info.distribution for info in infos} <= {*BUNDLED}
    assert len(read) <= 2 * len(BUNDLED)  # for the name and the version
