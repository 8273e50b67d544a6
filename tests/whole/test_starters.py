"""`workbench init --template NAME` (friction 49): each starter is valid, scores above zero offline, is optimized."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from workbench.cli import cli
from workbench.cli.starters import STARTERS


def workbench(*args: str) -> Result:
    return CliRunner().invoke(cli, list(args))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORKBENCH_TRUST", str(tmp_path))
    return tmp_path


def test_the_command_offers_every_starter() -> None:
    option = next(p for p in cli.commands.get("init", cli.get_command(None, "init")).params if p.name == "template")  # type: ignore[arg-type,union-attr]
    assert list(option.type.choices) == list(STARTERS)  # type: ignore[union-attr]


#: Optimized in the fast tier; all are valid and score there.
FAST = "rag"


@pytest.mark.slow
@pytest.mark.parametrize("name", STARTERS)
def test_a_starter_is_valid_and_scores_friction_49(name: str, here: Path) -> None:
    made = workbench("init", "--template", name, "new")
    assert made.exit_code == 0, made.output
    os.chdir("new")
    valid = workbench("validate", "--run-code", "workflow.yaml", "--json")
    assert json.loads(valid.stdout)["ok"], valid.output
    scored = workbench("eval", "workflow.yaml", "--split", "val", "--json")
    report = json.loads(scored.stdout.splitlines()[-1])
    assert scored.exit_code == 0 and report["score"] > 0, scored.output
    assert not {"code", "tool", "metric"} & set(report["failures"]), report["failures"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == FAST else pytest.mark.slow) for name in STARTERS]
)
def test_a_starter_is_optimized_friction_49(name: str, here: Path) -> None:
    assert workbench("init", "--template", name, "new").exit_code == 0
    os.chdir("new")
    few = "optimize=[{optuna: {trials: 2}}]"
    done = workbench("optimize", "workflow.yaml", "--set", few, "--json")
    found = json.loads(done.stdout.splitlines()[-1])
    assert done.exit_code == 0 and found["status"] == "finished", done.output
    assert Path("optimized.yaml").exists()


@pytest.mark.parametrize("name", STARTERS)
def test_a_starter_names_only_files_that_it_brings_friction_49(name: str, here: Path) -> None:
    assert workbench("init", "--template", name, "new").exit_code == 0
    text = (here / "new" / "workflow.yaml").read_text(encoding="utf-8")
    assert text.splitlines()[0] == "# yaml-language-server: $schema=schema.json"
    named = re.findall(r"\b([\w/.-]+\.(?:py|jsonl|json|md|txt|yaml))\b", text)
    assert {"schema.json", "rows.jsonl"} <= set(named)
    assert [file for file in named if not (here / "new" / file).exists()] == []


def test_the_schema_of_a_starter_knows_every_key_of_it(here: Path) -> None:
    assert workbench("init", "new").exit_code == 0
    schema = json.loads((here / "new" / "schema.json").read_text(encoding="utf-8"))
    spec = yaml.safe_load((here / "new" / "workflow.yaml").read_text(encoding="utf-8"))
    assert spec.keys() <= schema["properties"].keys()
    assert schema == json.loads(workbench("validate", "--schema").stdout)


def test_a_file_that_is_there_is_not_overwritten_and_nothing_is_written(here: Path) -> None:
    (here / "schema.json").write_text("mine")
    done = workbench("init")
    assert done.exit_code == 2 and "already exists" in done.output
    assert [path.name for path in here.iterdir()] == ["schema.json"]
