"""Logs of files that say that they passed have no culprit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from workbench.cli import cli


def log(extra: dict[str, Any]) -> dict[str, Any]:
    steps = [{"source": "user", "message": "2 + 2?"}, {"source": "agent", "message": "It is 5."}]
    return {"schema_version": "ATIF-v1.7", "agent": {"name": "adder"}, "steps": steps, "extra": extra}


def attribute(folder: Path, *logs: dict[str, Any]) -> Any:
    file = folder / "logs.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in logs))
    command = ["agent", "attribute", str(file), "--method", "lexical", "--json", "--db", str(folder / "a.db")]
    return CliRunner().invoke(cli, command)


@pytest.mark.parametrize("passed", [{"score": 1.0}, {"reward": 1}])
def test_a_log_that_passed_is_left_out_and_told(passed: dict[str, Any], tmp_path: Path) -> None:
    done = attribute(tmp_path, log(passed), log({"score": 0.0}), log({}), log({"score": 0.5}))
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["logs"]) == 3
    assert "1 of 4 logs passed, by their scores, and are left out." in done.stderr


def test_logs_that_all_passed_are_refused(tmp_path: Path) -> None:
    done = attribute(tmp_path, log({"score": 1.0}))
    assert "no log failed, by the scores in it" in str(done.exception)
