"""What user code prints goes to stderr: stdout holds what was asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from workbench.cli import cli

CODE = """
import os, subprocess, sys, threading
print("at import")

def score(example, prediction, trace=None):
    print("debug of a metric")
    sys.stdout.write("written")
    os.write(1, b"to the descriptor\\n")
    print("to the first stdout", file=sys.__stdout__, flush=True)
    subprocess.run(["echo", "of a child"])
    threading.Thread(target=lambda: print("of a thread")).start()
    return 1.0

def shout(word):
    print("debug of a node")
    return word
"""


@pytest.fixture(autouse=True)
def _trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_TRUST", str(tmp_path))


def write(folder: Path) -> Path:
    (folder / "own.py").write_text(CODE)
    (folder / "rows.jsonl").write_text("".join(json.dumps({"word": f"w{n}", "label": "a"}) + "\n" for n in range(6)))
    spec = {
        "name": "t",
        "data": {"file": "rows.jsonl", "split": {"train": 2, "val": 2, "test": 2}},
        "metric": "python:own.py:score",
        "nodes": {"say": {"tool": "python:own.py:shout", "arguments": {"word": "word"}, "output": "label"}},
        "budget": {"calls": 10},
    }
    path = folder / "w.yaml"
    path.write_text(json.dumps(spec))
    return path


def test_prints_of_metrics_and_nodes_are_no_part_of_the_json(tmp_path: Path) -> None:
    path = write(tmp_path)
    for command in (["eval", str(path), "--json", "--db", str(tmp_path / "r.db")], ["validate", str(path), "--json"]):
        found = CliRunner().invoke(cli, command)
        json.loads(found.stdout)
        assert found.exit_code == 0 and "label" not in found.stderr, found.stderr
    assert not CliRunner().invoke(cli, ["eval", "--help"]).stderr


def test_a_process_of_its_own_keeps_them_apart_too(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "workbench",
        "eval",
        str(write(tmp_path)),
        "--json",
        "--db",
        str(tmp_path / "r.db"),
    ]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(found.stdout)["kind"] == "eval"
    by_descriptor = ("to the descriptor", "to the first stdout", "of a child")
    for text in ("debug of a metric", "debug of a node", "of a thread", "written", *by_descriptor):
        assert text in found.stderr


def test_a_reader_that_is_gone_is_no_traceback() -> None:
    command = [sys.executable, "-m", "workbench", "plugin", "list", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert "Traceback" not in process.stderr.read() and process.wait(60) in (0, 1)
