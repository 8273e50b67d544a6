"""A stranger's files in a folder of their own, which is the current one: nothing in it is trusted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from workbench.cli import cli
from workbench.spec import Passed, collecting
from workbench.task import pass_sections

#: A workflow file that only asks its models.
PLAIN: dict[str, Any] = {
    "name": "plain",
    "lm": "bundled/nano",
    "data": {"file": "rows.jsonl", "split": {"train": 3, "val": 3, "test": 6}},
    "metric": "exact_match(label)",
    "nodes": {"sort": {"predict": "text -> label"}},
    "optimize": [{"random": {"trials": 1}}],
    "budget": {"calls": 40},
}
ROWS = "".join(json.dumps({"text": f"t{i}", "label": "a"}) + "\n" for i in range(12))
#: Says so when it is run.
PAYLOAD = "open('RAN', 'a').write('ran')\ndef f(text: str) -> str:\n    return text\n"


def enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: Mapping[str, str]) -> Path:
    """Make the folder with its rows and these files, and go there."""
    monkeypatch.delenv("WORKBENCH_TRUST")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    found = tmp_path / "found"
    for place, text in {"rows.jsonl": ROWS, **files}.items():
        (found / place).parent.mkdir(parents=True, exist_ok=True)
        (found / place).write_text(text)
    monkeypatch.chdir(found)
    return found


def enter_with_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with Python and scripts that say when they are run."""
    places = ("p1.py", "ag/main.py", "m1.py", "s1.sh", "pkg/__init__.py", "other.py")
    return enter(tmp_path, monkeypatch, dict.fromkeys(places, PAYLOAD))


def write(name: str = "workflow.yaml", **changes: Any) -> Path:
    """The plain file with other sections."""
    Path(name).write_text(yaml.safe_dump({**PLAIN, **changes}, sort_keys=False))
    return Path(name)


def invoke(*words: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(cli, list(words), input=answer)


def passed_by(base: Path, **sections: Any) -> list[Passed]:
    """What these sections of a file in a folder pass doors with, without what needs no question."""
    with collecting(base) as found:
        pass_sections(sections, base, "outlined")
    return [one for one in dict.fromkeys(found) if one.asked]
