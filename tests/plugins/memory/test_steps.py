"""Examples of steps: what a run did in each situation is found again in the situations of other runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.helpers.node_runs import ScriptedLM, ScriptedPool

from workbench import optimize
from workbench.lm import Request
from workbench.run import Options
from workbench.workflow import make_node, node_tree

#: Three doors behind each other, each with a lever of its own.
LEVERS = {"a green door": "pull 3", "a red door": "turn 7", "a blue door": "lift 5"}
DOORS = [*LEVERS]
STEP = f"""
LEVERS, DOORS = {LEVERS!r}, {DOORS!r}
def step(situation, action):
    if action.strip() != LEVERS.get(situation):
        return situation
    later = DOORS[DOORS.index(situation) + 1:]
    return later[0] if later else "outside"
"""
LOOP = {
    "kind": "loop",
    "rounds": 4,
    "carry": {"situation": None},
    "until": "situation == 'outside'",
    "nodes": {
        "look": {"recall": "situation -> examples", "k": 1},
        "act": {"predict": "number, situation, hint, examples -> action"},
        "step": {"code": "situation, action -> situation", "source": STEP},
    },
}


def act(request: Request) -> str:
    """Follow the hint of the row, which only rows of train have, or else the example; without either, wait."""
    text = str(request.messages[-1]["content"])
    here = re.findall(r"^situation: (.*)", text, re.MULTILINE)[-1]
    hints = dict(re.findall(r"(a \w+ door) (\w+ \d)", re.findall(r"^hint: (.*)", text, re.MULTILINE)[-1]))
    examples = dict(re.findall(r"situation: (a \w+ door)\naction: (\w+ \d)", text))
    return f"action: {hints.get(here) or examples.get(here) or 'wait'}"


def solve(folder: Path, nodes: dict[str, Any], seed: int = 0) -> Any:
    hint = "; ".join(f"{door} {lever}" for door, lever in LEVERS.items())
    rows = {"train": [hint] * 6, "val": ["none"] * 8, "test": ["none"] * 12}
    for split, hints in rows.items():
        lines = [
            json.dumps(
                {
                    "situation": DOORS[n % 2],
                    "start": DOORS[n % 2],
                    "hint": h,
                    "number": f"{split} {n}",
                    "goal": "outside",
                }
            )
            for n, h in enumerate(hints)
        ]
        (folder / f"{split}.jsonl").write_text("\n".join(lines))
    spec = {
        "name": "doors",
        "lm": "openai/x",
        "data": {**{split: f"{split}.jsonl" for split in rows}, "cluster": False},
        "metric": "exact_match(situation, target=goal)",
        "nodes": nodes,
        "optimize": [{"memory": {"kinds": ["examples"], "trials": 1, "k": 1}}],
        "budget": {"calls": 1000},
        "seed": seed,
    }
    (folder / "workflow.yaml").write_text(json.dumps(spec))
    options = Options(out=str(folder / "out.yaml"))
    return optimize(
        folder / "workflow.yaml", database=folder / "run.db", pool=ScriptedPool(ScriptedLM(act)), options=options
    )


def test_the_steps_of_successful_runs_are_found_by_their_situations(tmp_path: Path) -> None:
    """Each of two or three doors needs another example, so what is looked up once for a row opens one door."""
    report = solve(tmp_path, {"walk": LOOP})
    assert report.baseline["test"]["score"] == 0.0 and report.best["test"]["score"] == 1.0 and report.gain_shown
    (entries,) = [new for address, _, new in report.changes if address.endswith("entries")]
    assert {e["inputs"]["situation"]: e["outputs"]["action"] for e in entries} == LEVERS
    assert all(entry["source"].startswith("trial:0:") for entry in entries)


def test_a_row_is_not_shown_its_own_steps(tmp_path: Path) -> None:
    entry = {"inputs": {"situation": "a red door"}, "outputs": {"action": "turn 7"}, "source": "trial:0:row 1"}
    node: Any = make_node("look", node_tree({**LOOP["nodes"]["look"], "entries": [entry]}), tmp_path, "loaded")
    here = {"situation": "a red door"}
    assert node.choose(here, step_of="row 2") == [0] and node.choose(here, step_of="row 1") == []
    assert node.choose(here) == [], "looked up for a row, equal inputs are the row itself"


def test_looked_up_once_for_a_row_they_open_no_door(tmp_path: Path) -> None:
    """The control: looked up before the loop, examples are of whole rows and hold no action."""
    inner = {name: node for name, node in LOOP["nodes"].items() if name != "look"}
    nodes = {"look": {"recall": "start -> examples", "k": 1}, "walk": {**LOOP, "nodes": inner}}
    report = solve(tmp_path, nodes)
    assert not report.changes and not report.gain_shown


def test_steps_of_failed_runs_are_not_kept(tmp_path: Path) -> None:
    """Rows whose hints open the first door alone teach nothing, though that step was right."""
    few = {**LOOP, "rounds": 1}
    report = solve(tmp_path, {"walk": few})
    assert not report.changes
