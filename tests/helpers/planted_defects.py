"""Workflows with one planted defect each, and the same without it (`tests/task/planted_defects`)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from workbench.cli import cli
from workbench.cli.starters import STARTERS, starter_files

FOLDER = Path(__file__).parent.parent / "task" / "planted_defects"
ROOT = FOLDER.parent.parent.parent


def planted_cases() -> list[dict[str, Any]]:
    """The cases, as the file has them: plant, kind, at, file, near."""
    return yaml.safe_load((FOLDER / "cases.yaml").read_text(encoding="utf-8"))


def write_case(folder: Path, keys: dict[str, Any]) -> Path:
    """A workflow file with these keys, beside its rows and tools."""
    for name in ("tools.py", "server.py"):
        shutil.copy(FOLDER / name, folder / name)
    rows = [{"text": f"t{i}", "question": f"q{i}", "label": f"l{i}", "answer": f"a{i}", "number": i} for i in range(9)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    base = {"name": "planted", "lm": "bundled/nano", "data": {"file": "rows.jsonl"}, "metric": "exact_match(label)"}
    file = folder / "w.yaml"
    file.write_text(json.dumps({**base, **keys}, indent=1), encoding="utf-8")
    return file


def check_deeply(file: Path, *more: str) -> dict[str, Any]:
    """What `validate --deep --json` says of a file, with its `exit_code`."""
    done = CliRunner().invoke(cli, ["validate", str(file), "--deep", "--json", *more])
    return {**json.loads(done.stdout.strip().splitlines()[-1]), "exit_code": done.exit_code}


def shipped_files() -> list[Path]:
    """The workflow files of the checkout: examples and gallery."""
    return sorted(
        path for path in (ROOT / "workflows").rglob("*.yaml") if path.parent.name not in ("data", "synthesis")
    )


def starter_workflows(folder: Path) -> list[Path]:
    """What `workbench init` writes, each template into a folder of its own."""
    for template in STARTERS:
        (folder / template).mkdir()
        for name, text in starter_files(template).items():
            (folder / template / name).write_text(text, encoding="utf-8")
    return [folder / template / "workflow.yaml" for template in STARTERS]
