"""`validate --deep` tells what of an agent's command is not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.helpers.external_agents import SORTER, write_agent

from workbench.cli import cli


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"command": ["pyton3", "agent.py"]}, "there is no program 'pyton3' on PATH"),
        ({"command": ["python", "agnt.py"]}, "there is no file"),
        ({"command": ["python", "inner.py"], "folder": "desk"}, ""),
        ({"command": ["python", "-c", "print(1)"]}, ""),
        ({"command": ["python", "{text}.py"]}, ""),
        ({"command": ["nothere", "/app/agent.py"], "image": "agents"}, ""),
        ({"command": None, "python": "nothere.py:answer"}, "there is no file"),
        ({"command": None, "python": "desk/inner.py:answer"}, "no function 'answer'"),
        ({"command": None, "python": "desk.nothere:answer"}, "there is no module 'desk.nothere'"),
        ({"command": None, "python": "desk/inner.py:chat"}, ""),
        ({"command": None, "python": "desk.inner:chat"}, ""),
        ({}, ""),
    ],
)
def test_what_is_not_there_is_told(settings: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = write_agent(tmp_path, SORTER)
    (tmp_path / "desk").mkdir()
    (tmp_path / "desk/inner.py").write_text(SORTER)
    spec = json.loads(path.read_text())
    spec["nodes"]["agent"] |= settings
    path.write_text(json.dumps(spec))
    found = CliRunner().invoke(cli, ["validate", str(path), "--deep"])
    assert (said in found.output) if said else ("missing_server" not in found.output), found.output
    assert bool(found.exit_code) == bool(said), found.output
