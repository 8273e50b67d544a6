"""A firewall before the model blocks one row: through the real client and the command line (contact.md R10)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.helpers.said import Asked, Reply, billed, saying

from workbench.cli import cli

PAGE = b"<html><head><title>Access denied</title></head><body>Your request looks like an attack.</body></html>"


@dataclass
class Firewall:
    """Answers 403 with a page where the prompt holds SQL, or to everything; else it lets the model answer."""

    closed: bool = False

    def reply(self, asked: Asked) -> Any:
        blocked = self.closed or "SELECT" in str(asked.body)
        return Reply(PAGE, 403, {"Content-Type": "text/html"}) if blocked else billed("label: yes")


@pytest.fixture
def firewall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Firewall]:
    monkeypatch.chdir(tmp_path)
    wall = Firewall()
    with saying(wall.reply) as server:
        rows = [{"text": "DROP it; SELECT 1" if n == 2 else f"row {n}", "label": "yes"} for n in range(6)]
        Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        spec = {
            "name": "t",
            "lm": {"model": "openai/m", "api_base": server.base, "attempts": 2},
            "data": {"file": "rows.jsonl", "split": {"train": 2, "val": 2, "test": 2}},
            "metric": "exact_match(label)",
            "nodes": {"sort": {"predict": "text -> label"}},
        }
        Path("w.yaml").write_text(json.dumps(spec))
        yield wall


def test_r10_one_blocked_row_has_no_result_and_the_run_goes_on(firewall: Firewall) -> None:
    done = CliRunner().invoke(cli, ["eval", "w.yaml", "--split", "all"])
    assert done.exit_code == 1 and "all: 1.000 [" in done.stdout
    assert "on 5 of 6 rows; 1 row has no result (blocked 1)" in done.stdout, done.output


def test_r10_where_every_row_is_blocked_the_page_is_quoted(firewall: Firewall) -> None:
    firewall.closed = True
    done = CliRunner().invoke(cli, ["eval", "w.yaml", "--split", "all"])
    told = f"{done.exception}{done.output}"
    assert done.exit_code == 1 and "none of the 6 rows was answered" in told and "Access denied" in told, told
