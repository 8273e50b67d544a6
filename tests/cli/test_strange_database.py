"""Looking at somebody else's run database: it runs none of their code, and `resume` writes nowhere unasked."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.helpers.stored_runs import change, restore_of_a_stranger

from workbench.cli import cli
from workbench.errors import SpecError, StoreError
from workbench.spec import load_user_code
from workbench.workflow import Workflow

LOOKS = [
    ["show"],
    ["show", "--failures"],
    ["show", "--failures", "--json"],
    ["show", "--calls", "3"],
    ["show", "--mermaid"],
    ["show", "--tree"],
    ["show", "workflow.yaml", "--mermaid"],
    ["export"],
    ["export", "--out", "exported.yaml"],
    ["runs", "list"],
    ["runs", "list", "--json"],
    ["diff"],
    ["compare", "last"],
]


def invoke(*words: str) -> Result:
    return CliRunner().invoke(cli, [*words, "--db", "run.db"])


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a database whose run names `workflow.yaml` beside it, and there Python that leaves a mark. The
    current folder."""
    restore_of_a_stranger(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.fault("foreign-code")
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
    assert failures and all(f["inputs"]["question"].startswith("val ") for f in failures)


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
    assert make_node("gather", tree, evil, "unread").inputs == ()
    assert make_node("gather", tree, evil, "outlined").inputs == ("numbers",)
    assert not (evil / "RAN").exists()
    assert make_node("gather", tree, evil, "loaded").inputs == ("numbers",)
    assert (evil / "RAN").exists()


def test_an_environment_is_not_opened(evil: Path) -> None:
    """One of the kind `gym` imports the module that its settings name."""
    tree = {"kind": "tree_search", "environment": "gym", "settings": {"id": "adding:World-v0"}}
    assert Workflow({"nodes": {"search": tree}}, evil).graph.number_of_nodes() == 1
    assert not (evil / "RAN").exists()


# What resume writes


@pytest.mark.parametrize("keep", ["precious.rc", "optimized.unproved.yaml"])
def test_resume_writes_over_nothing_that_the_run_did_not_write(evil: Path, keep: str) -> None:
    (evil / keep).write_text("precious")
    out = keep if keep.endswith("rc") else "optimized.yaml"
    change(evil, "update runs set options = json_set(options, '$.out', ?)", out)
    change(evil, "update artifacts set path = ?", str(evil / keep))
    refused = invoke("resume")
    assert isinstance(refused.exception, StoreError)
    assert f"over {evil / keep}, which no run of it wrote" in str(refused.exception)
    assert "--overwrite" in str(refused.exception)
    assert (evil / keep).read_text() == "precious" and not (evil / "RAN").exists()


@pytest.mark.fault("foreign-paths")
@pytest.mark.parametrize("out", ["../stolen.yaml", "/etc/workbench-stolen.yaml", "sub/../../stolen.yaml"])
def test_resume_writes_nowhere_else(evil: Path, out: str) -> None:
    change(evil, "update runs set options = json_set(options, '$.out', ?)", out)
    refused = invoke("resume")
    assert isinstance(refused.exception, StoreError) and "outside this folder" in str(refused.exception)
    assert "--out " in str(refused.exception) and not (evil / "RAN").exists()


@pytest.mark.fault("foreign-paths")
def test_resume_does_not_follow_a_link_out_of_the_folder(evil: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (evil / "out.yaml").symlink_to(tmp_path_factory.mktemp("elsewhere") / "new.yaml")
    change(evil, "update runs set options = json_set(options, '$.out', 'out.yaml')")
    assert "outside this folder" in str(invoke("resume").exception)


def test_resume_writes_again_what_the_run_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.helpers.stored_runs import StoredLM, write

    from workbench.run import Options, optimize, resume

    monkeypatch.chdir(tmp_path)
    file = write("bootstrap", tmp_path)
    optimize(file, options=Options(out="best.yaml"), database="run.db", pool=StoredLM())
    assert resume("last", database="run.db", pool=StoredLM(dead=True)).status == "finished"
    first = (tmp_path / "best.yaml").read_text()
    optimize(file, options=Options([("seed", 7)], out="best.yaml"), database="run.db", pool=StoredLM())
    assert (tmp_path / "best.yaml").read_text() != first
    (tmp_path / "best.yaml").write_text(first)
    assert resume("last", database="run.db", pool=StoredLM()).status == "finished", "over the result of the first run"
    (tmp_path / "best.yaml").write_text((tmp_path / "best.yaml").read_text() + "# mine\n")
    with pytest.raises(StoreError, match="which no run of it wrote"):
        resume("last", database="run.db", pool=StoredLM(dead=True))
    named = Options(overwrite=True)
    assert resume("last", database="run.db", pool=StoredLM(dead=True), options=named).status == "finished"


def test_new_files_are_private_and_others_keep_their_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.helpers.stored_runs import StoredLM, write

    from workbench.run import Options, optimize

    monkeypatch.chdir(tmp_path)
    before = os.umask(0)
    try:
        (tmp_path / "kept.yaml").write_text("mine")
        (tmp_path / "kept.yaml").chmod(0o664)
        file = write("bootstrap", tmp_path)
        for out in ("new.yaml", "kept.yaml"):
            optimize(file, options=Options(out=out, overwrite=True), database=tmp_path / "made.db", pool=StoredLM())
    finally:
        os.umask(before)
    modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("made.db", "new.yaml", "kept.yaml")}
    assert modes == {"made.db": 0o600, "new.yaml": 0o600, "kept.yaml": 0o664}
