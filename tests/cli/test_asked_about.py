"""What was asked about is what runs, and a file that is not trusted shows nothing of other folders.

Numbers are those of the security review."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helpers.scripted import Script
from tests.helpers.sqlite import connect
from tests.helpers.strangers import PAYLOAD, PLAIN, enter_with_programs, invoke, write

from workbench.cli import trust
from workbench.cli.trust.needs import collect_needs
from workbench.errors import SpecError
from workbench.store import Store


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a stranger's files. Nothing is trusted."""
    return enter_with_programs(tmp_path, monkeypatch)


# 7: what is trusted is noticed when it changes


EDITS: dict[str, tuple[dict[str, Any], str]] = {
    "python file": ({"python": "p1.py:f"}, "p1.py"),
    "python module": ({"python": "p1:f"}, "p1.py"),
    "python package": ({"python": "pkg:f"}, "pkg/__init__.py"),
    "folder": ({"command": ["python", "main.py"], "folder": "ag"}, "ag/main.py"),
    "folder here": ({"command": ["python", "-m", "m1"], "folder": "."}, "m1.py"),
    "module": ({"command": ["python", "-m", "m1"]}, "m1.py"),
    "words in a word": ({"command": ["bash", "-c", "bash s1.sh"]}, "s1.sh"),
    "module in one word": ({"command": ["python", "-mpkg"]}, "pkg/__init__.py"),
    "beneath a folder of the command": ({"command": ["sh", "-c", "(cd ag; python main.py)"]}, "ag/main.py"),
    "a folder that is a program": ({"command": ["uv", "run", "--project", "tool", "x"]}, "tool/deep.py"),
    "mcp": ({"mcp": "python s1.sh#t"}, "s1.sh"),
    "variable": ({"command": ["x"], "env": {"BASH_ENV": "s1.sh"}}, "s1.sh"),
    "what a link in the folder leads to": ({"command": ["x"], "folder": "ag"}, "../elsewhere.py"),
    "what a linked folder holds": ({"command": ["x"], "folder": "ag"}, "../lib/deep.py"),
}


@pytest.mark.parametrize("form", ["short", "kind"])
@pytest.mark.parametrize("name", EDITS)
def test_finding_7_an_edited_agent_is_asked_about_again(folder: Path, name: str, form: str) -> None:
    (folder.parent / "lib").mkdir()
    (folder / "tool").mkdir()
    for place in (
        "../elsewhere.py",
        "../lib/deep.py",
        "tool/pyproject.toml",
        "tool/deep.py",
    ):
        (folder / place).write_text("1\n")
    (folder / "ag/link.py").symlink_to(folder.parent / "elsewhere.py")
    (folder / "ag/lib").symlink_to(folder.parent / "lib")
    settings, place = EDITS[name]
    head = {"external": "text -> label"} if form == "short" else {"kind": "external", "signature": "text -> label"}
    path = str(write(nodes={"n": {**head, **settings}}))
    assert invoke("trust", path).exit_code == 0
    before = collect_needs(Path(path)).digest
    assert collect_needs(Path(path)).digest == before
    trust.require_trust(Path(path))
    (folder / place).write_text("2\n")
    with pytest.raises(SpecError, match="has changed since it was trusted"):
        trust.require_trust(Path(path))


def test_finding_7_a_link_in_place_of_the_file_is_asked_about(folder: Path) -> None:
    path = write(nodes={"n": {"external": "text -> label", "python": "p1.py:f"}})
    invoke("trust", str(path))
    Path("p1.py").unlink()
    Path("other.py").write_text("other\n")
    Path("p1.py").symlink_to("other.py")
    with pytest.raises(SpecError, match="has changed since it was trusted"):
        trust.require_trust(path)


def test_finding_7_a_run_in_the_folder_of_its_agent_does_not_change_what_is_trusted(folder: Path) -> None:
    path = write(nodes={"n": {"external": "text -> label", "command": ["true"], "folder": "."}})
    before = collect_needs(path).digest
    Store("workbench.db").close()
    for name in ("workbench.db-wal", "__pycache__/p1.pyc", "optimized.yaml"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("name: x\nnodes: {}\n")
    assert collect_needs(path).digest == before


def test_finding_7_a_folder_of_any_size_costs_little(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger may name the root folder."""
    monkeypatch.setattr("workbench.cli.trust.needs._MAX_FILES", 50)
    monkeypatch.setattr("workbench.cli.trust.needs._MAX_BYTES", 1_000_000)
    powers = collect_needs(write(nodes={"n": {"external": "text -> label", "command": ["x"], "folder": "/"}}))
    assert "in the folder /" in powers.lines()[0] and len(powers.digests) < 60


# 12: what was asked about is what runs


COMMANDS: dict[str, list[str]] = {
    "run": ["run", "w.yaml", "--input", "text=x"],
    "run a row": ["run", "w.yaml", "--example", "0"],
    "predict": ["predict", "w.yaml", "rows.jsonl", "--out", "out.jsonl"],
    "eval": ["eval", "w.yaml"],
    "eval --matrix": ["eval", "w.yaml", "--matrix", "seed=1,2"],
    "optimize": ["optimize", "w.yaml"],
    "estimate": ["estimate", "w.yaml"],
    "slots": ["agent", "slots", "w.yaml"],
    "apply": ["agent", "apply", "w.yaml", "--to", "."],
    "gateway": ["agent", "gateway", "w.yaml"],
    "export": ["export", "w.yaml", "--format", "bundle", "--out", "out"],
    "doctor": ["doctor", "--ping", "w.yaml"],
    "serve": ["serve", "w.yaml"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_finding_12_a_file_that_is_replaced_after_the_question_does_not_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The file is replaced as soon as it was asked about."""
    write("w.yaml")
    asked, real = list[bool](), trust._lies_in_trusted_folder

    def replace(path: Path) -> bool:
        asked.append(True)
        write("w.yaml", nodes={"t": {"tool": "python:p1.py:f", "arguments": {"text": "text"}, "output": "label"}})
        return real(path)

    monkeypatch.setattr(trust, "_lies_in_trusted_folder", replace)
    monkeypatch.setattr("workbench_serve.server.serve", lambda *_, **__: None)
    result = invoke(*COMMANDS[name])
    assert asked and not Path("RAN").exists(), result.output


def test_finding_12_the_settings_of_synthesize_are_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("seeds.jsonl").write_text('{"text": "a"}\n')
    plain = {"lm": "bundled/nano", "synthesize": "seeds.jsonl", "nodes": {"t": {"predict": "text -> label"}}}
    runs = {"t": {"tool": "python:p1.py:f", "arguments": {"text": "text"}, "output": "label"}}
    Path("s.yaml").write_text(yaml.safe_dump(plain))
    asked, real = list[bool](), trust._lies_in_trusted_folder

    def replace(path: Path) -> bool:
        asked.append(True)
        Path("s.yaml").write_text(yaml.safe_dump({**plain, "nodes": runs}))
        return real(path)

    monkeypatch.setattr(trust, "_lies_in_trusted_folder", replace)
    invoke("data", "synthesize", "s.yaml", "--out", "out.jsonl")
    assert asked and not Path("RAN").exists()
    monkeypatch.setattr(trust, "_lies_in_trusted_folder", real)
    assert "runs Python: python:p1.py:f" in str(invoke("data", "synthesize", "s.yaml", "--out", "b.jsonl").exception)


@pytest.mark.parametrize("place", ["in.yaml", "p1.py"])
def test_finding_12_what_the_file_refers_to_is_held_to_what_was_asked_about(
    folder: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    Path("in.yaml").write_text(yaml.safe_dump({"nodes": {"n": {"predict": "text -> label"}}}))
    Path("p1.py").write_text("def f(text: str) -> str:\n    return text\n")
    tool = {"tool": "python:p1.py:f", "arguments": {"text": "text"}, "output": "r"}
    path = str(write(nodes={"n": {"workflow": "in.yaml"}, "t": tool}))
    assert invoke("trust", path).exit_code == 0
    real = trust._ask
    new = {
        "in.yaml": yaml.safe_dump({"nodes": {"n": {"tool": "python:other.py:f", "output": "label"}}}),
        "p1.py": PAYLOAD,
    }

    def replace(*args: Any) -> None:
        real(*args)
        Path(place).write_text(new[place])

    monkeypatch.setattr(trust, "_ask", replace)
    result = invoke("run", path, "--input", "text=x")
    assert "has changed since this command asked" in str(result.exception) and not Path("RAN").exists()
    monkeypatch.setattr(trust, "_ask", real)
    assert "has changed since it was trusted" in str(invoke("run", path, "--input", "text=x").exception)


def test_finding_12_a_stored_run_that_is_replaced_after_the_question_is_not_resumed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert invoke("optimize", str(write())).exit_code == 0
    real = trust._ask

    def replace(*args: Any) -> None:
        real(*args)
        with connect("workbench.db") as db:
            evil = yaml.safe_dump({**PLAIN, "metric": "python:p1.py:f"})
            db.execute("update runs set spec = ?, spec_checksum = null", (evil,))
        db.close()

    monkeypatch.setattr(trust, "_ask", replace)
    assert "has changed since this command asked" in str(invoke("resume", "last").exception)
    assert not Path("RAN").exists()


def test_finding_12_a_ceiling_given_to_resume_is_no_change_of_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the line says that an evaluation ends with, and in a folder that is asked about."""
    path, lm = str(write()), Script(lambda request: "label: a")
    monkeypatch.setattr("workbench.lm.pool.make_lm", lambda spec: lm)
    assert invoke("eval", path, "--split", "all", "--budget-calls", "2").exit_code == 1
    done = invoke("resume", "last", "--budget-calls", "50")
    assert done.exit_code == 0, done.output + str(done.exception)


# 13: validate


SECRET = "AKIA-SECRET-LINE-1;x"
OUTSIDE: dict[str, dict[str, Any]] = {
    "rows by reader": {"data": {"file": "csv:../secretdir/creds.csv"}},
    "rows": {"data": {"train": "../secretdir/creds.csv", "val": "rows.jsonl", "test": "rows.jsonl"}},
    "rows behind a link": {"data": "link.csv"},
    "corpus": {"nodes": {"n": {"kind": "search", "corpus": "../secretdir/creds.csv"}}},
    "sub-workflow": {"nodes": {"n": {"workflow": "../secretdir/w.yaml"}}},
    "functions": {"nodes": {"n": {"agent": "text -> label", "functions": "../secretdir/w.yaml"}}},
    "metrics": {"metric": {"induced": "../secretdir/w.yaml"}},
    "Python": {"nodes": {"n": {"tool": "python:../secretdir/code.py:f"}}},
    "type": {"types": {"T": "python:../secretdir/code.py:T"}, "nodes": {"n": {"predict": "text -> label: T"}}},
}


@pytest.mark.parametrize("words", [[], ["--deep"], ["--json"]], ids=str)
@pytest.mark.parametrize("name", OUTSIDE)
def test_finding_13_validate_tells_nothing_of_what_lies_outside(folder: Path, name: str, words: list[str]) -> None:
    secret = folder.parent / "secretdir"
    secret.mkdir()
    for place in ("creds.csv", "w.yaml", "code.py"):
        (secret / place).write_text(f"{SECRET}\n")
    Path("link.csv").symlink_to(secret / "creds.csv")
    result = invoke("validate", *words, str(write(**OUTSIDE[name])))
    assert "AKIA" not in result.output + str(result.exception)
    assert "outside its folder" in result.output + str(result.exception)


def test_finding_13_what_is_trusted_is_looked_at(folder: Path) -> None:
    (folder.parent / "rows.csv").write_text("text,label\n" + "t,a\n" * 9)
    path = str(write(data="../rows.csv"))
    assert "were not read" in invoke("validate", path).output
    assert "Rows: train" in invoke("validate", path, "--run-code").output
    assert invoke("trust", path).exit_code == 0
    assert "Rows: train" in invoke("validate", path).output
