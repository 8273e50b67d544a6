"""The distributions, as wheels in environments of their own: core, kit and standard run the quickstart without anything
else, each other one is added alone, and core alone runs a stranger's plugin.
"""

from __future__ import annotations

import importlib.metadata
import json
import shutil
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name
from tests.helpers.wheels import BASE, FOLDERS, ROOT, Environment, build_wheels, needed

from workbench.base.distribution import BUNDLED

pytestmark = pytest.mark.slow
OTHERS = [name for name in BUNDLED if name not in BASE]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return build_wheels(tmp_path_factory.mktemp("wheels"), *FOLDERS)


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
    listed = base.json("plugin", "list")
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
        (["validate", "w.yaml", "--set", "executor=ray"], "scale"),
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
    listed = environment.json("plugin", "list")
    assert not [one for one in listed if one["error"]]
    assert {one["distribution"] for one in listed} == {"workbench-standard", name} - {"workbench-testing"}


def test_core_alone_runs_the_example_plugin(wheels: dict[str, Path], tmp_path: Path) -> None:
    environment = Environment(tmp_path, wheels, ["workbench-core"], ["workbench-example"])
    listed = environment.json("plugin", "list")
    assert [(one["name"], one["error"]) for one in listed] == [("example", None)]
    for name in ("workflow.yaml", "meetings.notes"):
        shutil.copy(ROOT / "contrib" / "example_plugin" / name, environment.home / name)
    report = environment.json("optimize", "workflow.yaml")
    assert report["gain"]["shown"] and "words: 4" in (environment.home / "optimized.yaml").read_text(encoding="utf-8")


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
