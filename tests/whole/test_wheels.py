"""The distributions, as wheels in environments of their own: core, kit and standard run the quickstart without anything
else, each other one is added alone, and core alone runs a stranger's plugin.

Nothing is downloaded. An environment gets our wheels, and links to the packages that their metadata ask for: what they
do not ask for cannot be imported there.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from workbench.base.distribution import BUNDLED

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
BASE = ("workbench-core", "workbench-kit", "workbench-standard")
OTHERS = [name for name in BUNDLED if name not in BASE]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel of each distribution, of the meta distribution and of the example plugin."""
    to = tmp_path_factory.mktemp("wheels")
    folders = [*(ROOT / folder for folder in BUNDLED.values()), ROOT, ROOT / "contrib" / "example_plugin"]
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--wheel-dir", str(to)]
    done = subprocess.run([*command, *map(str, folders)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {path.name.partition("-")[0].replace("_", "-"): path for path in to.glob("*.whl")}


def needed(names: Iterable[str]) -> set[str]:
    """The distributions that some of ours ask for, ours left out, as they are installed here."""
    left, seen, found = [Requirement(name) for name in names], set[tuple[str, frozenset[str]]](), set[str]()
    while left:
        one = left.pop()
        name, extras = canonicalize_name(one.name), frozenset(one.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        if not name.startswith("workbench-"):
            found.add(name)
        for line in importlib.metadata.requires(name) or ():
            more = Requirement(line)
            if more.marker is None or any(more.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                left.append(more)
    return found


class Environment:
    """A virtual environment with some of our wheels."""

    def __init__(self, folder: Path, wheels: dict[str, Path], names: Iterable[str], strangers: Iterable[str] = ()):
        self.folder, self._wheels = folder, wheels
        venv.create(folder / "venv", with_pip=False, symlinks=True)
        self.python = folder / "venv" / "bin" / "python"
        asked = [str(self.python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        self._site = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
        self.add(*names)
        self._unpack(strangers)

    def add(self, *names: str) -> None:
        for name in needed(names):
            for file in importlib.metadata.distribution(name).files or ():
                first = file.parts[0]
                target, source = self._site / first, Path(str(file.locate())).parents[len(file.parts) - 1] / first
                if first not in ("..", "__pycache__") and not target.exists():
                    target.symlink_to(source)
        self._unpack(names)

    def _unpack(self, names: Iterable[str]) -> None:
        command = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(self.python),
            "install",
            "-q",
            "--no-deps",
            "--no-index",
        ]
        if files := [str(self._wheels[name]) for name in names]:
            done = subprocess.run([*command, "--no-compile", *files], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr

    def workbench(self, *args: str, cwd: Path | None = None, code: int = 0) -> str:
        """What a command prints, and, where it fails, its errors."""
        hidden = ("WORKBENCH_", "PYTHONPATH", "VIRTUAL_ENV", "COVERAGE")
        env = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        env["XDG_CONFIG_HOME"] = str(self.folder / "config")
        command = [str(self.python.with_name("workbench")), *args]
        done = subprocess.run(
            command, cwd=cwd or self.folder, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + (done.stderr if code else "")


@pytest.fixture(scope="module")
def base(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("base"), wheels, BASE)


def copy_quickstart(to: Path) -> Path:
    """README's first workflow, a fifth of it: tests/whole/test_gallery.py runs it whole."""
    text = (ROOT / "workflows" / "quickstart.yaml").read_text(encoding="utf-8")
    text = text.replace("{train: 60, val: 60, test: 200}", "{train: 20, val: 30, test: 60}").replace(
        "trials: 14", "trials: 4"
    )
    (to / "data").mkdir()
    (to / "quickstart.yaml").write_text(text, encoding="utf-8")
    rows = (ROOT / "workflows" / "data" / "tickets.jsonl").read_text(encoding="utf-8")
    (to / "data" / "tickets.jsonl").write_text(rows, encoding="utf-8")
    return to / "quickstart.yaml"


def test_core_kit_and_standard_run_the_quickstart_and_nothing_else(base: Environment, tmp_path: Path) -> None:
    listed = json.loads(base.workbench("plugin", "list", "--json"))
    assert {one["distribution"] for one in listed} == {"workbench-standard"} and not [
        one for one in listed if one["error"]
    ]
    packages = {canonicalize_name(name) for name in needed(BASE)}
    assert not packages & {"dspy", "litellm", "scipy", "torch", "openai"}
    report = json.loads(base.workbench("optimize", str(copy_quickstart(tmp_path)), "--json", cwd=tmp_path))
    assert report["gain"]["diff"] > 0, "the bundled model answers better with examples"


@pytest.mark.parametrize(
    ("words", "home"),
    [
        (["view"], "watch"),
        (["agent", "init", "agent.py"], "agents"),
        (["validate", "w.yaml", "--set", "optimize=[dspy_gepa]"], "dspy"),
        (["validate", "w.yaml", "--set", "lm=hf:x/y"], "training"),
        (["validate", "w.yaml", "--set", "lm=bedrock/x"], "dspy"),
    ],
)
def test_what_another_distribution_has_is_told_with_its_name(
    words: list[str], home: str, base: Environment, tmp_path: Path
) -> None:
    copy_quickstart(tmp_path).rename(tmp_path / "w.yaml")
    told = base.workbench(*words, cwd=tmp_path, code=2)
    assert f"It comes with workbench-{home}: pip install -e './plugins/{home}'" in " ".join(told.split())


@pytest.mark.parametrize("name", OTHERS)
def test_each_other_distribution_is_added_alone(name: str, wheels: dict[str, Path], tmp_path: Path) -> None:
    """Its plugins load; what they offer beyond that may need an extra, which they name."""
    environment = Environment(tmp_path, wheels, BASE)
    environment.add(name)
    listed = json.loads(environment.workbench("plugin", "list", "--json"))
    assert not [one for one in listed if one["error"]]
    assert {one["distribution"] for one in listed} == {"workbench-standard", name} - {"workbench-testing"}


def test_core_alone_runs_the_example_plugin(wheels: dict[str, Path], tmp_path: Path) -> None:
    environment = Environment(tmp_path, wheels, ["workbench-core"], ["workbench-example"])
    listed = json.loads(environment.workbench("plugin", "list", "--json"))
    assert [(one["name"], one["error"]) for one in listed] == [("example", None)]
    for name in ("workflow.yaml", "meetings.notes"):
        shutil.copy(ROOT / "contrib" / "example_plugin" / name, tmp_path / name)
    report = json.loads(environment.workbench("optimize", "workflow.yaml", "--json"))
    assert report["gain"]["shown"] and "words: 4" in (tmp_path / "optimized.yaml").read_text(encoding="utf-8")


def test_the_sizes_of_core_and_of_the_base_install(wheels: dict[str, Path]) -> None:
    """In MiB, of what is installed here: 100 for core alone, 250 with kit and standard."""
    for names, most in ((["workbench-core"], 100), (BASE, 250)):
        files = [f for name in needed(names) for f in importlib.metadata.distribution(name).files or ()]
        size = sum(
            path.stat().st_size
            for path in (Path(str(f.locate())) for f in files if f.suffix != ".pyc")
            if path.is_file()
        )
        assert size < most << 20, f"{names}: {size >> 20} MiB"
    assert set(wheels) >= {*BUNDLED}
