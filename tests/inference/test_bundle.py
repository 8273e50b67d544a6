"""`workbench export --format bundle`: a folder that runs on another machine, where nothing of the first one is."""

from __future__ import annotations

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
from workbench.inference import bundle_file
from workbench.inference.bundle_files import Collector
from workbench.run import Options, optimize

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
    (folder / "shared").mkdir()
    (home / "tools.py").write_text(TOOLS)
    (home / "helper.py").write_text("def twice(text):\n    return text + text\n")
    (home / "inner" / "__init__.py").write_text("")
    (home / "inner" / "deep.py").write_text("MARK = '!'\n")
    (home / "corpus.txt").write_text("corpus")
    (home / "unused.py").write_text("")
    (folder / "shared" / "up.py").write_text("def up(found: str) -> str:\n    return found.upper()\n")
    (home / "more").mkdir()
    (home / "more" / "end.py").write_text("def end(upper: str) -> str:\n    return upper + '.'\n")
    sub = {"data": {"file": "gone.jsonl"}, "nodes": {"e": {"tool": "python:end.py:end", "output": "ended"}}}
    (home / "more" / "sub.yaml").write_text(yaml.safe_dump(sub))
    (home / "rows.jsonl").write_text('{"text": "secret row"}\n')
    nodes = {
        "look": {"tool": "python:tools.py:look", "output": "found"},
        "up": {"tool": "python:../shared/up.py:up", "output": "upper"},
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
    return CliRunner().invoke(cli, ["export", "--carry", *map(str, words)])


def moved(folder: Path, bundle: Path) -> Path:
    """The bundle in another place; what it was made of is gone."""
    away = folder / "away" / "bundle"
    away.parent.mkdir()
    shutil.move(bundle, away)
    for rest in (folder / "home", folder / "shared"):
        shutil.rmtree(rest, ignore_errors=True)
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
    found = run(tmp_path, "run", "workflow.yaml", "--input", "text=ab", "--json", cwd=away)
    assert json.loads(found.splitlines()[-1])["prediction"]["ended"] == "ABAB!CORPUS?."
    (away / "in.jsonl").write_text('{"text": "x"}\n')
    run(tmp_path, "predict", "workflow.yaml", "in.jsonl", "--out", "out.jsonl", cwd=away)
    assert json.loads((away / "out.jsonl").read_text())["ended"] == "XX!CORPUS?."
    with workbench.load(away / "workflow.yaml") as wf:  # from another folder
        assert wf(text="y").ended.startswith("YY!CORPUS")


@pytest.mark.slow
def test_a_bundle_has_what_is_named_and_nothing_else(tmp_path: Path) -> None:
    made = bundle_file(write(tmp_path), tmp_path / "out")
    assert made.files == (
        "Dockerfile",
        "README.md",
        "corpus.txt",
        "helper.py",
        "inner/__init__.py",
        "inner/deep.py",
        "more/end.py",
        "more/sub.yaml",
        "outside/shared/up.py",
        "requirements.txt",
        "tools.py",
        "workflow.yaml",
    )
    spec = yaml.safe_load((tmp_path / "out" / "workflow.yaml").read_text())
    assert list(spec) == ["name", "nodes", "timeout"] and spec["timeout"] == 20
    assert spec["nodes"]["up"]["tool"] == "python:outside/shared/up.py:up"
    assert list(yaml.safe_load((tmp_path / "out" / "more" / "sub.yaml").read_text())) == ["nodes"]
    lines = (tmp_path / "out" / "requirements.txt").read_text().splitlines()
    assert lines[0] == f"agent-optimization-workbench[serve]=={workbench.__version__}"
    assert [line.partition("==")[0] for line in lines[1:]] == ["httpx"]
    assert made.variables == ("LOOK_SUFFIX",) and "LOOK_SUFFIX" in (tmp_path / "out" / "README.md").read_text()


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


#: What rows and models say, in each place where their words stand.
SAID: dict[str, dict[str, Any]] = {
    "demos": {"predict": "text -> answer", "demos": [{"text": "a", "answer": ".env"}]},
    "a demo like a node": {"predict": "text -> answer", "demos": [{"text": {"search": "rows.jsonl"}, "answer": "b"}]},
    "a demo like a model": {"predict": "text -> answer", "demos": [{"text": "a", "answer": "b", "lm": "hf:./keys"}]},
    "instructions": {"predict": "text -> answer", "instructions": "rows.jsonl"},
    "descriptions": {"predict": "text -> answer", "descriptions": {"answer": "keys/prod.pem"}},
    "entries": {"recall": "text -> found", "entries": [{"text": ".env"}]},
    "demos of an agent": {"agent": "text -> answer", "tools": [], "demos": [{"text": "a", "answer": "keys/prod.pem"}]},
    "normal form": {"kind": "predict", "signature": "text -> answer", "instructions": "keys/prod.pem"},
    "inside": {"ensemble": {"predict": "text -> answer", "instructions": ".env"}},
}


@pytest.mark.parametrize("where", SAID)
def test_finding_6_a_bundle_carries_no_file_that_a_row_or_a_model_merely_says(tmp_path: Path, where: str) -> None:
    (tmp_path / "keys").mkdir()
    for name in (".env", "keys/prod.pem", "rows.jsonl"):
        (tmp_path / name).write_text('{"id": "1", "text": "private"}\n')
    collector = Collector(tmp_path)
    assert collector.rewrite({"nodes": {"n": SAID[where]}}, tmp_path, "") == {"nodes": {"n": SAID[where]}}
    assert not collector.found.copies and not collector.found.texts


def test_finding_6_files_that_are_no_program_are_asked_about_and_each_is_listed(tmp_path: Path) -> None:
    (tmp_path / ".hidden.py").write_text("def f(text): return text\n")
    (tmp_path / "corpus.jsonl").write_text('{"id": "1", "text": "private"}\n')
    (tmp_path / "link.txt").symlink_to("/etc/hostname")
    nodes = {"a": {"search": "corpus.jsonl"}, "b": {"tool": "python:.hidden.py:f"}}
    path = tmp_path / "w.yaml"
    path.write_text(yaml.safe_dump({"lm": "bundled/nano", "nodes": nodes}))
    refused = CliRunner().invoke(cli, ["export", str(path), "--format", "bundle", "--out", str(tmp_path / "out")])
    assert isinstance(refused.exception, SpecError) and not (tmp_path / "out").exists()
    assert ".hidden.py" in str(refused.exception) and "corpus.jsonl" in str(refused.exception)
    done = export(path, "--format", "bundle", "--out", tmp_path / "out")
    assert done.exit_code == 0 and ".hidden.py" in done.output and "corpus.jsonl" in done.output


def test_finding_6_a_folder_is_carried_without_links_that_lead_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "key.pem").write_text("private")
    (tmp_path / "agent" / "main.py").write_text("print('x')\n")
    (tmp_path / "agent" / "notes.txt").symlink_to(tmp_path / "key.pem")
    node = {"external": "text -> answer", "command": ["python", "main.py"], "folder": "agent"}
    (tmp_path / "w.yaml").write_text(yaml.safe_dump({"lm": "bundled/nano", "nodes": {"n": node}}))
    made = bundle_file(tmp_path / "w.yaml", tmp_path / "out")
    assert "agent/main.py" in made.files and "agent/notes.txt" not in made.files


@pytest.mark.parametrize(
    "change",
    [
        {"url": "http://bob:pw@x.org/"},
        {"url": "http://x.org/?key=abc"},
        {"command": ["a"], "env": {"T": "sk-proj-123"}},
        {"command": ["a", "sk-proj-123"]},
        {"command": ["a", "--api-key", "abc"]},
        {"command": ["sh", "-c", "TOKEN=abc a --token=abc"]},
        {"mcp": "a --token abc#t"},
    ],
)
def test_finding_6_keys_of_agents_are_not_handed_on(tmp_path: Path, change: dict[str, Any]) -> None:
    node = {"external": "text -> answer", **change}
    (tmp_path / "w.yaml").write_text(yaml.safe_dump({"lm": "bundled/nano", "nodes": {"n": node}}))
    with pytest.raises(SpecError, match="a bundle is passed on"):
        bundle_file(tmp_path / "w.yaml", tmp_path / "out")


def test_finding_6_words_of_a_command_that_are_no_keys_are_handed_on(tmp_path: Path) -> None:
    words = [
        "a",
        "--token-limit",
        "5",
        "--model=gpt-4o-mini-2024-07-18",
        "$KEY",
        "--api-key",
        "$KEY",
        "-p",
        "The key is {q}.",
    ]
    node = {"external": "q -> answer", "command": words}
    (tmp_path / "w.yaml").write_text(yaml.safe_dump({"lm": "bundled/nano", "nodes": {"n": node}}))
    made = bundle_file(tmp_path / "w.yaml", tmp_path / "out")
    assert yaml.safe_load((made.folder / "workflow.yaml").read_text())["nodes"]["n"]["command"] == words


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
    assert yaml.safe_load((away / "workflow.yaml").read_text())["lm"]["extra"]["path"] == "./weights/trained"
    assert not list(away.rglob(".env")), "hidden files of a folder stay at home"
    with workbench.load(away / "workflow.yaml") as wf:
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
    path = write(tmp_path, nodes={"n": {"workflow": str(tmp_path / "far.yaml")}})
    with pytest.raises(SpecError, match=r"far\.yaml is an absolute path outside"):
        bundle_file(path, tmp_path / "out")
    lost = {"model": "bundled/nano", "extra": {"path": "/no/such/weights"}}
    path.write_text(yaml.safe_dump({"lm": lost, "nodes": {"n": {"predict": "text -> answer"}}}))
    with pytest.raises(SpecError, match="no weights in /no/such/weights"):
        bundle_file(path, tmp_path / "out")
    path.write_text(yaml.safe_dump({"nodes": {"n": {"tool": "python:none.py:look", "output": "found"}}}))
    with pytest.raises(SpecError, match=r"no file .*none\.py"):
        bundle_file(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_folder_with_files_is_not_written_into(tmp_path: Path) -> None:
    path = write(tmp_path)
    with pytest.raises(SpecError, match="exists and is not empty"):
        bundle_file(path, tmp_path / "home")
    assert "name it with --out" in export(path, "--format", "bundle").output
    assert export(path, "--format", "bundle", "--out", tmp_path / "c").exit_code == 0


def test_keys_servers_and_mcp_servers_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "home" / "scripts").mkdir(parents=True)
    (tmp_path / "home" / "scripts" / "server.py").write_text("import os\nKEY = os.environ['SERVER_KEY']\n")
    nodes = {
        "a": {"agent": "text -> found", "tools": ["mcp:python scripts/server.py --fast#search"]},
        "b": {"predict": "found -> answer", "lm": {"model": "openai/x", "api_base": "http://127.0.0.1:1/v1"}},
        "c": {
            "predict": "answer -> end",
            "lm": {"model": "openai/y", "api_base": "https://x.org", "api_key_env": "X"},
        },
    }
    roles = {"proposer": {"model": "openai/z", "api_key_env": "NOT_NEEDED"}}
    path = tmp_path / "home" / "w.yaml"
    path.write_text(yaml.safe_dump({"lm": "openai/gpt-4.1-mini", "roles": roles, "nodes": nodes}))
    made = bundle_file(path, tmp_path / "out")
    assert made.variables == ("OPENAI_API_KEY", "SERVER_KEY", "X") and "scripts/server.py" in made.files
    assert any("127.0.0.1" in note and "lm.api_base" in note for note in made.notes)
    assert "[mcp,serve]" in (tmp_path / "out" / "requirements.txt").read_text()
    text = (tmp_path / "out" / "workflow.yaml").read_text()
    assert "mcp:python scripts/server.py --fast#search" in text and "proposer" not in text
    docker = (tmp_path / "out" / "Dockerfile").read_text()
    assert '"serve", "workflow.yaml", "--host", "0.0.0.0"' in docker and "no-auth" not in docker


@pytest.mark.slow
def test_a_bundle_is_served_in_another_place(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    import httpx

    bundle_file(write(tmp_path), tmp_path / "out")
    away = moved(tmp_path, tmp_path / "out")
    env = {**os.environ, "WORKBENCH_TRUST": str(tmp_path)}
    command = [sys.executable, "-m", "workbench", "serve", str(away / "workflow.yaml"), "--port", "0"]
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
        rows = "".join(f'{{"text": "t{i}", "answer": "a{i}"}}\n' for i in range(12))
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


@pytest.mark.parametrize(
    ("extra", "refused"),
    [
        ({"api_key": "sk-123"}, "extra.api_key"),
        ({"headers": {"Authorization": "Bearer abc"}}, "extra.headers.Authorization"),
        pytest.param({"x-token-of-mine": "sk-proj-1"}, "extra.x-token-of-mine", id="finding 6: any name"),
        pytest.param({"a": {"b": ["q7Z2m9X4c6V8b1N3k5"]}}, "extra.a.b.0", id="finding 6: a look"),
        pytest.param({"base": "https://bob:pw@x.org"}, "extra.base", id="finding 6: a password in an address"),
        ({"adapter": "my-lora-v2-checkpoint-001", "seed": 7, "service": "https://x.org/v1?a=b"}, None),
        ({"aws_secret_access_key": "abc"}, "extra.aws_secret_access_key"),
        ({"headers": {"Authorization": "Bearer $MINE"}}, None),
        ({"max_token_count": "5", "stop_token": "x"}, None),
    ],
)
def test_a_key_that_is_written_in_the_file_is_not_handed_on(
    tmp_path: Path, extra: dict[str, Any], refused: str | None
) -> None:
    path = tmp_path / "w.yaml"
    lm = {"model": "openai/x", "extra": extra}
    path.write_text(yaml.safe_dump({"lm": lm, "nodes": {"n": {"predict": "text -> answer"}}}))
    if refused is None:
        assert bundle_file(path, tmp_path / "out").folder.exists()
        return
    with pytest.raises(SpecError, match=f"{refused} of openai/x (is written in the file|contains a password)"):
        bundle_file(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
