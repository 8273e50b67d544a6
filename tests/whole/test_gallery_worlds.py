"""Published designs whose agents act in live worlds: each is right, and wrong where its mechanism is taken out.

The numbers in the names are those of the documents that list the designs.
"""

from __future__ import annotations

import importlib.util
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.gallery_scripts import CASES
from tests.helpers.gallery_tried import GALLERY, searched, tried
from tests.helpers.scripted import Script

from workbench.api import optimize
from workbench.run import Options


def told(one: Any, words: str) -> list[str]:
    """The prompts whose system message has these words."""
    return [str(r.messages[-1]["content"]) for r in one.script.requests if words in str(r.messages[0]["content"])]


def test_060_diff_history_shows_the_line_that_changed(tmp_path: Path) -> None:
    assert tried("diff_history", tmp_path).right == [True, True]
    assert tried("diff_history", tmp_path, {"nodes.watch.observations": "full"}).right == [False, False]


def test_169_asking_before_acting_learns_what_is_not_in_the_world(tmp_path: Path) -> None:
    assert tried("ask_before_acting", tmp_path).right == [True, True]
    assert tried("ask_before_acting", tmp_path, {"nodes.fetch.of.user.knows": ["question"]}).right == [False] * 2
    at_once = {"nodes.fetch.of.instructions": "Open a door. Write: open ROOM."}
    assert tried("ask_before_acting", tmp_path, at_once).right == [False, False]


def test_075_glee_each_knows_its_own_value_and_what_was_said(tmp_path: Path) -> None:
    whole = tried("glee", tmp_path)
    assert whole.right == [True, True]
    assert all("worth:" not in prompt for prompt in told(whole, "You sell"))
    assert all("cost:" not in prompt for prompt in told(whole, "You buy"))
    assert tried("glee", tmp_path, {"nodes.haggle.history": 0}).right == [False, True], "no offer comes down"


def test_182_entity_deduction_remembers_what_was_asked_of_one_who_knows(tmp_path: Path) -> None:
    whole = tried("entity_deduction", tmp_path)
    assert whole.right == [True] * 3
    assert all("secret:" not in prompt for prompt in told(whole, "Find out the word"))
    assert tried("entity_deduction", tmp_path, {"nodes.ask.history": 0}).right == [False] * 3
    unknown = {"nodes.ask.players.judge.signature": "observation -> action"}
    assert tried("entity_deduction", tmp_path, unknown).right == [False] * 3


def test_095_capo_revises_the_plan_when_something_new_shows(tmp_path: Path) -> None:
    def score(change: dict[str, Any]) -> float:
        return float(tried("capo", tmp_path, change).outcomes[0].prediction["score"])

    assert score({}) == 1.0
    assert score({"nodes.fetch.settings.meetings": "start"}) == 0.67, "from the second round on both go to one room"
    forgets = {f"nodes.fetch.players.{who}.signature": "observation -> plan, action" for who in ("ann", "bob")}
    assert score(forgets) < 1.0


def test_085_boxing_gym_tells_by_experiments_and_hands_on_words(tmp_path: Path) -> None:
    whole = tried("boxing_gym", tmp_path)
    assert whole.right == [True, True]
    assert all("cm" not in prompt.partition("theory")[0] for prompt in told(whole, "Predict by the theory"))
    assert tried("boxing_gym", tmp_path, {"nodes.predict.signature": "question -> answer"}).right == [False, False]


def test_the_information_of_an_experiment_is_that_of_the_linear_gaussian_model() -> None:
    """By nested Monte Carlo and in closed form: half the logarithm of 1 + (weights * prior / noise)^2."""
    spec = importlib.util.spec_from_file_location("worlds", GALLERY / "worlds.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    spring = module.Spring()
    for weights in (1, 3, 10):
        exact = 0.5 * math.log(1 + (weights * spring.PRIOR[1] / spring.NOISE) ** 2)
        assert spring.information(weights, 600) == pytest.approx(exact, abs=0.12), weights


def test_021_agent_occam_prunes_what_is_seen_and_what_can_be_done(tmp_path: Path) -> None:
    assert tried("agent_occam", tmp_path).right == [True, True]
    assert tried("agent_occam", tmp_path, {"nodes.find.settings.view": "whole"}).right == [False, False]
    assert tried("agent_occam", tmp_path, {"nodes.find.settings.actions": "all"}).right == [False, False]
    no_plan = {"nodes.find.of.signature": "question, observation, actions -> plan, action"}
    assert tried("agent_occam", tmp_path, no_plan).right == [False, False]


def test_171_agent_s2_plans_again_and_asks_the_expert_for_the_target(tmp_path: Path) -> None:
    assert tried("agent_s2", tmp_path).right == [True]
    blind = {"nodes.use.of.nodes.plan.signature": "question -> kind: Literal['line', 'cell'], target"}
    assert tried("agent_s2", tmp_path, blind).right == [False]
    one = {"nodes.use.of.nodes.ground.cases.cell.instructions": "Find the line: click line NUMBER."}
    assert tried("agent_s2", tmp_path, one).right == [False]


def test_087_simura_does_what_its_world_model_finds_best(tmp_path: Path) -> None:
    assert tried("simura", tmp_path).right == [True]
    reactive = {"nodes.descend.of.nodes.choose.signature": "question, candidates -> action"}
    assert tried("simura", tmp_path, reactive).right == [False]
    lies = {"nodes.descend.of.nodes.simulate.of.instructions": "Guess where this leads."}
    assert tried("simura", tmp_path, lies).right == [False], "a world model that knows nothing is no help"


def test_119_master_recruits_as_many_as_the_task_is_deep_and_weighs_by_confidence(tmp_path: Path) -> None:
    whole = tried("master", tmp_path)
    assert whole.right == [True, True] and [n["ended"] for n in whole.notes("solve")] == ["until", "until"]
    deep, shallow = (n["states"] for n in whole.notes("solve"))
    assert deep > shallow
    sure = {"nodes.solve.judge.nodes.reward.source": "def reward(worth, confidence): return worth"}
    assert tried("master", tmp_path, sure).right == [False, False]


def test_194_webpilot_plans_again_after_each_subtask_and_searches_within(tmp_path: Path) -> None:
    whole = tried("webpilot", tmp_path)
    assert whole.right == [True] and whole.notes("work") == [{"rounds": 4, "ended": "until"}]
    blind = {"nodes.work.nodes.plan.signature": "question, done -> subtask"}
    assert tried("webpilot", tmp_path, blind).right == [False], "from the page of the account no way leads to the cart"
    assert tried("webpilot", tmp_path, {"nodes.work.nodes.search.order": "greedy"}).right == [False]


confined = pytest.mark.skipif(shutil.which("bwrap") is None, reason="commands of models need bubblewrap")


def without(state: str, instead: str) -> dict[str, Any]:
    """The machine of stateflow_intercode, in which one state is taken out."""
    now = "'solve' if not state else 'error' if 'No such file' in observation else 'verify'"
    source = f"def turn(state, observation):\n    now = {now}\n    return now if now != {state!r} else {instead!r}"
    return {"nodes.work.of.nodes.turn.source": source}


@confined
def test_000_stateflow_mends_a_failed_command_in_the_state_for_errors(tmp_path: Path) -> None:
    failed = [*CASES["stateflow_intercode.yaml"].rows][:1]
    whole = tried("stateflow_intercode", tmp_path, rows=failed)
    assert whole.right == [True] and len(whole.outcomes[0].prediction["actions"]) == 3
    assert tried("stateflow_intercode", tmp_path, without("error", "verify"), failed).right == [False]


@confined
@pytest.mark.slow
def test_000_stateflow_verifies_what_ran_and_its_states_share_the_history(tmp_path: Path) -> None:
    whole = tried("stateflow_intercode", tmp_path)
    assert whole.right == [True] * 3 and {run.prediction["actions"][-1] for run in whole.outcomes} == {"submit"}
    assert tried("stateflow_intercode", tmp_path, without("none", "verify")).right == [True] * 3
    assert tried("stateflow_intercode", tmp_path, without("error", "verify")).right == [False, True, True]
    unsure = tried("stateflow_intercode", tmp_path, without("verify", "solve"))
    assert unsure.right[1:] == [False, True], "too much is printed"
    assert all("submit" not in run.prediction["actions"] for run in unsure.outcomes)
    forgets = {"nodes.work.of.nodes.act.cases.error.signature": "query, observation -> action"}
    assert tried("stateflow_intercode", tmp_path, forgets).right == [False, True, True]


#: Programs as a model might write them: one that cannot be read, one that looks at the wrong thing, one that is good.
PROGRAMS = [
    "def value(state, goal): return [",
    "def value(state, goal):\n    return [float(-len(stacks)) for stacks in state['children']]",
    """def value(state, goal):
    below = {b: a for stack in goal for a, b in zip(['table', *stack], stack)}
    found = []
    for stacks in state['children']:
        wrong = 0
        for stack in stacks:
            right = True
            for a, b in zip(['table', *stack], stack):
                right = right and below[b] == a
                wrong += not right
        found.append(float(wrong))
    return found""",
]


@pytest.mark.slow
def test_122_the_best_of_the_sampled_heuristics_drives_the_planner(tmp_path: Path) -> None:
    """Blind search solves no row within its expansions, the good heuristic of the three solves all."""

    def propose(programs: list[str]) -> Script:
        return Script(lambda request: f"```python\n{programs[len(script.requests) % len(programs)]}\n```")

    for number, (programs, solved) in enumerate(((PROGRAMS, 1.0), (PROGRAMS[:2], 0.0))):
        script = propose(programs)
        report = optimize(
            GALLERY / "llm_heuristics.yaml",
            options=Options(allow_unproved=True, out=str(tmp_path / f"{number}.yaml")),
            database=tmp_path / f"{number}.db",
            pool=script,
        )
        assert report.status == "finished" and report.baseline["val"] == 0.0 and report.best["val"] == solved
        source = report.winner.get("nodes.plan.nodes.value.source")
        assert ("below" in source) == (solved == 1.0)


#: A setting of each file that its search changes, and a value with which it is wrong.
POOR: dict[str, tuple[str, Any]] = {
    "diff_history": ("nodes.watch.observations", "full"),
    "ask_before_acting": ("nodes.fetch.of.instructions", "Open a door. Write: open ROOM."),
    "entity_deduction": ("nodes.ask.history", 0),
    "boxing_gym": ("nodes.measure.of.instructions", "Do an experiment: weigh NUMBER."),
    "agent_occam": ("nodes.find.settings.view", "whole"),
    "agent_s2": ("nodes.use.of.nodes.plan.instructions", "What is next?"),
    "simura": ("nodes.descend.of.nodes.simulate.of.instructions", "Guess where this leads."),
    "master": ("nodes.solve.evaluations", 2),
    "glee": ("nodes.haggle.history", 0),
    "webpilot": ("nodes.work.nodes.search.order", "greedy"),
    "stateflow_intercode": ("nodes.work.max_steps", 1),
    "capo": ("nodes.fetch.settings.meetings", "start"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(n, marks=confined if n == "stateflow_intercode" else ()) for n in POOR])
def test_the_search_of_each_file_finds_what_makes_it_right(name: str, tmp_path: Path) -> None:
    address, poor = POOR[name]
    report = searched(name, address, poor, tmp_path)
    assert report.baseline["val"] < report.best["val"] and report.winner.get(address) != poor
