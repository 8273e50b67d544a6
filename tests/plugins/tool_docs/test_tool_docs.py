"""Tools that are easier to use: wrappers and descriptions are kept only if they help. No model is behind this."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import evaluations
from tests.helpers.scripted import Script, make_workflow, run_node

from workbench.errors import SpecError
from workbench.lm import Request
from workbench.run import Options, optimize

TOOLS = '''
def look(key: str) -> str:
    """Looks a key up."""
    if not key.startswith("k"):
        raise ValueError("E42")
    return "header; " * 20 + f"colour={COLOURS[int(key[1:]) % 3]}; " + "footer; " * 20

COLOURS = ["red", "green", "blue"]
'''
GOOD = "import re\ndef wrap(result, arguments):\n    return (re.findall('colour=[a-z]+', str(result)) or ['begin keys with k'])[0]"  # noqa: E501
FAILS = "def wrap(result, arguments):\n    return result['nothing']"
EMPTY = "def wrap(result, arguments):\n    return ''"
WRONG = "def wrap(result, arguments):\n    return 'colour=red'"
HOSTILE = "def wrap(result, arguments):\n    return open('/etc/passwd').read()"


def plays(proposals: list[str]):
    """The task model reads a colour only where it is not buried in text; the proposer gives its proposals in turn."""
    asked: list[str] = []

    def say(request: Request) -> str:
        first, last = str(request.messages[0]["content"]), str(request.messages[-1]["content"])
        if "does not use it well" in first:
            asked.append(last)
            return proposals.pop(0) if len(proposals) > 1 else proposals[0]
        if last.startswith(("result", "error")):
            found = re.search(r"colour=(\w+)", last)
            return f"answer: {found.group(1) if found and len(last) < 60 else 'unsure'}"
        return "call: " + json.dumps(
            {"tool": "look", "arguments": {"key": last.split("key ")[1].split("?")[0].split("\n")[0]}}
        )

    return say, asked


def proposal(**what: Any) -> str:
    return json.dumps({"description": None, "wrapper": None, **what})


def run(folder: Path, proposals: list[str], seed: int = 0, calls: int = 900, **settings: Any) -> tuple[Any, list[str]]:
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "tools.py").write_text(TOOLS)
    colours = ["red", "green", "blue"]
    draw = random.Random(seed)
    for name, count in (("train", 24), ("val", 24), ("test", 40)):
        keys = [draw.randrange(1000) for _ in range(count)]
        rows = [{"question": f"Which colour has key k{k}?", "answer": colours[k % 3]} for k in keys]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    spec = {
        "name": "tool-docs",
        "lm": {"model": "openai/scripted", "api_base": "http://127.0.0.1:9/v1"},
        "data": {n: f"{n}.jsonl" for n in ("train", "val", "test")},
        "metric": "exact_match(answer)",
        "nodes": {"solve": {"agent": "question -> answer", "tools": ["python:tools.py:look"], "max_steps": 3}},
        "optimize": [{"tool_docs": settings}],
        "budget": {"calls": calls},
        "seed": seed,
    }
    (folder / "w.yaml").write_text(json.dumps(spec))
    say, asked = plays(list(proposals))
    report = optimize(
        folder / "w.yaml", database=folder / "run.db", pool=Script(say), options=Options(out=str(folder / "out.yaml"))
    )
    assert report.status in ("finished", "budget"), report.error
    return report, asked


def test_a_wrapper_that_helps_is_kept_with_proof(tmp_path: Path) -> None:
    report, asked = run(tmp_path, [proposal(wrapper=GOOD)])
    assert report.winner.get("nodes.solve.wrappers.look") == GOOD and report.gain_shown
    assert "header" in asked[0] and "look(" in asked[0]
    assert "colour=[a-z]+" in (tmp_path / "out.yaml").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (FAILS, "wrapper fails"),
        (EMPTY, "gives nothing"),
        (HOSTILE, "wrapper fails"),
        ("x = 1", "fails"),
        ("def wrap(", "fails"),
    ],
)
def test_a_wrapper_that_does_not_work_is_sent_back_before_it_costs_a_row(bad: str, told: str, tmp_path: Path) -> None:
    report, asked = run(tmp_path, [proposal(wrapper=bad), proposal(wrapper=GOOD)], rounds=1)
    assert told in asked[1] and report.winner.get("nodes.solve.wrappers.look") == GOOD


@pytest.mark.slow
def test_what_does_not_help_is_not_kept(tmp_path: Path) -> None:
    """The negative control: an answer that cannot be read, a wrapper that misleads, a description that says nothing
    new."""
    for i, what in enumerate(["no thanks", proposal(wrapper=FAILS), proposal(description="Looks up.")]):
        report, _ = run(tmp_path / str(i), [what], seed=i)
        assert not report.gain_shown and "wrappers" not in report.winner.nodes["solve"]
        assert "descriptions" not in report.winner.nodes["solve"]
    for seed in range(3):
        report, _ = run(tmp_path / f"w{seed}", [proposal(wrapper=WRONG), proposal(wrapper=GOOD)], seed=seed)
        assert report.winner.get("nodes.solve.wrappers.look") == GOOD  # the misleading one helps a third of the rows


def test_what_is_no_better_on_the_batch_costs_no_row_of_val(tmp_path: Path) -> None:
    _, asked = run(tmp_path, [proposal(description="Looks up.")], rounds=1)
    assert asked and len({row["candidate"] for row in evaluations(tmp_path)}) == 1, "only the baseline was run on val"


@pytest.mark.slow
def test_failures_reach_the_wrapper_and_its_own_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    advice = "def wrap(result, arguments):\n    return 'keys begin with k' if 'error' in result else result"
    told: list[str] = []

    def say(request: Request) -> str:
        last = str(request.messages[-1]["content"])
        told.append(last)
        return "answer: x" if len(told) % 2 == 0 else 'call: {"tool": "look", "arguments": {"key": "7"}}'

    node = {"agent": "question -> answer", "tools": ["python:tools.py:look"], "wrappers": {"look": advice}}
    run_node(node, {"question": "q"}, tmp_path, say)
    assert told[1] == "error: keys begin with k"
    outcome, _ = run_node({**node, "wrappers": {"look": FAILS}}, {"question": "q"}, tmp_path, say)
    assert "E42" in told[3] and "KeyError" in outcome.trace.spans[0].notes["wrapper"]


def test_a_description_takes_the_place_of_the_tools_own(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    node = {
        "agent": "question -> answer",
        "tools": ["python:tools.py:look"],
        "descriptions": {"look": "Gives colours."},
    }
    _, script = run_node(node, {"question": "q"}, tmp_path, lambda r: "answer: x")
    system = script.requests[0].messages[0]["content"]
    assert "Gives colours." in system and "Looks a key up" not in system
    with pytest.raises(SpecError, match="no tool 'lok'"):
        make_workflow({"n": {**node, "descriptions": {"lok": "?"}}}, tmp_path)
