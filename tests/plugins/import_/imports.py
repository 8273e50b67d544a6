"""What the tests of `workbench data import` share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner, Result

from workbench.cli import cli
from workbench.errors import SpecError


def run_import(path: Path, out: Path, *flags: str) -> Result:
    return CliRunner().invoke(cli, ["data", "import", str(path), "--out", str(out), *flags])


def imported(path: Path, out: Path, *flags: str) -> tuple[dict[str, Any], str]:
    """(workflow file, what was printed); the file validates."""
    done = run_import(path, out, *flags)
    assert done.exit_code == 0, done.output
    checked = CliRunner().invoke(cli, ["validate", str(out / "workflow.yaml")])
    assert checked.exit_code == 0, checked.output
    return yaml.safe_load((out / "workflow.yaml").read_text(encoding="utf-8")), done.output


def rows_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "rows.jsonl").read_text(encoding="utf-8").splitlines()]


def refused(path: Path, out: Path, *flags: str) -> str:
    done = run_import(path, out, *flags)
    assert isinstance(done.exception, SpecError) and not (out / "workflow.yaml").exists(), done.exception
    return str(done.exception)
