"""Every command and YAML block in README and docs works, and the generated pages are up to date."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from workbench.cli import cli

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "plugins").glob("*/*.md")),
]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: The README's two installations: `.ci/run` runs the one, and the other is the same command without the extra.
INSTALLS = ("pip install -e .", "pip install -e '.[test]' && pytest")


def blocks(language: str) -> list:
    found = []
    for page in PAGES:
        for number, match in enumerate(BLOCK.finditer(page.read_text(encoding="utf-8"))):
            if match.group(1) == language:
                found.append(pytest.param(match.group(2), id=f"{page.relative_to(ROOT)}:{number}"))
    return found


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what a reader's commands may touch."""
    shutil.copytree(ROOT / "workflows", tmp_path / "workflows")
    installed = shutil.ignore_patterns("node_modules", ".venv")
    shutil.copytree(ROOT / "contrib/agents", tmp_path / "contrib/agents", ignore=installed)
    (tmp_path / "metrics.py").write_text(metric_code(), encoding="utf-8")
    return tmp_path


def metric_code() -> str:
    page = (ROOT / "docs/how-to/own-metric.md").read_text(encoding="utf-8")
    return next(m.group(2) for m in BLOCK.finditer(page) if m.group(1) == "python")


def workbench(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from workbench.cli import main; main()", *args]
    env = {**os.environ, "XDG_CONFIG_HOME": str(cwd / "config")}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240, env=env)


@pytest.mark.slow
@pytest.mark.parametrize("text", blocks("yaml"))
def test_yaml_block_is_a_valid_workflow(text: str, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (checkout / "block.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(checkout)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(checkout / "config"))
    done = CliRunner().invoke(cli, ["validate", "--deep", "--run-code", "block.yaml"])
    assert done.exit_code == 0, done.output


@pytest.mark.slow
@pytest.mark.parametrize("text", blocks("bash"))
def test_bash_block_runs(text: str, checkout: Path) -> None:
    for line in text.strip().splitlines():
        if line.startswith((INSTALLS[1], "#")) or not line.strip():
            continue
        command = line.removeprefix(INSTALLS[0]).removeprefix(" && ")
        words = shlex.split(command, comments=True)
        assert words[0] == "workbench", f"a bash block in the docs runs something else: {line}"
        done = workbench(*words[1:], cwd=checkout)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize("text", blocks("python"))
def test_python_block_runs(text: str, checkout: Path) -> None:
    (checkout / "block.py").write_text(text, encoding="utf-8")
    done = subprocess.run([sys.executable, "block.py"], cwd=checkout, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


def test_generated_pages_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nRun: python docs/generate.py"


def test_every_key_has_a_description_and_a_type_that_a_user_knows() -> None:
    rows = [
        line
        for file in (ROOT / "docs/reference").glob("*.md")
        for line in file.read_text().splitlines()
        if line.startswith("| `")
    ]
    assert len(rows) > 500
    assert [row for row in rows if row.endswith("|  |") or "workbench_" in row] == []


def leads(page: Path) -> set[Path]:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    return {(page.parent / to).resolve() for to in links if "://" not in to}


def test_friction_31_the_contents_lead_to_each_page_and_plugin() -> None:
    index, readme = ROOT / "docs/index.md", ROOT / "README.md"
    wanted = {*(ROOT / "plugins").glob("*/README.md"), *(ROOT / "docs").rglob("*.md")} - {index}
    assert wanted <= leads(index), wanted - leads(index)
    assert index in leads(readme), "the README is short, and leads there"
    _, _, rest = readme.read_text(encoding="utf-8").partition("<!-- contents")
    assert rest.partition("<!-- end")[0].count("](") == 10


def test_every_link_leads_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken, broken


def test_the_files_that_the_architecture_page_leads_to_are_there() -> None:
    page = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:\w+/)*\w+\.py)`", page)
    assert len(named) >= 15
    for name in named:
        places = (ROOT / name, ROOT / "core" / "workbench" / name)
        assert any(place.exists() for place in places), name


def test_every_link_between_pages_leads_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"
