"""A* over plans: costs by hand, limits, and a memory of plans in planted worlds. Simulated models throughout."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import candidates, lower_bound
from tests.helpers.scripted import Script, make_workflow, run_node, run_rows

from workbench.errors import SpecError
from workbench.lm import Request, Response
from workbench.run import Options, optimize, resume
from workbench.testing import Killed
from workbench.workflow import make_node
from workbench_astar import costs

# Costs


def test_the_longest_common_subsequence_is_that_of_brute_force() -> None:
    def brute(a: Sequence[str], b: Sequence[str]) -> int:
        subsequences = {tuple(x for i, x in enumerate(a) if mask >> i & 1) for mask in range(2 ** len(a))}

        def within(s: tuple[str, ...]) -> bool:
            rest = iter(b)
            return all(x in rest for x in s)

        return max(len(s) for s in subsequences if within(s))

    rng = random.Random(0)
    for _ in range(200):
        a, b = ([rng.choice("xyz") for _ in range(rng.randrange(7))] for _ in range(2))
        assert costs.lcs_length(a, b) == brute(a, b) == costs.lcs_length(b, a)


def test_all_costs_lie_between_zero_and_one() -> None:
    rng = random.Random(1)
    for _ in range(500):
        path = [rng.choice("abcd") for _ in range(rng.randint(1, 6))]
        memory = [[rng.choice("abcd") for _ in range(rng.randint(1, 6))] for _ in range(rng.randrange(4))]
        imagined = [rng.choice("abcd") for _ in range(rng.randrange(5))]
        weight, share = rng.random(), rng.random()
        assert 0.0 <= costs.compute_step_cost(path, share, memory, weight) <= 1.0
        assert 0.0 <= costs.estimate_remaining(path, memory, imagined, weight) <= 1.0


def test_a_remembered_plan_costs_nothing_and_without_memory_the_models_consistency_decides() -> None:
    plan = ["find", "read", "sum"]
    for n in range(1, 4):
        assert costs.measure_similarity(plan[:n], [plan]) == 1.0
        assert costs.compute_step_cost(plan[:n], 0.2, [plan], 0.5) == 0.0
    assert costs.compute_step_cost(plan, 0.2, [], 0.9) == pytest.approx(0.8), "1 - share, whatever alpha is"
    assert costs.compute_step_cost(["find", "sum"], 0.25, [["find", "read"]], 0.5) == pytest.approx((0.5 * 0.75) ** 0.5)
    assert costs.measure_similarity(["find", "sum", "read", "sum"], [plan]) == 0.75, (
        "a step too many is no part of the plan"
    )


def test_what_is_left_follows_the_place_in_remembered_plans_and_the_imagined_plan() -> None:
    plans = [["find", "read", "sum", "tell"], ["read", "tell"]]
    assert costs.measure_progress(["find", "read"], plans) == pytest.approx((2 / 4 + 1 / 2) / 2)
    assert costs.measure_progress(["find", "dance"], plans) == 0.0
    assert costs.measure_progress(["read", "x", "read"], [["read", "a", "b", "read"]]) == 1.0, (
        "the second of two occurrences"
    )
    assert costs.measure_completion(["find", "x", "sum"], ["find", "read", "sum"]) == pytest.approx(2 / 3)
    assert (
        costs.estimate_remaining(["find"], [], ["find", "sum"], 0.3) == 0.5
        and costs.estimate_remaining(["find"], [], [], 0.3) == 0.0
    )
    assert costs.estimate_remaining([], plans, ["find"], 0.5) == 0.0


def test_plans_of_the_most_similar_tasks_count() -> None:
    tasks = ["add two numbers", "send a letter", "add three numbers", "draw a cat"]
    assert costs.find_nearest("please add five numbers", tasks, 2) == [0, 2]
    assert costs.find_nearest("anything", tasks, 9) == [0, 1, 2, 3] and costs.find_nearest("x", [], 3) == []


# The node. Tools append a letter; the planted plan of a kind of task is a word.

TOOLS = "".join(f"def add_{c}(text: str) -> str:\n    return text + '{c}'\n" for c in "abcdef")
PLANS = ("abc", "dea", "fbd", "cef")


def broken(text: str) -> str:
    raise AssertionError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "letters.py").write_text(
        TOOLS + "def add_g(text: str) -> str:\n    raise OSError('out of ink')\n"
        "def stamp(text: str, mark: str) -> str:\n    return f'{text}!{mark}'\n"
    )
    return tmp_path


NODE = {
    "astar": "question -> answer",
    "tools": [f"python:letters.py:add_{c}" for c in "abcdef"],
    "samples": 6,
    "nodes": 20,
    "depth": 5,
}
ROW = {"question": "kind 0: begin with x"}


def call(letter: str, made: int, start: str = "x") -> str:
    text = f"${made}" if made else start
    return f'call: {{"tool": "add_{letter}", "arguments": {{"text": "{text}"}}}}'


def made_so_far(request: Request) -> str | None:
    """The letters of the calls so far; None where a whole plan is asked for."""
    text = str(request.messages[-1]["content"])
    if "Calls so far:" not in text:
        return None
    return "".join(line.split(" add_")[1][0] for line in text.splitlines() if " add_" in line)


def spells(word: str, rest: str = "finish") -> Any:
    def say(request: Request) -> str:
        made = made_so_far(request)
        if made is None:
            return "\n".join(f"add_{c}" for c in word)
        return call(word[len(made)], len(made)) if len(made) < len(word) else rest

    return say


def test_a_plan_is_found_and_carried_out_with_results_passed_on(folder: Path) -> None:
    outcome, script = run_node(NODE, ROW, folder, spells("abc"))
    assert outcome.prediction["answer"] == "xabc", outcome.message
    assert [c["tool"] for c in outcome.prediction["plan"]] == ["add_a", "add_b", "add_c"]
    assert outcome.prediction["plan"][1]["arguments"] == {"text": "$1"}
    notes = outcome.trace.spans[0].notes
    assert notes["cost"] == 0.0 and notes["expanded"] == 4 and notes["stopped"] == "goal"
    assert len(script.requests) == 1 + 4 * 6


def wavers(request: Request) -> str:
    """Four of six answers go wrong at the first step; the plan abc gets two."""
    made = made_so_far(request)
    if made is None:
        return ""
    if not made:
        return call("f" if request.replica < 4 else "a", 0)
    if made[0] == "f":
        return call("e", len(made)) if len(made) < 2 else "finish"
    return spells("abc")(request)


def test_memory_overrules_the_majority_and_without_it_the_majority_wins(folder: Path) -> None:
    outcome, _ = run_node(NODE, ROW, folder, wavers)
    assert outcome.prediction["answer"] == "xfe"
    assert outcome.trace.spans[0].notes["cost"] == pytest.approx(1 - 4 / 6, abs=1e-6)
    plans = [{"task": "question: kind 0", "tools": ["add_a", "add_b", "add_c"]}]
    outcome, _ = run_node({**NODE, "plans": plans}, ROW, folder, wavers)
    assert outcome.prediction["answer"] == "xabc" and outcome.trace.spans[0].notes["cost"] == 0.0


def test_shuffled_answers_leave_the_frequencies_and_the_plan_as_they_are(folder: Path) -> None:
    for seed in range(4):
        order = random.Random(seed).sample(range(6), 6)

        def shuffled(request: Request, order: list[int] = order) -> str:
            changed = Request(request.messages, temperature=1.0, replica=order[request.replica % 6])
            return wavers(changed)

        outcome, _ = run_node(NODE, ROW, folder, shuffled)
        assert outcome.trace.spans[0].notes["cost"] == pytest.approx(1 - 4 / 6, abs=1e-6)
        assert outcome.prediction["answer"] == "xfe"


def test_the_heuristic_saves_partial_plans_and_finds_the_same(folder: Path) -> None:
    """Many ways lead on; imagination and memory point at one. Without them: Dijkstra's algorithm, and no call more."""

    def wide(request: Request) -> str:
        made = made_so_far(request)
        if made is None:
            return "add_a add_b add_c"
        if len(made) == 3:
            return "finish"
        return call("abcdef"[(request.replica + len(made)) % 3], len(made))

    led, script = run_node({**NODE, "nodes": 60}, ROW, folder, wide)
    blind, longer = run_node({**NODE, "nodes": 60, "heuristic": False}, ROW, folder, wide)
    few, many = (o.trace.spans[0].notes["expanded"] for o in (led, blind))
    assert led.prediction["answer"] == "xabc" and few < many, (few, many)
    assert not any("Which tools" in str(r.messages[0]["content"]) for r in longer.requests)
    assert sum("Which tools" in str(r.messages[0]["content"]) for r in script.requests) == 1


@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_limits_hold_and_an_unfinished_plan_is_no_answer(nodes: int, folder: Path) -> None:
    def endless(request: Request) -> str:
        made = made_so_far(request)
        return "" if made is None else call("abcdef"[request.replica], len(made))

    outcome, script = run_node({**NODE, "nodes": nodes, "depth": 30}, ROW, folder, endless)
    assert outcome.failure == "steps" and f"after {nodes} partial plans" in str(outcome.message)
    kind = {"kind": "astar", "signature": "question -> answer", **{k: v for k, v in NODE.items() if k != "astar"}}
    assert len(script.requests) <= make_node("n", {**kind, "nodes": nodes, "depth": 30}, folder).max_calls
    outcome, _ = run_node({**NODE, "nodes": 50, "depth": 2, "branching": 1}, ROW, folder, endless)
    assert outcome.failure == "steps" and "exhausted" in str(outcome.message)


def test_calls_that_cannot_be_made_are_no_candidates(folder: Path) -> None:
    odd = [
        'call: {"tool": "dance", "arguments": {}}',
        'call: {"tool": "add_a", "arguments": {}}',
        'call: {"tool": "add_a", "arguments": {"text": "$3"}}',
        'call: {"tool": "add_a", "arguments": {"text": "x", "loud": true}}',
        "well, let me think",
        Response('call: {"tool": "add_a", "arg', "length", 5, 9, 0.0),
    ]

    def mixed(request: Request) -> Any:
        made = made_so_far(request)
        if made is None or len(made) == 1:
            return "finish"
        return odd[request.replica] if request.replica < len(odd) else call("b", 0)

    outcome, _ = run_node({**NODE, "samples": 8}, ROW, folder, mixed)
    assert outcome.prediction["answer"] == "xb" and outcome.trace.spans[0].notes["unreadable"] == 6
    assert outcome.trace.spans[0].notes["cost"] == 0.0, "shares are of the answers that could be read"
    outcome, _ = run_node(NODE, ROW, folder, lambda request: "no idea")
    assert outcome.failure == "unparsed"
    outcome, _ = run_node(NODE, ROW, folder, lambda request: "finish")
    assert outcome.failure == "unparsed", "an empty plan is none"


def test_python_that_a_plan_writes_runs_in_the_sandbox(folder: Path) -> None:
    node = {**NODE, "tools": ["sandbox:session"], "finish": ["python"], "samples": 1}
    write = {"tool": "python", "arguments": {"code": "print(6 * 7)"}}
    outcome, _ = run_node(node, ROW, folder, lambda request: f"call: {json.dumps(write)}")
    assert outcome.prediction["answer"] == "42", outcome.message


def test_a_failing_tool_fails_the_example_and_arguments_are_filled_in(folder: Path) -> None:
    tools = [*NODE["tools"], "python:letters.py:add_g"]
    outcome, _ = run_node({**NODE, "tools": tools}, ROW, folder, spells("ag"))
    assert outcome.failure == "tool" and "out of ink" in str(outcome.message)

    def stamps(request: Request) -> str:
        assert "mark" not in str(request.messages[0]["content"]), "filled in, and hidden"
        return 'call: {"tool": "stamp", "arguments": {"text": "x"}}'

    node = {**NODE, "tools": ["python:letters.py:stamp"], "arguments": {"mark": "word"}, "imagine": False, "nodes": 3}
    outcome, _ = run_node(node, {**ROW, "word": "z"}, folder, lambda r: "finish" if "1. stamp" in str(r) else stamps(r))
    assert outcome.prediction["answer"] == "x!z", outcome.message


def test_tools_that_take_nothing_are_named_and_some_of_them_end_a_plan(folder: Path) -> None:
    """Then "finish" is no word of the prompt; a call and a name are the same."""
    node = {**NODE, "arguments": {"text": "word"}, "finish": ["add_b"]}

    def say(request: Request) -> str:
        text = "\n".join(str(m["content"]) for m in request.messages)
        assert ("finish" not in text and "next: one of add_a, add_b" in text) or "Which tools" in text
        first = "Calls so far" not in text
        return ("add_a" if request.replica % 2 else 'call: {"tool": "add_a", "arguments": {}}') if first else "add_b."

    outcome, _ = run_node({**node, "imagine": False}, {**ROW, "word": "z"}, folder, say)
    assert outcome.prediction["answer"] == "zb" and len(outcome.prediction["plan"]) == 2, outcome.message
    assert outcome.trace.spans[0].notes["cost"] == 0.0
    plans = [{"tools": ["add_b"]}]
    outcome, _ = run_node(
        {**node, "imagine": False, "plans": plans},
        {**ROW, "word": "z"},
        folder,
        lambda request: "add_b" if request.replica == 4 else "add_a",
    )
    assert [c["tool"] for c in outcome.prediction["plan"]] == ["add_b"], "a remembered plan of one call"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"finish": ["add_z"]}, "there is no tool 'add_z'"),
        ({"plans": [{"tools": ["add_z"]}]}, "a plan has the tool 'add_z'"),
        ({"tools": ["python:letters.py:add_a"] * 2}, "two tools are named 'add_a'"),
        ({"astar": "question -> a, b"}, "one output"),
        ({"plans": [{"tools": []}]}, "at least one"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(settings: Any, words: str, folder: Path) -> None:
    with pytest.raises((SpecError, ValueError), match=words):
        make_workflow({"n": {**NODE, **settings}}, folder)


def test_a_resumed_run_asks_nobody(folder: Path) -> None:
    workflow = make_workflow({"n": NODE}, folder)
    first, again = Script(wavers), Script(wavers)
    (before,) = run_rows(workflow, [ROW], first, folder / "run.db")
    (after,) = run_rows(workflow, [ROW], again, folder / "run.db")
    assert first.requests and not again.requests
    assert after.prediction == before.prediction and after.trace.spans[0].notes == before.trace.spans[0].notes


# The optimizer, in a world where each kind of task has one good plan


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
        return "finish" if draw.random() < 0.9 else call(draw.choice("abcdef"), len(made), start)
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
    (folder / "letters.py").write_text(TOOLS)
    for split, count in (("train", 24), ("val", 16), ("test", 30)):
        rows = []
        for i in range(count):
            start = f"{split}{i}s{seed}"
            word = PLANS[i % 4] if patterned else plan_of(start)
            rows.append({"question": f"kind {i % 4}: begin with {start}", "answer": start + word})
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rng = random.Random(seed)
    sets = [
        [{"task": f"question: kind {k}", "tools": [f"add_{rng.choice('abcdef')}" for _ in range(3)]} for k in range(4)]
        for _ in range(6)
    ]
    file = folder / "workflow.yaml"
    file.write_text(
        json.dumps(
            {
                "name": "plans",
                "lm": {"model": "openai/simulated", "api_base": "http://127.0.0.1:9/v1"},
                "seed": seed,
                "data": {s: f"{s}.jsonl" for s in ("train", "val", "test")},
                "metric": "exact_match(answer)",
                "nodes": {"n": {**NODE, "samples": 5, "nodes": 8}},
                "optimize": [optimizer],
                "budget": {"calls": calls},
                "proof": {"when_unchanged": "test"},
                "search": {
                    "nodes.n.alpha": {"float": [0.0, 1.0]},
                    "nodes.n.beta": {"float": [0.0, 1.0]},
                    "nodes.n.plans": [[], *sets],
                    "nodes.n.branching": [2, 4],
                },
            }
        )
    )
    asked: list[Request] = []

    def say(request: Request) -> str:
        asked.append(request)
        if len(asked) == kill_at:
            raise Killed
        return planner(request, patterned=patterned)

    options = Options(out=str(folder / "out.yaml"))
    try:
        report = optimize(file, database=folder / "run.db", pool=Script(say), options=options)
    except (Killed, BaseExceptionGroup):
        report = resume("last", database=folder / "run.db", pool=Script(say), options=options)
    assert report.status in ("finished", "budget"), report.error
    assert len(asked) <= calls
    return report


@pytest.mark.slow
def test_remembered_plans_beat_random_search_with_as_many_calls(tmp_path: Path) -> None:
    differences = []
    for seed in range(3):
        ours = run_world(tmp_path / f"ours{seed}", {"astar": {}}, seed)
        other = run_world(tmp_path / f"random{seed}", {"random": {"trials": 20}}, seed, calls=ours.spent["calls"])
        differences.append(ours.best["test"]["score"] - other.best["test"]["score"])
    assert lower_bound(differences) > 0, differences
    entries = ours.winner.get("nodes.n.plans")
    assert entries and all("train" in e["task"] for e in entries), "the memory holds training tasks alone"


@pytest.mark.slow
def test_where_plans_have_no_pattern_no_gain_is_claimed(tmp_path: Path) -> None:
    for seed in range(2):
        report = run_world(tmp_path / f"null{seed}", {"astar": {}}, seed, patterned=False)
        assert not report.gain_shown, (report.baseline, report.best)


@pytest.mark.slow
def test_memories_are_made_of_successes_alone_and_val_decides(tmp_path: Path) -> None:
    report = run_world(tmp_path / "world", {"astar": {"rounds": 1}}, 7)
    good = {tuple(f"add_{c}" for c in word) for word in PLANS}
    tried = [values for values in candidates(tmp_path / "world") if "nodes.n.plans" in values]
    assert tried
    for values in tried:
        assert {tuple(e["tools"]) for e in values["nodes.n.plans"]} <= good
    assert report.best["val"] >= report.baseline["val"]


@pytest.mark.slow
def test_a_run_that_was_killed_ends_as_if_it_never_was(tmp_path: Path) -> None:
    whole = run_world(tmp_path / "whole", {"astar": {"rounds": 1}}, 7)
    again = run_world(tmp_path / "killed", {"astar": {"rounds": 1}}, 7, kill_at=900)
    assert again.winner == whole.winner and again.best["test"] == whole.best["test"]
    assert again.spent["calls"] <= whole.spent["calls"] + 8
