"""`tree` with `order: astar` over plans (ToolChain*): costs by hand, limits, and a memory of plans in planted worlds.

Simulated models throughout. The costs are those of workflows/plan_costs.py.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import candidates, lower_bound
from tests.helpers.scripted import Script, make_workflow, run_rows

from workbench.errors import SpecError
from workbench.lm import Request, Response
from workbench.run import Options, optimize, resume
from workbench.testing import Killed

COSTS = Path(__file__).parents[3] / "workflows" / "plan_costs.py"
_spec = importlib.util.spec_from_file_location("plan_costs", COSTS)
assert _spec is not None and _spec.loader is not None
costs: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(costs)


def calls(names: Sequence[str]) -> list[dict[str, Any]]:
    return [{"name": name, "arguments": {}} for name in names]


def remembered(plans: Sequence[Sequence[str]]) -> str:
    """Plans as a `recall` node shows them."""
    return "\n".join(f"question: q\ntool: finish\nplan: {json.dumps(calls(plan))}\n" for plan in plans)


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
        memory = remembered([[rng.choice("abcd") for _ in range(rng.randint(1, 6))] for _ in range(rng.randrange(4))])
        imagined = "\n".join(rng.choice("abcd") for _ in range(rng.randrange(5)))
        weight, share = rng.random(), rng.random()
        tool = rng.choice([path[-1], "finish"])
        assert 0.0 <= costs.compute_step_cost(calls(path), tool, share, memory, weight) <= 1.0
        assert 0.0 <= costs.estimate_remaining(calls(path), tool, memory, imagined, weight) <= 1.0


def test_a_remembered_plan_costs_nothing_and_without_memory_the_models_consistency_decides() -> None:
    plan = ["find", "read", "sum"]
    cost = costs.compute_step_cost
    for n in range(1, 4):
        assert costs.measure_similarity(plan[:n], [plan]) == 1.0
        assert cost(calls(plan[:n]), plan[n - 1], 0.2, remembered([plan]), 0.5) == 0.0
    assert cost(calls(plan), "finish", 0.2, remembered([plan]), 0.5) == 0.0, "it ends where the remembered one does"
    assert cost(calls(plan[:2]), "finish", 0.2, remembered([plan]), 0.5) == 0.0, "a shorter one is part of it"
    assert cost(calls(plan), "sum", 0.2, "", 0.9) == pytest.approx(0.8), "1 - share, whatever alpha is"
    assert cost(calls(["find", "sum"]), "sum", 0.25, remembered([["find", "read"]]), 0.5) == pytest.approx(
        (0.5 * 0.75) ** 0.5
    )
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
    left = costs.estimate_remaining
    assert left(calls(["find", "x", "sum"]), "sum", "", "find, read\n2. sum", 0.3) == pytest.approx(1 / 3)
    assert left(calls(["find"]), "find", "", "find sum", 0.3) == 0.5 and left(calls(["find"]), "find", "", "", 0.3) == 0
    assert left(calls(["find"]), "find", remembered(plans), "find sum", 0.5) == pytest.approx((0.75 * 0.5) ** 0.5)
    assert left(calls(["find"]), "finish", remembered(plans), "find sum", 0.5) == 0.0, "nothing is left at the end"


# The search. Tools append a letter; the planted plan of a kind of task is a word.

TOOLS = "".join(f"def add_{c}(text: str) -> str:\n    return text + '{c}'\n" for c in "abcdef")
TOOLS += "def last(results: list) -> str:\n    return results[-1]\n"
PLANS = ("abc", "dea", "fbd", "cef")
ADDRESSES = [f"python:letters.py:add_{c}" for c in "abcdef"]
NAMES = [f"add_{c}" for c in "abcdef"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tools(tmp_path)


def write_tools(folder: Path) -> Path:
    (folder / "letters.py").write_text(TOOLS)
    (folder / "plan_costs.py").write_text(COSTS.read_text(encoding="utf-8"))
    return folder


def nodes(entries: Sequence[Any] = (), **settings: Any) -> dict[str, Any]:
    """A memory of plans, a plan imagined, A* over plans, and the calls of the plan that it found."""
    names = ", ".join(f"'{name}'" for name in [*NAMES, "finish"])
    propose = f"question, plan -> tool: Literal[{names}], arguments: dict"
    step = {"tool": "python:plan_costs.py:compute_step_cost", "constants": {"alpha": 0.5}, "output": "cost"}
    left = {"tool": "python:plan_costs.py:estimate_remaining", "constants": {"beta": 0.5}, "output": "rest"}
    plan = {
        "kind": "tree",
        "nodes": {
            "propose": {"predict": propose, "instructions": "Name the next call.", "decoding": {"temperature": 1.0}},
            "extend": {
                "tool": "python:plan_costs.py:extend_plan",
                "arguments": {name: name for name in ("plan", "tool", "arguments")},
                "output": "plan",
            },
        },
        "carry": {"plan": []},
        "judge": {"kind": "workflow", "nodes": {"step": step, "left": left}},
        "order": "astar",
        "cost": "cost",
        "rest": "rest",
        "share": "share",
        "until": "tool == 'finish'",
        "branching": 6,
        "evaluations": 120,
        "depth": 6,
        **settings,
    }
    return {
        "remember": {"recall": "question -> remembered", "k": 8, "entries": list(entries)},
        "imagine": {"predict": "question -> imagined", "instructions": "Which tools would you use, in which order?"},
        "plan": plan,
        "make": {"calls": "plan -> made, results", "tools": ADDRESSES},
        "answer": {"tool": "python:letters.py:last", "output": "answer"},
    }


def entry(task: str, word: str) -> dict[str, Any]:
    plan = calls([f"add_{letter}" for letter in word])
    return {"inputs": {"question": task}, "outputs": {"plan": plan}}


ROW = {"question": "kind 0: begin with x"}


def call(letter: str, made: int, start: str = "x") -> str:
    text: Any = {"$ref": str(made)} if made else start
    return f"tool: add_{letter}\narguments: {json.dumps({'text': text})}"


END = "tool: finish\narguments: {}"


def made_so_far(request: Request) -> str | None:
    """The letters of the calls so far; None where a whole plan is asked for."""
    if "Which tools" in str(request.messages[0]["content"]):
        return None
    return "".join(re.findall(r'"name": "add_(.)"', str(request.messages[-1]["content"])))


def spells(word: str) -> Any:
    def say(request: Request) -> str:
        made = made_so_far(request)
        if made is None:
            return ", ".join(f"add_{c}" for c in word)
        return call(word[len(made)], len(made)) if len(made) < len(word) else END

    return say


def search(folder: Path, say: Any, row: dict[str, Any] = ROW, **settings: Any) -> tuple[Any, dict[str, Any], Script]:
    """The outcome, the notes of the tree, and the model."""
    script = Script(say)
    database = folder / f"{len(list(folder.glob('*.db')))}.db"
    (outcome,) = run_rows(make_workflow(nodes(**settings), folder), [row], script, database)
    return outcome, next(s.notes for s in outcome.trace.spans if s.node == "plan"), script


def cost_of(outcome: Any) -> float:
    return next(span.outputs["cost"] for span in outcome.trace.spans if span.node == "plan")


def test_a_plan_is_found_and_carried_out_with_results_passed_on(folder: Path) -> None:
    outcome, notes, script = search(folder, spells("abc"))
    assert outcome.prediction["answer"] == "xabc", outcome.message
    assert [c["name"] for c in outcome.prediction["plan"]] == ["add_a", "add_b", "add_c"]
    assert outcome.prediction["plan"][1]["arguments"] == {"text": {"$ref": "1"}}
    assert cost_of(outcome) == 0.0 and notes == {"states": 4, "ended": "until"}
    assert len(script.requests) == 1 + 4 * 6


def wavers(request: Request) -> str:
    """Four of six answers go wrong at the first step; the plan abc gets two."""
    made = made_so_far(request)
    if made is None:
        return "none"
    if not made:
        return call("f" if request.replica // 1000 % 6 < 4 else "a", 0)
    if made[0] == "f":
        return call("e", len(made)) if len(made) < 2 else END
    return spells("abc")(request)


def test_memory_overrules_the_majority_and_without_it_the_majority_wins(folder: Path) -> None:
    outcome, _, _ = search(folder, wavers)
    assert outcome.prediction["answer"] == "xfe"
    paths = [span.outputs["cost"] for span in outcome.trace.spans if span.node == "plan.judge"]
    assert min(paths) == 0.0 and pytest.approx(1 - 4 / 6) in paths and pytest.approx(1 - 2 / 6) in paths
    outcome, _, _ = search(folder, wavers, entries=[entry("kind 0", "abc")])
    assert outcome.prediction["answer"] == "xabc" and cost_of(outcome) == 0.0


def test_shuffled_answers_leave_the_frequencies_and_the_plan_as_they_are(folder: Path) -> None:
    for seed in range(4):
        order = random.Random(seed).sample(range(6), 6)

        def shuffled(request: Request, order: list[int] = order) -> str:
            replica = order[request.replica // 1000 % 6] * 1000
            return wavers(Request(request.messages, temperature=1.0, replica=replica))

        outcome, notes, _ = search(folder, shuffled)
        assert outcome.prediction["answer"] == "xfe" and notes["states"] == 3


def test_each_child_is_judged_once_and_told_how_often_it_was_drawn(folder: Path) -> None:
    outcome, _, script = search(folder, wavers)
    judged = [span for span in outcome.trace.spans if span.node == "plan.judge"]
    shares = [round(span.inputs["share"], 6) for span in judged]
    assert sorted(shares[:2]) == [0.333333, 0.666667] and len(judged) < len(script.requests) / 2


def test_the_estimate_saves_states_and_finds_the_same(folder: Path) -> None:
    """Many ways lead on; imagination points at one. Without it: Dijkstra's algorithm, and no call more."""

    def wide(request: Request) -> str:
        made = made_so_far(request)
        if made is None:
            return "add_a add_b add_c"
        if len(made) == 3:
            return END
        return call("abcdef"[(request.replica // 1000 + len(made)) % 3], len(made))

    led, few, script = search(folder, wide, evaluations=400)
    _, many, longer = search(folder, wide, evaluations=400, rest=None)
    assert led.prediction["answer"] == "xabc" and few["states"] < many["states"], (few, many)
    assert len(script.requests) < len(longer.requests)


def test_a_cheaper_way_that_is_longer_is_taken(folder: Path) -> None:
    """Two costs by hand: one step of 0.9, or three of 0.2. best_first, which counts no steps, takes the short one."""
    (folder / "maze.py").write_text(
        "def go(at: str, way: str) -> str:\n    return at + way\n"
        "def price(at: str) -> float:\n    return 0.9 if at == 'x' else 0.2\n"
        "def ended(at: str) -> bool:\n    return at in ('x', 'yyy')\n"
    )
    tree = {
        "kind": "tree",
        "nodes": {
            "choose": {"predict": "at -> way: Literal['x', 'y']", "decoding": {"temperature": 1.0}},
            "go": {"tool": "python:maze.py:go", "output": "at"},
        },
        "carry": {"at": ""},
        "judge": {
            "kind": "workflow",
            "nodes": {
                "price": {"tool": "python:maze.py:price", "output": "cost"},
                "ended": {"tool": "python:maze.py:ended", "output": "done"},
            },
        },
        "cost": "cost",
        "score": "cost",
        "until": "done",
        "evaluations": 40,
        "branching": 2,
    }

    def say(request: Request) -> str:
        return "xy"[request.replica // 1000 % 2]

    found = {}
    for order in ("astar", "best_first"):
        workflow = make_workflow({"n": {**tree, "order": order}}, folder)
        (outcome,) = run_rows(workflow, [{"q": "1"}], Script(say), folder / f"{order}.db")
        found[order] = outcome.prediction["at"]
    assert found == {"astar": "yyy", "best_first": "x"}


@pytest.mark.parametrize("evaluations", [6, 12, 30])
def test_limits_hold_and_an_unfinished_plan_is_no_answer(evaluations: int, folder: Path) -> None:
    def endless(request: Request) -> str:
        made = made_so_far(request)
        return "none" if made is None else call("abcdef"[request.replica // 1000 % 6], len(made))

    outcome, notes, script = search(folder, endless, evaluations=evaluations, depth=30)
    assert (
        outcome.failure == "steps" and f"none of {evaluations} states is one where tool == 'finish'" in outcome.message
    )
    assert notes["states"] == evaluations == len(script.requests) - 1
    assert make_workflow(nodes(evaluations=evaluations), folder).max_calls == evaluations + 1
    outcome, notes, _ = search(folder, endless, depth=2, branching=2)
    assert outcome.failure == "steps" and notes["states"] == 2 + 4


def test_calls_that_cannot_be_made_are_no_candidates(folder: Path) -> None:
    odd = [
        "tool: dance\narguments: {}",
        'tool: add_a\narguments: {"text": {"$ref": "3"}}',
        "tool: add_a",
        "well, let me think",
        Response('tool: add_a\narguments: {"te', "length", 5, 9, 0.0),
    ]

    def mixed(request: Request) -> Any:
        made, number = made_so_far(request), request.replica // 1000
        if made is None:
            return "none"
        return END if made else odd[number] if number < len(odd) else call("b", 0)

    outcome, notes, _ = search(folder, mixed, branching=8)
    assert outcome.prediction["answer"] == "xb", outcome.message
    assert cost_of(outcome) == 0.0 and notes["states"] == 2, "shares are of the answers that could be read"
    outcome, _, _ = search(folder, lambda request: "no idea")
    assert outcome.failure == "unparsed"
    outcome, _, _ = search(folder, lambda request: END)
    assert outcome.failure == "tool" and "a plan without a call is none" in str(outcome.message)


def test_where_no_answer_can_be_read_the_search_goes_on_elsewhere(folder: Path) -> None:
    """After the popular first step nothing is said that is a call; the plan of the few is found all the same."""

    def say(request: Request) -> str:
        made = made_so_far(request)
        return "hm" if made and made[0] == "f" else wavers(request)

    assert search(folder, say)[0].prediction["answer"] == "xabc"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cost": None}, "name the field of a step's cost, and until"),
        ({"until": None}, "name the field of a step's cost, and until"),
        ({"cost": "price"}, "no node inside 'plan' writes 'price'"),
        ({"rest": "left"}, "no node inside 'plan' writes 'left'"),
        ({"judge": None}, "share is told to the judge, and there is none"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused_before_anything_runs(settings: Any, words: str, folder: Path) -> None:
    with pytest.raises((SpecError, ValueError), match=words):
        make_workflow(nodes(**settings), folder)


def test_a_resumed_run_asks_nobody(folder: Path) -> None:
    workflow = make_workflow(nodes(), folder)
    first, again = Script(wavers), Script(wavers)
    (before,) = run_rows(workflow, [ROW], first, folder / "run.db")
    (after,) = run_rows(workflow, [ROW], again, folder / "run.db")
    assert first.requests and not again.requests
    assert after.prediction == before.prediction and after.trace.spans[0].notes == before.trace.spans[0].notes


# The memory, in a world where each kind of task has one good plan


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


def memory(trials: int = 3) -> dict[str, Any]:
    return {"memory": {"trials": trials, "kinds": ["examples"], "policies": ["lexical"], "k": 3}}


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


@pytest.mark.slow
def test_where_plans_have_no_pattern_no_gain_is_claimed(tmp_path: Path) -> None:
    for seed in range(2):
        report = run_world(tmp_path / f"null{seed}", memory(), seed, patterned=False)
        assert not report.gain_shown, (report.baseline, report.best)


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


@pytest.mark.slow
def test_a_run_that_was_killed_ends_as_if_it_never_was(tmp_path: Path) -> None:
    whole = run_world(tmp_path / "whole", memory(1), 7)
    again = run_world(tmp_path / "killed", memory(1), 7, kill_at=900)
    assert again.winner == whole.winner and again.best["test"] == whole.best["test"]
    assert again.spent["calls"] <= whole.spent["calls"] + 8
