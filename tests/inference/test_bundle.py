"""`workbench export --format bundle`: a folder that runs on another machine, where nothing of the first one is."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.helpers.lm_faults import ChatServer

import workbench
from workbench.cli import cli
from workbench.errors import SpecError
from workbench.inference import LOCK, bundle_file
from workbench.run import Options, optimize
from workbench.store import Store

WEIGHTS = Path(__file__).parents[2] / "plugins" / "standard" / "workbench_nano" / "weights"
TOOLS = """
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import helper
import inner.deep
import httpx

def look(text: str) -> str:
    corpus = (Path(__file__).parent / "corpus.txt").read_text()
    return helper.twice(text) + inner.deep.MARK + corpus + os.environ.get("LOOK_SUFFIX", "")
"""


def write(folder: Path, **changes: Any) -> Path:
    """A workflow that names a bit of everything."""
    home = folder / "home"
    (home / "inner").mkdir(parents=True)
    (home / "tools.py").write_text(TOOLS)
    (home / "helper.py").write_text("def twice(text):\n    return text + text\n")
    (home / "inner" / "__init__.py").write_text("")
    (home / "inner" / "deep.py").write_text("MARK = '!'\n")
    (home / "corpus.txt").write_text("corpus")
    (home / "unused.py").write_text("")
    (home / "up.py").write_text("def up(found: str) -> str:\n    return found.upper()\n")
    (home / "more").mkdir()
    (home / "more" / "end.py").write_text("def end(upper: str) -> str:\n    return upper + '.'\n")
    sub = {"data": {"file": "gone.jsonl"}, "nodes": {"e": {"tool": "python:end.py:end", "output": "ended"}}}
    (home / "more" / "sub.yaml").write_text(yaml.safe_dump(sub))
    (home / "rows.jsonl").write_text('{"text": "secret row"}\n')
    nodes = {
        "look": {"tool": "python:tools.py:look", "output": "found"},
        "up": {"tool": "python:up.py:up", "output": "upper"},
        "more": {"workflow": "more/sub.yaml"},
    }
    spec = {
        "name": "My winner",
        "data": {"file": "rows.jsonl"},
        "metric": "python:metric.py:score",
        "budget": {"calls": 5},
        "timeout": 20,
        "nodes": nodes,
        **changes,
    }
    (home / "winner.yaml").write_text(yaml.safe_dump(spec))
    return home / "winner.yaml"


def export(*words: object) -> Result:
    return CliRunner().invoke(cli, ["export", *map(str, words)])


def moved(folder: Path, bundle: Path) -> Path:
    """The bundle in another place; what it was made of is gone."""
    away = folder / "away" / "bundle"
    away.parent.mkdir()
    shutil.move(bundle, away)
    shutil.rmtree(folder / "home")
    return away


def run(folder: Path, *words: str, cwd: Path) -> str:
    env = {**os.environ, "WORKBENCH_TRUST": str(folder), "LOOK_SUFFIX": "?"}
    command = [sys.executable, "-m", "workbench", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_friction_2_a_moved_bundle_runs_where_nothing_else_is(tmp_path: Path) -> None:
    done = export(write(tmp_path), "--format", "bundle", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    away = moved(tmp_path, tmp_path / "out")
    found = run(tmp_path, "run", "winner.yaml", "--input", "text=ab", "--json", cwd=away)
    assert json.loads(found.splitlines()[-1])["prediction"]["ended"] == "ABAB!CORPUS?."
    (away / "in.jsonl").write_text('{"text": "x"}\n')
    run(tmp_path, "predict", "winner.yaml", "in.jsonl", "--out", "out.jsonl", cwd=away)
    assert json.loads((away / "out.jsonl").read_text())["ended"] == "XX!CORPUS?."
    with workbench.load(away / "winner.yaml") as wf:  # from another folder
        assert wf(text="y").ended.startswith("YY!CORPUS")


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


OWN = ["corpus.txt", "helper.py", "inner/__init__.py", "inner/deep.py", "more/end.py", "more/sub.yaml"]
OWN = sorted([*OWN, LOCK, "rows.jsonl", "tools.py", "unused.py", "up.py", "winner.yaml"])


def test_outside_git_a_bundle_has_the_folder_without_what_is_hidden_installed_or_of_runs(tmp_path: Path) -> None:
    path = write(tmp_path)
    home = path.parent
    for name in (".env", ".git2/config", "inner/__pycache__/deep.pyc", "venv/lib/x.py"):
        (home / name).parent.mkdir(exist_ok=True, parents=True)
        (home / name).write_text("private")
    (tmp_path / "key.pem").write_text("private")
    (home / "link.txt").symlink_to(tmp_path / "key.pem")
    (home / "away").symlink_to(tmp_path)
    Store(home / "mine.db").close()
    (home / "mine.db-run.lock").write_text("private")
    assert bundle_file(path, tmp_path / "out") == tmp_path / "out" / "winner.yaml" and files(tmp_path / "out") == OWN
    spec = yaml.safe_load((tmp_path / "out" / "winner.yaml").read_text())
    assert list(spec) == ["name", "nodes", "timeout"] and spec["timeout"] == 20
    lines = (tmp_path / "out" / LOCK).read_text().splitlines()
    assert f"httpx=={importlib.metadata.version('httpx')}" in lines and lines == sorted({*lines})


def test_in_a_repository_a_bundle_has_what_git_tracks_and_what_the_workflow_names(tmp_path: Path) -> None:
    """The workflow names a file outside its folder, which moves the root of the bundle, and one that git ignores."""
    repo = tmp_path / "home"
    write(tmp_path).rename(repo / "more" / "winner.yaml")
    flow = repo / "more" / "winner.yaml"
    nodes = {
        "look": {"tool": "python:../tools.py:look", "output": "found"},
        "far": {"search": "ignored.jsonl", "query": "text"},
    }
    flow.write_text(yaml.safe_dump({"nodes": nodes}))
    (repo / "more" / "ignored.jsonl").write_text('{"id": "1", "text": "about ab"}\n')
    (repo / ".gitignore").write_text("*.jsonl\n")
    (repo / "secret.txt").write_text("private")
    for words in (["init", "-q"], ["add", "-A"], ["rm", "-q", "--cached", "secret.txt"]):
        subprocess.run(["git", *words], cwd=repo, check=True)
    bundle_file(flow, tmp_path / "out")
    named = {".gitignore", "more/winner.yaml", "more/ignored.jsonl"}
    assert {*files(tmp_path / "out")} == {*OWN} - {"rows.jsonl", "winner.yaml"} | named
    with workbench.load(flow) as wf:
        before = wf(text="ab")
    away = moved(tmp_path, tmp_path / "out")
    with workbench.load(away / "more" / "winner.yaml") as wf:
        after = wf(text="ab")
    assert before.found == after.found == "abab!corpus" and before.documents == after.documents != []


def test_a_strangers_workflow_is_asked_about_before_what_it_names_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_TRUST", "")
    (tmp_path / "key.pem").write_text("private")
    path = tmp_path / "strange" / "w.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump({"lm": "bundled/nano", "nodes": {"n": {"search": "../key.pem"}}}))
    refused = export(path, "--format", "bundle", "--out", tmp_path / "out")
    assert isinstance(refused.exception, SpecError) and "key.pem" in str(refused.exception)
    assert not (tmp_path / "out").exists()


def test_no_code_is_run_to_make_a_bundle(tmp_path: Path) -> None:
    path = write(tmp_path)
    (path.parent / "tools.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n" + TOOLS)
    bundle_file(path, tmp_path / "out")
    assert not (tmp_path / "ran").exists()


def test_the_winner_of_a_run_is_bundled_with_its_weights(tmp_path: Path) -> None:
    """Its weights lie in a folder with an absolute path, as training leaves them."""
    shutil.copytree(WEIGHTS, tmp_path / "home" / "trained")
    (tmp_path / "home" / "trained" / ".env").write_text("KEY=secret")
    (tmp_path / "home" / "rows.jsonl").write_text("".join(f'{{"text": "t{i}", "answer": "a{i}"}}\n' for i in range(30)))
    spec = {
        "lm": {"model": "bundled/nano", "extra": {"path": str(tmp_path / "home" / "trained")}},
        "data": {"file": "rows.jsonl"},
        "metric": "exact_match(answer)",
        "nodes": {"n": {"predict": "text -> answer"}},
        "optimize": [{"random": {"trials": 1}}],
        "search": {"nodes.n.instructions": ["One word.", "Two words."]},
        "budget": {"calls": 60},
    }
    path = tmp_path / "home" / "w.yaml"
    path.write_text(yaml.safe_dump(spec))
    database = tmp_path / "run.db"
    optimize(path, database=database, options=Options(out=str(tmp_path / "home" / "out.yaml")))
    written = yaml.safe_load((tmp_path / "home" / "out.yaml").read_text())
    assert written["lm"]["extra"]["path"] == "./trained", "friction 54: a result names weights beside it by their place"
    done = export("last", "--db", database, "--format", "bundle", "--out", tmp_path / "out")
    assert done.exit_code == 0, (done.output, done.exception)
    with workbench.load(path) as wf:
        before = wf(text="where is my parcel").answer
    away = moved(tmp_path, tmp_path / "out")
    assert yaml.safe_load((away / "w.yaml").read_text())["lm"]["extra"]["path"] == "./trained"
    assert not list(away.rglob(".env")), "hidden files of a folder stay at home"
    with workbench.load(away / "w.yaml") as wf:
        assert wf(text="where is my parcel").answer == before


def test_friction_54_a_moved_folder_keeps_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    shutil.copytree(WEIGHTS, home / "trained")
    (home / "trained" / "mark").write_text("other weights")  # so that its identity differs from the bundled one's
    nodes = {"n": {"predict": "text -> answer", "lm": {"model": "bundled/nano", "extra": {"path": "trained"}}}}
    extra = {"path": "./trained"}
    (home / "w.yaml").write_text(yaml.safe_dump({"lm": {"model": "bundled/nano", "extra": extra}, "nodes": nodes}))
    shutil.move(home, tmp_path / "moved")
    monkeypatch.chdir(tmp_path)
    with workbench.load("moved/w.yaml") as wf:
        assert wf.spec.lm.extra["path"] == str(tmp_path / "moved" / "trained")
        assert wf.workflow.nodes["n"]["lm"]["extra"]["path"] == str(tmp_path / "moved" / "trained")
        assert wf(text="x").ok
    absolute = {"lm": {"model": "bundled/nano", "extra": {"path": str(tmp_path / "moved" / "trained")}}}
    (tmp_path / "old.yaml").write_text(yaml.safe_dump({**absolute, "nodes": {"n": {"predict": "text -> answer"}}}))
    with workbench.load("old.yaml") as wf:
        assert wf(text="x").ok, "absolute paths still work"


def test_what_another_machine_does_not_have_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "far.yaml").write_text(yaml.safe_dump({"nodes": {"n": {"predict": "text -> answer"}}}))
    path = write(tmp_path)
    lost = {"model": "bundled/nano", "extra": {"path": "/no/such/weights"}}
    (path.parent / ".keys.jsonl").write_text('{"text": "private"}\n')
    near = str(path.parent / "up.py")
    for change, said in (
        ({"nodes": {"n": {"workflow": str(tmp_path / "far.yaml")}}}, r"far\.yaml, which lies outside .*home"),
        ({"nodes": {"n": {"workflow": "../far.yaml"}}}, r"far\.yaml, which lies outside .*home"),
        ({"nodes": {"n": {"tool": f"python:{near}:up", "output": "x"}}}, r"up\.py, which lies outside .*out"),
        ({"lm": lost, "nodes": {"n": {"predict": "text -> answer"}}}, "/no/such/weights, which is missing"),
        ({"nodes": {"n": {"tool": "python:none.py:look", "output": "found"}}}, r"none\.py"),
        ({"nodes": {"n": {"search": ".keys.jsonl", "query": "text"}}}, r"\.keys\.jsonl is hidden"),
    ):
        path.write_text(yaml.safe_dump(change))
        with pytest.raises(SpecError, match=said):
            bundle_file(path, tmp_path / "out")
        assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_folder_with_files_is_not_written_into(tmp_path: Path) -> None:
    path = write(tmp_path)
    with pytest.raises(SpecError, match="exists and is not empty"):
        bundle_file(path, tmp_path / "home")
    assert "name it with --out" in export(path, "--format", "bundle").output
    assert export(path, "--format", "bundle", "--out", tmp_path / "c").exit_code == 0


@pytest.mark.slow
def test_a_bundle_is_served_in_another_place(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    import httpx

    bundle_file(write(tmp_path), tmp_path / "out")
    away = moved(tmp_path, tmp_path / "out")
    env = {**os.environ, "WORKBENCH_TRUST": str(tmp_path)}
    command = [sys.executable, "-m", "workbench", "serve", str(away / "winner.yaml"), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stderr is not None
        try:
            address = process.stderr.readline().split()[-1]
            found = httpx.post(f"{address}/predict", json={"text": "ab"}, timeout=60).json()
            assert found["outputs"]["ended"].startswith("ABAB!CORPUS")
        finally:
            process.terminate()


def test_the_result_file_keeps_the_timeout(tmp_path: Path) -> None:
    with ChatServer("ok") as server:
        rows = "".join(f'{{"text": "t{i}", "answer": "a{i}"}}\n' for i in range(18))
        (tmp_path / "rows.jsonl").write_text(rows)
        spec = {
            "lm": {"model": "openai/x", "api_base": server.base},
            "data": {"file": "rows.jsonl"},
            "metric": "exact_match(answer)",
            "nodes": {"n": {"predict": "text -> answer"}},
            "optimize": [{"random": {"trials": 1}}],
            "search": {"nodes.n.instructions": ["One word."]},
            "timeout": 33,
        }
        (tmp_path / "w.yaml").write_text(yaml.safe_dump(spec))
        optimize(tmp_path / "w.yaml", database=tmp_path / "run.db", options=Options(out=str(tmp_path / "out.yaml")))
    assert yaml.safe_load((tmp_path / "out.yaml").read_text())["timeout"] == 33
