"""Looking at somebody else's run database: it runs none of their code, and `resume` writes nowhere unasked."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.helpers.stored_runs import restore

from workbench.cli import cli
from workbench.errors import SpecError
from workbench.user_code import CodeRefused, load_user_code, without_user_code

PAYLOAD = "open('RAN', 'w').close()\ndef add(numbers: list[int]) -> int:\n    return sum(numbers)\nscore = add\n"
LOOKS = [
    ["show"],
    ["show", "--failures"],
    ["show", "--failures", "--json"],
    ["show", "--calls", "3"],
    ["show", "--mermaid"],
    ["show", "--tree"],
    ["export"],
    ["export", "--out", "exported.yaml"],
    ["runs"],
    ["runs", "--json"],
    ["diff"],
    ["compare", "last"],
]


def invoke(*words: str) -> Result:
    return CliRunner().invoke(cli, [*words, "--db", "run.db"])


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a database whose run names `workflow.yaml` beside it, and there Python that leaves a mark. The
    current folder."""
    restore("tools", tmp_path)
    (tmp_path / "adding.py").write_text(PAYLOAD)
    change(tmp_path, "update runs set file = 'workflow.yaml'")
    change(tmp_path, "update runs set spec = replace(spec, 'numeric(answer)', 'python:adding.py:score')")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def change(folder: Path, sql: str, *values: Any) -> None:
    database = sqlite3.connect(folder / "run.db", isolation_level=None)
    database.execute(sql, values)
    database.close()


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_looking_runs_no_code(evil: Path, words: list[str]) -> None:
    done = invoke(*words)
    assert done.exit_code == 0, done.exception
    assert not (evil / "RAN").exists()


def test_the_payload_would_leave_its_mark(evil: Path) -> None:
    load_user_code("python:adding.py:add", evil)
    assert (evil / "RAN").exists()


def test_a_drawing_shows_what_the_tree_says(evil: Path) -> None:
    drawn = invoke("show", "--mermaid").output
    assert "gather: tool" in drawn and "solve: agent" in drawn and '-->|"question"|' in drawn


def test_failed_rows_are_shown_with_their_inputs(evil: Path) -> None:
    change(evil, "update results set score = 0")
    failures = json.loads(invoke("show", "--failures", "--json").output)["failures"]
    assert failures and all(f["inputs"]["question"].startswith("test ") for f in failures)


def test_what_is_exported_is_a_whole_file(evil: Path) -> None:
    written = yaml.safe_load(invoke("export").output)
    assert written["metric"] == "python:adding.py:score" and set(written["nodes"]) == {"gather", "solve"}
    assert written["nodes"]["gather"]["tool"] == "python:adding.py:add"
    assert set(written["search"]) == {"nodes.solve.instructions", "nodes.solve.max_steps"}


def test_an_exporter_that_needs_code_asks_for_the_flag(evil: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.plugins import plugins

    def exporter(workflow: Any, path: Path | None, *, task: Any) -> None:
        (evil / "made").write_text(task.spec.name)

    exporter.needs_task = True  # type: ignore[attr-defined]
    real = plugins().get
    monkeypatch.setattr(
        type(plugins()), "get", lambda self, kind, name: exporter if kind == "exporters" else real(kind, name)
    )
    refused = invoke("export", "--format", "x", "--out", "made")
    assert isinstance(refused.exception, SpecError) and "--run-code" in str(refused.exception)
    assert not (evil / "RAN").exists() and not (evil / "made").exists()
    assert invoke("export", "--format", "x", "--out", "made", "--run-code").exit_code == 0
    assert (evil / "RAN").exists() and (evil / "made").exists()


def test_outlines_do_not_outlive_the_look(evil: Path) -> None:
    """Nodes are shared by their settings: one without its code must not be run later."""
    from workbench.workflow import make_node

    tree = {"kind": "tool", "tool": "python:adding.py:add", "output": "three"}
    with without_user_code(outlines=True):
        assert make_node("gather", tree, evil).inputs == ()
    with without_user_code(), pytest.raises(CodeRefused, match="looking at a run does not run its code"):
        make_node("gather", tree, evil)
    assert make_node("gather", tree, evil).inputs == ("numbers",)


def test_an_environment_is_not_opened(evil: Path) -> None:
    from workbench.kit.environment import open_environment

    with without_user_code(), pytest.raises(CodeRefused):
        open_environment("gym", {"id": "adding:World-v0"}, evil)
