"""`captain`: teams are built, talk, report, and end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.helpers.scripted import make_workflow, run_node
from tests.helpers.teams import notes

from workbench.lm import Request

LIBRARY = {
    "py_dev": {"description": "Python: writes and runs code", "instructions": "Write code."},
    "chemist": {"description": "chemistry and molecules: reactions"},
    "checker": {"description": "checks results: finds mistakes"},
}


class Play:
    """Scripts of the captain's parts, told apart by what they are asked; keeps what each part was shown."""

    def __init__(
        self,
        captain: Sequence[Any],
        mapping: Sequence[str] = (),
        talk: str = "done TERMINATE",
        review: str = "result: 42\nerrors: none\ncheck: no",
    ):
        self.captain, self.mapping, self.talk, self.review = list(captain), list(mapping), talk, review
        self.seen: dict[str, list[str]] = {"captain": [], "map": [], "write": [], "talk": [], "review": []}

    def __call__(self, request: Request) -> str:
        system, last = str(request.messages[0]["content"]), str(request.messages[-1]["content"])
        if "teams of experts" in system:
            self.seen["captain"].append(last)
            step = self.captain.pop(0)
            return step if isinstance(step, str) else "call: " + json.dumps({"tool": "seek_experts", "arguments": step})
        if "choose an expert" in system:
            self.seen["map"].append(last)
            return self.mapping.pop(0)
        if "Write an expert" in system:
            self.seen["write"].append(last)
            return '{"name": "poet", "description": "verse: all kinds", "instructions": "Rhyme."}'
        if "Sum up" in system:
            self.seen["review"].append(last)
            return self.review
        self.seen["talk"].append(system)
        return self.talk


CAPTAIN = {"captain": "question -> answer", "library": LIBRARY}


def test_a_team_is_found_talks_and_reports(tmp_path: Path) -> None:
    step = {"group": "g", "roles": ["Python developer", "checker of results"], "task": "compute 6 * 7"}
    play = Play([step, "answer: 42"], ['{"Python developer": "py_dev", "checker of results": "checker"}'])
    outcome, script = run_node(CAPTAIN, {"question": "6 * 7?"}, tmp_path, play)
    assert outcome.prediction["answer"] == "42"
    assert notes(outcome)["groups"] == {"g": ["py_dev", "checker"]} and not play.seen["write"]
    assert "(Python: writes and runs code)" in play.seen["map"][0]  # a colon hides nobody
    assert "report of g (py_dev, checker)" in play.seen["captain"][1]
    assert notes(outcome)["importance"] == {"py_dev": 1.0, "chemist": 0.0, "checker": 1.0}
    assert len(script.requests) <= make_workflow({"n": CAPTAIN}, tmp_path).enabled_nodes["n"].max_calls


def test_an_expert_is_written_where_none_fits_and_only_then(tmp_path: Path) -> None:
    step = {"group": "g", "roles": ["checker of results", "verse writer"], "task": "t"}
    play = Play([step, "answer: a"], ['{"checker of results": "checker", "verse writer": null}'])
    outcome, _ = run_node(CAPTAIN, {"question": "q"}, tmp_path, play)
    assert notes(outcome)["groups"] == {"g": ["checker", "poet"]} and len(play.seen["write"]) == 1


def test_written_experts_of_one_name_are_all_in_the_team(tmp_path: Path) -> None:
    """Each of them was paid for, and each is told what was written for its own role."""
    written = iter(["Solve.", "Check.", "Doubt."])

    class OneName(Play):
        def __call__(self, request: Request) -> str:
            said = super().__call__(request)
            return (
                said.replace("poet", "py_dev").replace("Rhyme.", next(written))
                if "Write an expert" in str(request.messages[0]["content"])
                else said
            )

    step = {"group": "g", "roles": ["solver", "checker", "doubter"], "task": "t"}
    play = OneName([step, "answer: a"], ['{"solver": null, "checker": null, "doubter": null}'])
    play.talk = "so it is"
    outcome, _ = run_node({**CAPTAIN, "talk": 3}, {"question": "q"}, tmp_path, play)
    assert notes(outcome)["groups"] == {"g": ["py_dev_2", "py_dev_3", "py_dev_4"]}, "the library has a py_dev"
    assert len(play.seen["write"]) == 3
    for system, (name, told) in zip(
        play.seen["talk"], [("py_dev_2", "Solve."), ("py_dev_3", "Check."), ("py_dev_4", "Doubt.")], strict=True
    ):
        assert system.startswith(f"You are {name}, ") and told in system


def test_an_unreadable_mapping_is_asked_for_twice_at_most(tmp_path: Path) -> None:
    step = {"group": "g", "roles": ["Python developer", "Python code runner"], "task": "t"}
    play = Play([step, "answer: a"], ["what?", "no."])
    outcome, _ = run_node(CAPTAIN, {"question": "q"}, tmp_path, play)
    assert len(play.seen["map"]) == 2 and notes(outcome)["groups"] == {"g": ["py_dev"]}  # the nearest, and once


def test_a_doubted_result_is_checked_once_by_the_same_group(tmp_path: Path) -> None:
    step = {"group": "g", "roles": ["checker"], "task": "t"}
    again = {"group": "g", "task": "check it"}
    play = Play([step, again, again, "answer: a"], ['{"checker": "checker"}'], review="result: 1\ncheck: yes")
    outcome, _ = run_node(CAPTAIN, {"question": "q"}, tmp_path, play)
    assert "check this once more" in play.seen["captain"][1] and len(play.seen["map"]) == 1
    assert (
        "check this once more" not in play.seen["captain"][2]
        and "checked its result already" in play.seen["captain"][3]
    )
    assert len(play.seen["review"]) == 2 and outcome.prediction["answer"] == "a"


def test_every_loop_ends(tmp_path: Path) -> None:
    """A captain that only ever seeks experts, a team that never ends."""
    step = [{"group": f"g{i}", "roles": ["a", "b", "c", "d", "e"], "task": f"t{i}"} for i in range(9)]
    play = Play(step, ["{}"] * 99, talk="and so on")
    node = {**CAPTAIN, "turns": 4, "talk": 5, "size": 2}
    outcome, script = run_node(node, {"question": "q"}, tmp_path, play)
    assert outcome.failure == "steps"
    assert len(script.requests) <= make_workflow({"n": node}, tmp_path).enabled_nodes["n"].max_calls
    assert len(play.seen["talk"]) == 3 * 5  # the last report would not be read


def test_wrong_calls_are_told(tmp_path: Path) -> None:
    wrong = ['call: {"tool": "other", "arguments": {}}', {"group": "g", "roles": ["r"]}, {"group": "g", "task": "t"}]
    play = Play([*wrong, "answer: a"])
    outcome, _ = run_node(CAPTAIN, {"question": "q"}, tmp_path, play)
    assert outcome.prediction["answer"] == "a"
    assert "seek_experts" in play.seen["captain"][1] and "arguments are" in play.seen["captain"][2]
    assert "needs roles" in play.seen["captain"][3]


def test_tools_go_to_the_expert_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "roots.py").write_text("def sqrt(x: float) -> float:\n    return x**0.5\n")
    library = {
        "solver": {"description": "arithmetic", "tools": ["sqrt"]},
        "talker": {"description": "words", "tools": []},
    }
    node = {"captain": "question -> answer", "library": library, "tools": ["python:roots.py:sqrt"], "talk": 2}
    step = {"group": "g", "roles": ["arithmetic", "words"], "task": "root of 49"}
    play = Play(
        [step, "answer: 7"],
        ['{"arithmetic": "solver", "words": "talker"}'],
        talk='call: {"tool": "sqrt", "arguments": {"x": 49}}',
    )
    run_node(node, {"question": "q"}, tmp_path, play)
    assert "sqrt" in play.seen["talk"][0] and "sqrt" not in play.seen["talk"][1]
    assert "result: 7.0" in play.seen["review"][0] and "no tool 'sqrt'" in play.seen["review"][0]
