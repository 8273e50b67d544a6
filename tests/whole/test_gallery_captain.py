"""The gallery's Captain Agent: right as it is, wrong without one of its parts, and its loops end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.gallery_scripts import CASES
from tests.helpers.gallery_tried import GALLERY, Tried, searched, tried
from tests.helpers.scripted import Script, run_rows

from workbench.lm import Request
from workbench.run import prepare
from workbench_kit.logs import tool_uses

#: The first sum needs the library, its expert's tool, a checker and a second look; the other a written expert and a
#: second step.
ROWS = list(CASES["captain.yaml"].rows)
ALONE = """
def seat(roles, experts, instructions):
    return [{"role": roles[0], "expert": experts[0], "told": instructions[0]}] if roles else []
"""
BUILD, WORK = "nodes.lead.nodes.build.nodes", "nodes.lead.nodes.work"


def briefs(found: Tried, system: str) -> list[str]:
    """What the model was asked under a system message."""
    asked = [request.messages for request in found.script.requests if system in str(request.messages[0]["content"])]
    return [str(messages[1]["content"]) for messages in asked]


def test_a_team_is_built_for_each_step_from_the_library_or_written(tmp_path: Path) -> None:
    whole = tried("captain", tmp_path)
    assert whole.right == [True, True] and whole.notes("lead") == [
        {"rounds": 1, "ended": "until"},
        {"rounds": 2, "ended": "until"},
    ]
    written = briefs(whole, "Write an expert")
    assert len(written) == 1 and "role: mental sums" in written[0], "only where none of the library fits"
    experts = [line for told in briefs(whole, "in a line") for line in told.splitlines() if line.startswith("told: ")]
    assert experts == ["told: checks results, finds mistakes"] * 2 + [
        "told: You carry.",
        "told: writes good prose",
    ] * 2 + ["told: checks results, finds mistakes"], "an expert of two roles is there once, and members speak in turn"
    assert [[use.tool for use in tool_uses(run.trace)] for run in whole.outcomes] == [["add", "add"], []]


@pytest.mark.parametrize(
    ("change", "right"),
    [
        pytest.param({f"{BUILD}.find.corpus": "../data/places.jsonl"}, [False, True], id="a library of no experts"),
        pytest.param(
            {
                f"{BUILD}.brief.cases.none": {
                    "kind": "code",
                    "code": "role -> told",
                    "source": "def listen(role): return 'You listen.'",
                }
            },
            [True, False],
            id="nobody writes an expert",
        ),
        pytest.param({f"{WORK}.rounds": 1}, [False, True], id="no second look"),
        pytest.param(
            {f"{WORK}.nodes.talk.of.cases.arithmetician.tools": ["python:tools.py:price"]}, [False, True], id="no tool"
        ),
        pytest.param({"nodes.lead.rounds": 1}, [True, False], id="one step"),
        pytest.param({"nodes.lead.nodes.seat.source": ALONE}, [False, True], id="no checker"),
    ],
)
def test_each_part_is_needed(change: dict[str, Any], right: list[bool], tmp_path: Path) -> None:
    without = tried("captain", tmp_path, change)
    assert without.right == right and not any(run.failure for run in without.outcomes), without.script.requests[-1]


def test_every_loop_ends(tmp_path: Path) -> None:
    """A captain that always has a next step, a team that is never done, and a reviewer who always doubts."""

    def say(request: Request) -> str:
        system = str(request.messages[0]["content"])
        if "first step" in system:
            return "task: t\nroles: [a, b, c, d]"
        if "answer so far" in system:
            return "answer: 7\ntask: t\nroles: [a, b, c, d]"
        if "What did the team find" in system:
            return "result: r\nerrors: e\ncheck: yes"
        return "message: m\ndone: no" if "Do your part" in system else "none"

    workflow, script = prepare(GALLERY / "captain.yaml")[2].workflow, Script(say)
    (outcome,) = run_rows(workflow, [ROWS[0][0]], script, tmp_path / "run.db")
    assert outcome.prediction["answer"] == "7", outcome.message
    talks = [span.node for span in outcome.trace.spans].count("lead.nodes.work.nodes.talk.of.default")
    assert talks == 2 * 2 * 8, "steps, looks, and four members who speak twice"
    assert len(script.requests) <= sum(node.max_calls for node in workflow.enabled_nodes.values())


@pytest.mark.slow
def test_the_search_finds_the_second_look(tmp_path: Path) -> None:
    report = searched("captain", "nodes.lead.nodes.work.rounds", 1, tmp_path)
    assert report.winner.get("nodes.lead.nodes.work.rounds") == 2 and report.baseline["val"] < 1.0 == report.best["val"]
