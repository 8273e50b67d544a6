"""The node `tree_search`: look-ahead gets out of a trap, limits hold, and what cannot be judged is no zero."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import lower_bound, optimize_killed
from tests.helpers.scripted import Script, make_workflow, run_node, run_rows
from tests.helpers.webs import lured, make, overlap

from workbench.errors import SpecError
from workbench.lm import Request, Response
from workbench.workflow import make_node
from workbench_tree_search import learned_value as learned
from workbench_tree_search.prompts import most_frequent, read_action, read_verdict
from workbench_tree_search.settings import JUDGEMENTS

WALK: dict[str, Any] = {
    "tree_search": "web",
    "task": {"pages": "pages", "start": "start", "goal": "goal"},
    "show": ["question"],
    "samples": 4,
    "branching": 2,
    "max_steps": 3,
    "depth": 3,
    "evaluations": 8,
    "value": "python:judges.py:overlap",
}
JUDGES = '''
import hashlib
from tests.helpers.webs import overlap  # noqa: F401

def sure(inputs, position):
    return 1.0

def silent(inputs, position):
    return None

def loud(inputs, position):
    return 7

def noisy(inputs, position):
    """The truth, which a test may look at, drowned in noise that depends on the state alone."""
    noise = int(hashlib.sha256(position.observation.encode()).hexdigest()[:6], 16) / 0xFFFFFF
    return 0.7 * overlap(inputs, position) + 0.29 * noise
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "judges.py").write_text(JUDGES)
    return tmp_path


def walk(folder: Path, seed: int = 0, say: Any = lured, row: Any = None, **settings: Any) -> tuple[Any, Script, Any]:
    """(prediction or failure, script, notes of the node)."""
    outcome, script = run_node({**WALK, **settings}, row or make(seed), folder, say)
    notes = outcome.trace.spans[0].notes
    return (outcome.prediction if outcome.failure is None else outcome), script, notes


@pytest.mark.parametrize("order", ["best_first", "bfs", "dfs", "beam", "mcts"])
def test_greedy_fails_in_the_trap_and_every_search_gets_out(order: str, folder: Path) -> None:
    for seed in range(3):
        trapped, _, _ = walk(folder, seed, order="greedy")
        assert trapped["score"] == 0.0 and len(trapped["actions"]) == 3
        found, _, notes = walk(folder, seed, order=order, evaluations=14)
        assert found["score"] == 1.0, notes
        assert len(found["actions"]) == 3 and "is here" in found["observation"]


def test_a_judging_model_does_as_well_as_a_function(folder: Path) -> None:
    """On track where the page holds more words of the question than its links promise; success with all three."""

    def say(request: Request) -> str:
        text = str(request.messages[-1]["content"])
        if not text.endswith("judgement:"):
            return lured(request)
        question = text.split("\n")[0].removeprefix("question: ")
        last = text.rpartition("observation: ")[2].partition("\njudgement")[0]
        worth = overlap({"question": question}, type("P", (), {"observation": last}))
        return "success" if worth == 1 else "on track" if worth > 0.5 else "Off track."

    found, script, notes = walk(folder, say=say, value="lm")
    assert found["score"] == 1.0 and notes["unreadable"] == 0
    judged = [r for r in script.requests if str(r.messages[-1]["content"]).endswith("judgement:")]
    assert len(judged) <= JUDGEMENTS * sum(s["evaluations"] for s in notes["searches"])


def test_a_state_worth_one_ends_the_search_at_once(folder: Path) -> None:
    _, _, notes = walk(folder, value="python:judges.py:sure", max_steps=1)
    (search,) = notes["searches"]
    assert search["evaluations"] == 1 and search["stopped"] == "goal" and search["value"] == 1.0


@pytest.mark.parametrize("order", ["best_first", "bfs", "dfs", "beam", "mcts", "greedy"])
def test_evaluations_and_calls_stay_within_what_was_promised(order: str, folder: Path) -> None:
    """Every answer is another one, so nothing is saved by the journal."""
    rng = random.Random(order)

    def say(request: Request) -> str:
        text = str(request.messages[-1]["content"])
        if text.endswith("judgement:"):
            return rng.choice(["on track", "off track"])
        return rng.choice(text.rpartition("You can: ")[2].partition("\n")[0].split(", "))

    for seed in range(5):
        sizes = {
            "branching": rng.randint(1, 3),
            "depth": rng.randint(1, 3),
            "evaluations": rng.randint(1, 9),
            "samples": rng.randint(1, 5),
            "max_steps": rng.randint(1, 3),
        }
        node = {**WALK, **sizes, "order": order, "value": "lm"}
        outcome, script = run_node(node, make(seed), folder, say)
        kind = {"kind": "tree_search", "environment": "web", **{k: v for k, v in node.items() if k != "tree_search"}}
        assert len(script.requests) <= make_node("n", kind, folder, "loaded").max_calls, sizes
        assert len(outcome.trace.calls) <= make_node("n", kind, folder, "loaded").max_calls, sizes
        for search in outcome.trace.spans[0].notes.get("searches", ()):
            assert search["evaluations"] <= sizes["evaluations"]
            assert all(len(actions) <= 3 * sizes["depth"] for actions, _ in search["looked_at"])


def test_the_ceiling_of_calls_is_reached_so_it_is_no_mere_guess(folder: Path) -> None:
    """A tree of new pages at every click: nothing is saved, and the count is that of the formula."""
    pages = {"p": {"text": "p", "links": {}}}
    for depth in range(1, 5):
        for way in itertools.product("ab", repeat=depth):
            name = "p" + "".join(way)
            pages[name] = {"text": name, "links": {}}
            pages[name[:-1]]["links"][f"go {name}"] = name
    row = {"question": "Find nothing about the x y z.", "pages": pages, "start": "p", "goal": "pbbbb"}

    def say(request: Request) -> str:
        text = str(request.messages[-1]["content"])
        if text.endswith("judgement:"):
            return "off track"
        hints = text.rpartition("You can: ")[2].partition("\n")[0].split(", ")
        return hints[request.replica % 2]

    _, script, _ = walk(
        folder,
        say=say,
        row=row,
        order="bfs",
        value="lm",
        max_steps=1,
        depth=3,
        evaluations=20,
        branching=2,
        samples=4,
    )
    assert len(script.requests) == (1 + 2 + 4) * 4 + (2 + 4 + 8) * JUDGEMENTS
    settings = {k: v for k, v in WALK.items() if k != "tree_search"} | {
        "value": "lm",
        "max_steps": 1,
        "depth": 3,
        "evaluations": 20,
    }
    node = make_node("n", {"kind": "tree_search", "environment": "web", **settings}, folder, "loaded")
    assert node.max_calls == len(script.requests)


@pytest.mark.slow
def test_a_noisy_value_serves_better_the_more_states_it_may_look_at(folder: Path) -> None:
    def rate(evaluations: int) -> float:
        how = {"value": "python:judges.py:noisy", "evaluations": evaluations, "max_steps": 1}
        runs = (walk(folder, s, **how) for s in range(30))
        return statistics.mean(found["score"] for found, _, _ in runs)

    few, some, many = rate(2), rate(6), rate(12)
    assert few < some < many and many >= 0.9, (few, some, many)


def test_what_cannot_be_judged_is_no_zero_and_the_most_frequent_action_is_taken(folder: Path) -> None:
    found, _, notes = walk(folder, value="python:judges.py:silent", max_steps=1, order="bfs")
    search = notes["searches"][0]
    assert all(value is None for _, value in search["looked_at"]) and search["value"] is None
    assert search["evaluations"] > 1 and len(found["actions"]) == 1
    thing = make(0)["question"].rstrip(".").split()[-1]
    assert found["actions"] == [f"click {thing}s"], "what greedy would have done"

    def mumbles(request: Request) -> str:
        text = str(request.messages[-1]["content"])
        return "who knows" if text.endswith("judgement:") else lured(request)

    _, _, notes = walk(folder, say=mumbles, value="lm", max_steps=1, evaluations=3)
    assert notes["unreadable"] == 3 * JUDGEMENTS and all(
        value is None for _, value in notes["searches"][0]["looked_at"]
    )


def test_answers_without_an_action_are_counted_and_only_such_answers_fail_the_example(folder: Path) -> None:
    def half(request: Request) -> str | Response:
        if request.replica % 2:
            return Response("click ", "length", 5, 1, 0.0)
        return lured(request)

    found, _, notes = walk(folder, say=half, order="greedy")
    assert notes["unreadable"] == 6 and len(found["actions"]) == 3
    for order in ("greedy", "best_first"):
        outcome, _, _ = walk(folder, say=lambda request: "dance", order=order)
        assert outcome.failure == "unparsed" and "names an action" in outcome.message


def test_a_fault_of_the_environment_closes_a_branch_and_is_told(folder: Path) -> None:
    (folder / "worlds.py").write_text(
        "from workbench_kit.acting import Environment, Step\nclass Brittle(Environment):\n    'Breaks on left.'\n"
        "    def reset(self, task):\n        self.state = []\n        return 'go'\n    def step(self, action):\n"
        "        if action == 'left' or task_breaks(self):\n            raise OSError('snapped')\n"
        "        self.state.append(action)\n        return Step('fine', len(self.state) > 1)\n"
        "    def actions(self):\n        return ['left', 'right']\n"
        "    def score(self):\n        return len(self.state) / 2\n"
        "def task_breaks(world):\n    return False\nclass Broken(Brittle):\n    'Breaks on everything.'\n"
        "    def step(self, action):\n        raise OSError('snapped')\n"
        "def even(inputs, position):\n    return 0.5\n"
    )
    node = {"tree_search": "python:worlds.py:Brittle", "value": "python:worlds.py:even", "max_steps": 2, "depth": 1}

    def either(request: Request) -> str:
        return "right" if request.replica % 3 == 2 else "left"

    outcome, _ = run_node(node, {}, folder, either)
    assert outcome.failure is None and outcome.prediction["score"] == 1.0, outcome.message
    searches = outcome.trace.spans[0].notes["searches"]
    assert [s["failures"] for s in searches] == [["python:worlds.py:Brittle: OSError: snapped"]] * 2
    assert searches[0]["looked_at"] == [[["left"], None], [["right"], 0.5]]
    outcome, _ = run_node({**node, "tree_search": "python:worlds.py:Broken"}, {}, folder, either)
    assert outcome.failure == "environment" and "snapped" in str(outcome.message)


def test_what_was_found_must_be_reached_by_just_doing_it(folder: Path) -> None:
    (folder / "worlds.py").write_text(
        "import random\nfrom workbench_kit.acting import Environment, Step\nclass Dice(Environment):\n"
        "    'Says what it rolled, and remembers it.'\n"
        "    def reset(self, task):\n        self.state = []\n        return 'go'\n"
        "    def step(self, action):\n        self.state.append(random.SystemRandom().random())\n"
        "        return Step('rolled')\n"
        "    def score(self):\n        return 0.0\n"
    )
    node = {"tree_search": "python:worlds.py:Dice", "value": "python:judges.py:sure", "max_steps": 1}
    outcome, _ = run_node(node, {}, folder, lambda request: "roll")
    assert outcome.failure == "environment" and "is not deterministic" in str(outcome.message)


def test_a_resumed_run_asks_nobody_and_plays_nothing(folder: Path) -> None:
    workflow = make_workflow({"n": {**WALK, "value": "lm"}}, folder)

    def say(request: Request) -> str:
        text = str(request.messages[-1]["content"])
        return "on track" if text.endswith("judgement:") else lured(request)

    first, again = Script(say), Script(say)
    (before,) = run_rows(workflow, [make(1)], first, folder / "run.db")
    (after,) = run_rows(workflow, [make(1)], again, folder / "run.db")
    assert first.requests and not again.requests
    assert after.prediction == before.prediction and after.trace.spans[0].notes == before.trace.spans[0].notes


def test_states_met_twice_are_judged_once(folder: Path) -> None:
    """The trap's help page and `back` lead to pages that were seen before."""

    def say(request: Request) -> str:
        text = str(request.messages[-1]["content"])
        if text.endswith("judgement:"):
            return "off track"
        hints = text.rpartition("You can: ")[2].partition("\n")[0].split(", ")
        return hints[request.replica % len(hints)]

    _, script, notes = walk(folder, say=say, value="lm", max_steps=1, order="bfs", evaluations=12)
    asked = [str(r.messages[-1]["content"]) for r in script.requests if "judgement:" in str(r.messages[-1]["content"])]
    assert set(Counter(asked).values()) == {JUDGEMENTS}
    assert len(set(asked)) <= notes["searches"][0]["evaluations"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tree_search": "wab"}, "there is no environment 'wab'"),
        ({"settings": {"limits": 1}}, "limits"),
        ({"value": "guess"}, "judges nothing"),
        ({"value": "python:judges.py:lost"}, "no function 'lost'"),
        ({"order": "worst_first"}, "greedy"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_runs(settings: Any, words: str, folder: Path) -> None:
    with pytest.raises((SpecError, ValueError), match=words):
        make_workflow({"n": {**WALK, **settings}}, folder)


def test_a_value_beyond_its_range_is_a_fault_of_its_function(folder: Path) -> None:
    outcome, _, _ = walk(folder, value="python:judges.py:loud")
    assert outcome.failure == "code" and "in [0, 1]" in outcome.message


def test_answers_are_read_by_what_can_be_done() -> None:
    hints = ["click wool", "click wool bowls", "back"]
    assert read_action("Action: click wool.", hints) == "click wool"
    assert read_action("I would click wool bowls", hints) == "click wool bowls"
    assert read_action("sing", hints) is None and read_action("sing", []) is None
    assert read_action("action: select 1", None) == "select 1" and read_action("  ", None) is None
    assert [read_verdict(t) for t in ("success", "On track.", "judgement: off track", "well")] == [1.0, 0.5, 0.0, None]
    assert most_frequent(["b", "a", "a", "c", "b"], 2) == ["b", "a"]


# The learned value


def test_a_fit_finds_the_planted_words_and_nothing_in_noise() -> None:
    rng = random.Random(0)
    words = [f"w{chr(97 + i)}" for i in range(12)]
    texts = [rng.sample(words, 6) for _ in range(400)]
    pairs = [(" ".join(t), float("wa" in t and "wb" not in t)) for t in texts]
    weights = learned.fit_weights(pairs)
    assert weights["wa"] > 1 and weights["wb"] < -1
    assert all(abs(weights[w]) < 0.5 * min(weights["wa"], -weights["wb"]) for w in words[2:])
    right = sum((learned.estimate_value(weights, t) > 0.5) == bool(y) for t, y in pairs)
    assert right / len(pairs) > 0.95
    noise = learned.fit_weights([(t, float(rng.random() < 0.5)) for t, _ in pairs])
    assert max(abs(w) for name, w in noise.items() if name != learned.BIAS) < 0.7
    assert learned.fit_weights([("a", 1.0), ("b", 1.0)]) == {} and learned.fit_weights([]) == {}


def fitted(folder: Path, seed: int, optimizer: Any, *, told: bool = True, kill_at: int = 0) -> Any:
    """A run on webs where the judging model says nothing of use; told=False: nor do the pages.

    kill_at: the run is killed at this request, and resumed.
    """
    folder.mkdir()
    for split, count, start in (("train", 16, 0), ("val", 12, 100), ("test", 24, 200)):
        rows = [make(1000 * seed + start + i) for i in range(count)]
        if not told:
            for row in rows:
                for page in row["pages"].values():
                    page["text"] = "A page."
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "metric.py").write_text("def reached(example, prediction):\n    return prediction['score']\n")
    node = {**WALK, "value": "lm", "samples": 4, "max_steps": 1, "evaluations": 5}
    file = folder / "workflow.yaml"
    file.write_text(
        json.dumps(
            {
                "name": "webs",
                "lm": {"model": "openai/simulated", "api_base": "http://127.0.0.1:9/v1"},
                "seed": seed,
                "data": {s: f"{s}.jsonl" for s in ("train", "val", "test")},
                "metric": "python:metric.py:reached",
                "nodes": {"n": node},
                "optimize": [optimizer],
                "budget": {"calls": 3500},
                "proof": {"when_unchanged": "test"},
                "search": {
                    "nodes.n.order": ["best_first", "bfs", "dfs", "mcts"],
                    "nodes.n.samples": [2, 3, 4],
                    "nodes.n.depth": [2, 3],
                    "nodes.n.history": [0, 2, 4],
                },
            }
        )
    )

    def say(request: Request) -> str:
        text = str(request.messages[-1]["content"])
        if not text.endswith("judgement:"):
            return lured(request)
        return ("on track", "off track")[hashlib.sha256(request.key("coin").encode()).digest()[0] % 2]

    report, _ = optimize_killed(file, say, kill_at)
    return report


@pytest.mark.long
@pytest.mark.slow
def test_a_learned_value_beats_a_coin_and_random_search_over_orders(tmp_path: Path) -> None:
    differences = []
    for seed in range(4):
        ours = fitted(tmp_path / f"ours{seed}", seed, {"fit_value": {}})
        other = fitted(tmp_path / f"other{seed}", seed, {"random": {"trials": 40}})
        differences.append(ours.best["test"]["score"] - other.best["test"]["score"])
        assert max(ours.spent["calls"], other.spent["calls"]) <= 3500
    assert lower_bound(differences) > 0, differences


@pytest.mark.slow
def test_where_the_pages_say_nothing_no_gain_is_claimed(tmp_path: Path) -> None:
    for seed in range(3):
        report = fitted(tmp_path / f"null{seed}", seed, {"fit_value": {}}, told=False)
        assert not report.gain_shown


@pytest.mark.slow
@pytest.mark.parametrize("kill_at", [pytest.param(400, marks=pytest.mark.long), 1200])
def test_a_run_that_was_killed_ends_as_if_it_never_was(kill_at: int, tmp_path: Path) -> None:
    """In the midst of looking around on train, and while the learned value is tried on val."""
    whole = fitted(tmp_path / "whole", 0, {"fit_value": {}})
    again = fitted(tmp_path / "killed", 0, {"fit_value": {}}, kill_at=kill_at)
    assert again.winner.get("nodes.n.weights") == whole.winner.get("nodes.n.weights")
    assert again.best["test"] == whole.best["test"] and again.spent["calls"] <= whole.spent["calls"] + 8
