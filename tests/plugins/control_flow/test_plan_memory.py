"""A memory of plans for A* (ToolChain*), in a world where each kind of task has one good plan. Simulated models."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.plans import END, PLANS, call, entry, made_so_far, nodes, write_tools
from tests.helpers.planted import candidates, lower_bound, optimize_killed

from workbench.lm import Request


def planner(request: Request, *, patterned: bool = True) -> str:
    """A simulated planner: at each step right with 0.45, popularly wrong with 0.35, else anything; off the plan it
    wanders. patterned=False: the plan depends on the single task, so that nothing can be learned."""
    text = str(request.messages[-1]["content"])
    kind = int(text.partition("kind ")[2][0])
    start = text.partition("begin with ")[2].split()[0]
    word = PLANS[kind] if patterned else plan_of(start)
    draw = random.Random(hashlib.sha256(request.key("planner").encode()).digest())
    made = made_so_far(request)
    if made is None:
        return "\n".join(f"add_{draw.choice('abcdef')}" for _ in range(3))
    if len(made) >= len(word):
        return END if draw.random() < 0.9 else call(draw.choice("abcdef"), len(made), start)
    popular = "abcdef"[(ord(word[len(made)]) + kind + len(made)) % 6]
    luck = draw.random()
    letter = word[len(made)] if luck < 0.45 else popular if luck < 0.8 else draw.choice("abcdef")
    return call(letter, len(made), start)


def plan_of(start: str) -> str:
    draw = random.Random(start)
    return "".join(draw.choice("abcdef") for _ in range(draw.randint(1, 4)))


def run_world(
    folder: Path, optimizer: Any, seed: int, *, patterned: bool = True, calls: int = 12_000, kill_at: int = 0
) -> Any:
    """kill_at: the run is killed at this request, and resumed."""
    folder.mkdir()
    write_tools(folder)
    for split, count in (("train", 24), ("val", 16), ("test", 30)):
        rows = []
        for i in range(count):
            start = f"{split}{i}s{seed}"
            word = PLANS[i % 4] if patterned else plan_of(start)
            rows.append({"question": f"kind {i % 4}: begin with {start}", "answer": start + word})
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rng = random.Random(seed)
    sets = [[entry(f"kind {k}", "".join(rng.choice("abcdef") for _ in range(3))) for k in range(4)] for _ in range(6)]
    file = folder / "workflow.yaml"
    file.write_text(
        json.dumps(
            {
                "name": "plans",
                "lm": {"model": "openai/simulated", "api_base": "http://127.0.0.1:9/v1"},
                "seed": seed,
                "data": {s: f"{s}.jsonl" for s in ("train", "val", "test")},
                "metric": "exact_match(answer)",
                "nodes": nodes(branching=5, evaluations=40, depth=5),
                "optimize": [optimizer],
                "budget": {"calls": calls},
                "proof": {"when_unchanged": "test"},
                "search": {
                    "nodes.plan.judge.nodes.step.constants.alpha": {"float": [0.0, 1.0]},
                    "nodes.plan.judge.nodes.left.constants.beta": {"float": [0.0, 1.0]},
                    "nodes.remember.entries": [[], *sets],
                },
            }
        )
    )
    report, asked = optimize_killed(file, lambda request: planner(request, patterned=patterned), kill_at)
    assert asked <= calls
    return report


def memory(trials: int = 3) -> dict[str, Any]:
    return {"memory": {"trials": trials, "kinds": ["examples"], "policies": ["lexical"], "k": 3}}


@pytest.mark.long
@pytest.mark.slow
def test_remembered_plans_beat_random_search_with_as_many_calls(tmp_path: Path) -> None:
    differences = []
    for seed in range(3):
        ours = run_world(tmp_path / f"ours{seed}", memory(5), seed)
        other = run_world(tmp_path / f"random{seed}", {"random": {"trials": 20}}, seed, calls=ours.spent["calls"])
        differences.append(ours.best["test"]["score"] - other.best["test"]["score"])
    assert lower_bound(differences) > 0, differences
    entries = ours.winner.get("nodes.remember.entries")
    assert entries and all("train" in e["inputs"]["question"] for e in entries), "the memory holds training tasks alone"


@pytest.mark.long
@pytest.mark.slow
def test_where_plans_have_no_pattern_no_gain_is_claimed(tmp_path: Path) -> None:
    for seed in range(2):
        report = run_world(tmp_path / f"null{seed}", memory(), seed, patterned=False)
        assert not report.gain_shown, (report.baseline, report.best)


@pytest.mark.long
@pytest.mark.slow
def test_memories_are_made_of_successes_alone_and_val_decides(tmp_path: Path) -> None:
    report = run_world(tmp_path / "world", memory(1), 7)
    good = {tuple(f"add_{c}" for c in word) for word in PLANS}
    tried = [values for values in candidates(tmp_path / "world") if "nodes.remember.entries" in values]
    assert tried
    for values in tried:
        plans = {tuple(c["name"] for c in e["outputs"]["plan"]) for e in values["nodes.remember.entries"]}
        assert plans <= good
    assert report.best["val"] >= report.baseline["val"]


@pytest.mark.long
@pytest.mark.slow
def test_a_run_that_was_killed_ends_as_if_it_never_was(tmp_path: Path) -> None:
    whole = run_world(tmp_path / "whole", memory(1), 7)
    again = run_world(tmp_path / "killed", memory(1), 7, kill_at=900)
    assert again.winner == whole.winner and again.best["test"] == whole.best["test"]
    assert again.spent["calls"] <= whole.spent["calls"] + 8
