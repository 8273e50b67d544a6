"""A rehearsal builds the prompts of a run, and does nothing else."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted_nodes import DOES, Planted

from workbench.lm import estimate_tokens
from workbench.plugins import plugins
from workbench.run import estimate, prepare
from workbench.run.rehearsal import rehearse
from workbench.runtime import Context

CODE = """
from pathlib import Path

HERE = Path(__file__).parent

def look(text: str) -> str:
    '''Look a text up.'''
    with (HERE / "calls.txt").open("a") as file:
        file.write("look\\n")
    return "found"

def score(row, prediction):
    raise RuntimeError("no score for a made-up answer")
"""


def write(folder: Path, lengths: list[int] = [1] * 9, **spec: Any) -> Path:
    rows = [{"text": "x" * length, "label": "ab"[i % 2], "n": str(i)} for i, length in enumerate(lengths)]
    (folder / "val.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tests = [{"text": f"sealed {i} of {100 - i}", "label": "ab"[i % 2], "n": "0"} for i in range(8)]
    (folder / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in tests))
    (folder / "code.py").write_text(CODE)
    written = {
        "name": "t",
        "lm": {"model": "openai/m", "api_base": "http://127.0.0.1:9/v1", "price": {"input": 1, "output": 1}},
        "data": {"val": "val.jsonl", "test": "test.jsonl"},
        "metric": "exact_match(label)",
        "nodes": {"sort": {"predict": "text -> label"}},
        "optimize": [{"random": {"trials": 2}}],
        "budget": {"calls": 5000},
        **spec,
    }
    (folder / "w.yaml").write_text(json.dumps(written))
    return folder / "w.yaml"


def estimated(path: Path) -> dict[str, Any]:
    _, _, task, optimizers = prepare(path)
    return estimate(task, optimizers)


def test_nothing_is_sent_started_or_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise AssertionError("a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr("subprocess.Popen.__init__", refuse)
    monkeypatch.chdir(tmp_path)
    nodes: dict[str, Any] = {
        "look": {"tool": "python:code.py:look"},
        "count": {"code": "text -> size: int", "source": "def count(text):\n    return len(text)\n"},
        "keep": {"remember": "text -> note", "into": "notes"},
        "ask": {"agent": "text, size -> label", "tools": ["python:code.py:look"], "needs": ["look", "count", "keep"]},
    }
    path = write(tmp_path, nodes=nodes)
    before = sorted(tmp_path.rglob("*"))
    found = estimated(path)
    after = [file for file in sorted(tmp_path.rglob("*")) if "__pycache__" not in file.parts]
    assert after == before
    plain = {**nodes, "ask": {**nodes["ask"], "tools": []}}
    assert found["input_tokens"] > 30 + estimated(write(tmp_path, nodes=plain))["input_tokens"], "what the tool is for"


def test_the_tokens_are_those_of_the_prompts_that_a_run_builds(tmp_path: Path) -> None:
    """Each weight of a row is that of its quartile, so that one long row among many counts little."""
    found = estimated(write(tmp_path, [30] * 8 + [3000]))
    own = estimate_tokens(({"content": "x" * 30},)) - estimate_tokens(({"content": ""},))
    long = estimate_tokens(({"content": "x" * 3000},)) - estimate_tokens(({"content": ""},))
    alone = estimated(write(tmp_path, [30] * 9))
    prompt = alone["input_tokens"]
    assert alone["baseline"]["min_input_tokens"] == round(9 * prompt / 2)
    assert alone["baseline"]["max_input_tokens"] == 9 * prompt * 2
    assert found["input_tokens"] == round(prompt + (long - own) / 8)
    assert found["baseline"]["max_input_tokens"] == 9 * 2 * (prompt + long - own)


def test_a_later_prompt_has_room_for_an_earlier_answer(tmp_path: Path) -> None:
    """It may be as long as its model may answer; one of a closed type is as short as it was."""
    settings = {"decoding": {"max_tokens": 300}}
    free = {"plan": {"predict": "text -> plan", **settings}, "sort": {"predict": "text, plan -> label", **settings}}
    closed = {**free, "plan": {"predict": "text -> plan: bool", **settings}}
    most = [estimated(write(tmp_path, nodes=nodes))["baseline"]["max_input_tokens"] for nodes in (free, closed)]
    assert most == [9 * 300 + 9 * 2 * 38, 9 * 2 * 46]


def test_a_metric_and_a_node_that_raise_do_not_end_an_estimate(tmp_path: Path) -> None:
    nodes = {
        "first": {"branch": "text", "cases": {"other": {"predict": "text -> plan"}}},
        "sort": {"predict": "text, plan -> label"},
    }
    found = estimated(write(tmp_path, nodes=nodes, metric="python:code.py:score"))
    assert found["baseline"]["max_input_tokens"] > 0, "a branch that fails is asked by itself"
    assert not any("unknown until" in line for line in found["lines"])


def test_a_program_that_is_not_started_is_said_to_be_unknown(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("open('ran', 'w')")
    nodes = {"sort": {"external": "text -> label", "command": ["python", "agent.py"], "calls": 3}}
    found = estimated(write(tmp_path, nodes=nodes))
    assert not list(tmp_path.rglob("ran")) and found["baseline"]["max_input_tokens"] is None
    assert "Prompts of sort are unknown until they run: counted by the file's texts and rows." in found["lines"]
    assert "to more)" in found["lines"][1] and found["baseline_calls"] == 9 * 3


def test_a_workflow_of_many_calls_is_cut_short(tmp_path: Path) -> None:
    loop = {"loop": {"predict": "text -> label, done: bool"}, "until": "done == 'never'", "rounds": 1000}
    task = prepare(write(tmp_path, nodes={"sort": loop}))[2]
    seen = rehearse(task, task.workflow)
    assert task.workflow.max_calls == 1000 and [len(prompts) for prompts in seen.prompts.values()] == [200]


def test_a_node_that_hangs_does_not_hang_an_estimate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(inputs: Any, ctx: Context) -> None:
        await asyncio.sleep(3600)

    monkeypatch.setitem(plugins()._tables["node_kinds"], "planted", (Planted, "test"))
    monkeypatch.setitem(DOES, "hang", hang)
    monkeypatch.setattr("workbench.run.rehearsal.SECONDS", 0.01)
    found = estimated(write(tmp_path, nodes={"n": {"planted": "hang", "reads": ["text"], "writes": ["label"]}}))
    assert found["baseline_calls"] == 9 and found["baseline"]["max_input_tokens"] is None


def test_without_leave_to_run_code_nothing_is_rehearsed(tmp_path: Path) -> None:
    """As for `validate` of a file that is not trusted."""
    path = write(tmp_path, budget={"tokens": 900})
    lines = estimate(prepare(path, code="outlined")[2])["lines"]
    assert "Prompts of sort are unknown until they run: counted by the file's texts and rows." in lines
