"""Benchmarks as files of the gallery: their scores tell right from wrong, and not where what scores is taken out.

The numbers in the names are those of the documents that list the benchmarks.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.gallery_benchmarks import BENCHMARKS, PAGES, act_on_page, plan_trip, send, serve, shortcut
from tests.helpers.gallery_speech import Line, Speaker, code
from tests.helpers.gallery_tried import GALLERY, searched, tried
from tests.helpers.scripted import Script

from workbench.api import evaluate
from workbench.lm import Request

confined = pytest.mark.skipif(shutil.which("bwrap") is None, reason="commands of models need bubblewrap")


def score(
    name: str,
    folder: Path,
    table: list[Line] | None = None,
    judge: Callable[[Request], str] | None = None,
    **settings: Any,
) -> float:
    """The score of a file on its rows of val, spoken by a table, or by that of its case."""
    speaker = Speaker(table or BENCHMARKS[f"{name}.yaml"].table)

    def say(request: Request) -> str:
        judging = str(request.messages[0]["content"]).startswith(("You grade", "You check", "You take something out"))
        return judge(request) if judge is not None and judging else speaker(request)

    database = folder / f"{len(list(folder.glob('*.db')))}.db"
    report = evaluate(GALLERY / f"{name}.yaml", settings=settings, database=database, pool=Script(say))
    found = report.as_dict()["score"]
    assert found is not None
    return found


def asked(request: Request) -> str:
    return str(request.messages[-1]["content"])


@confined
def test_025_an_issue_is_mended_by_what_passes_the_hidden_test(tmp_path: Path) -> None:
    whole = tried("agent_issues", tmp_path)
    assert whole.right == [True] * 8
    assert all("unittest" not in asked(request) for request in whole.script.requests)
    assert tried("agent_issues", tmp_path, {"nodes.mend.max_steps": 1}).right == [False] * 8, "nothing was mended"


@confined
def test_058_an_experiment_is_scored_by_what_its_script_reaches_on_hidden_rows(tmp_path: Path) -> None:
    assert score("ml_experiments", tmp_path) > 0.9
    untouched: list[Line] = [("Look at the data", "observation", 'call: {"tool": "submit", "arguments": {}}')]
    assert score("ml_experiments", tmp_path, untouched) < 0.7


def count_points(request: Request) -> str:
    """A judge who knows nothing but the rubric that it is shown, and the file."""
    rubric, handed_in = str(request.messages[0]["content"]), asked(request).rpartition("Answer: ")[2]
    points = re.findall(r"from (\w+) to (\w+); it names the (\d+th)", rubric)
    return f"score: {10 if not points or all(word in handed_in for word in points[0]) else 0}"


@confined
def test_031_what_is_handed_in_is_judged_by_the_rubric_of_the_row(tmp_path: Path) -> None:
    assert score("one_day", tmp_path, judge=count_points) == 1.0
    guess: list[Line] = [("Read the attachments", "observation ", ""), ("Read the attachments", "obs", plan_trip)]
    assert score("one_day", tmp_path, guess, count_points) == 0.0, "what was asked for stands in the attachment"
    blind = {"metric": {"judge": {"field": "observation"}}}
    assert score("one_day", tmp_path, guess, count_points, **blind) == 1.0, "without the rubric anything is right"


def judge_shop(request: Request) -> str:
    """The judge of AGENTIF's conditions, extractions and checks."""
    text = asked(request)
    if "Take out" in text:
        return re.findall(r"shop in (\w+)", text)[0] if "shop in" in text else "no city"
    complains = "Sorry" in text
    return f"score: {int(complains)}"


def test_134_agentif_checks_each_constraint_by_code_by_a_model_and_where_it_applies(tmp_path: Path) -> None:
    assert score("agentif", tmp_path, judge=judge_shop) == 1.0
    nowhere: list[Line] = [("Answer as the system message says", "question", "Come to us.")]
    partial = score("agentif", tmp_path, nowhere, judge_shop)
    assert 0.0 < partial < 1.0, "at most twelve words, but no city"
    settings = {"metric": {"checklist": {"field": "answer", "ask": True, "whole": True}}}
    assert score("agentif", tmp_path, nowhere, judge_shop, **settings) == 0.0
    long: list[Line] = [("Answer as the system", "question", lambda m: f"{serve(m)} {'We are glad to see you. ' * 3}")]
    assert score("agentif", tmp_path, long, judge_shop) < 1.0, "the code counts words"


def test_035_lawful_is_what_was_called_whatever_the_answer_says(tmp_path: Path) -> None:
    assert score("eu_agent_bench", tmp_path) == 1.0
    unlawful: list[Line] = [("if the law allows it", "question", send)]
    assert score("eu_agent_bench", tmp_path, unlawful) <= 0.5


def test_148_a_plan_refers_to_earlier_results_and_asks_what_only_the_user_knows(tmp_path: Path) -> None:
    assert score("shortcuts_bench", tmp_path) == 1.0
    made_up: list[Line] = [("for what the first call returns", "question", shortcut(False))]
    assert score("shortcuts_bench", tmp_path, made_up) == 0.0


def test_159_a_page_is_found_where_a_beam_keeps_the_way_that_looks_worse(tmp_path: Path) -> None:
    assert tried("webnav", tmp_path).right == [True, True]
    assert tried("webnav", tmp_path, {"nodes.find.width": 1}).right.count(False) == 1


@pytest.mark.slow
def test_057_decisions_of_an_analysis_are_found_in_the_data_alone(tmp_path: Path) -> None:
    assert score("blade", tmp_path) == 1.0
    assert score("blade", tmp_path, **{"nodes.analyse.given": []}) < 0.7, "no table, no finding"
    guess: list[Line] = [("Look at the data in Python", "question", lambda m: guessed(m.string))]
    assert score("blade", tmp_path, guess) < 0.9


def guessed(prompt: str) -> str:
    return "note: done" if "result:" in prompt else code('decisions = ["adjust for age"]')


def test_116_who_can_do_each_task_fails_where_they_are_composed_or_told_in_another_order(tmp_path: Path) -> None:
    def solved(*agent: Any) -> dict[str, bool]:
        return dict(zip(PAGES, tried("compwob", tmp_path, *agent).right, strict=True))

    assert [*solved().values()] == [True] * 5
    forgets = solved({"nodes.work.of.signature": "brief, observation -> left, action"})
    assert forgets["click-link"] and not forgets["click-link-click-button"], "a page does not show what was pressed"
    as_told = solved({}, None, [("Do what is asked", "observation", act_on_page(False))])
    assert [name for name, right in as_told.items() if right] == ["click-link", "click-link-click-button"]
    # The order counts: both links and buttons are pressed right, one after the other.
    assert not as_told["click-link-click-button-reverse"]


#: A setting of each file that its search changes, and a value with which it is wrong.
POOR: dict[str, tuple[str, Any]] = {
    "agent_issues": ("nodes.mend.history", 0),
    "ml_experiments": ("nodes.improve.max_steps", 1),
    "blade": ("nodes.analyse.max_steps", 1),
    "webnav": ("nodes.find.width", 1),
    "compwob": ("nodes.work.of.instructions", "Do what is asked on the page."),
    "eu_agent_bench": ("nodes.serve.instructions", "Do what is asked."),
    "shortcuts_bench": ("nodes.plan.instructions", "Write the calls that do this, in order, as JSON."),
}


@pytest.mark.slow
@confined
@pytest.mark.parametrize("name", POOR)
def test_the_search_of_each_file_finds_what_makes_it_right(name: str, tmp_path: Path) -> None:
    address, poor = POOR[name]
    report = searched(name, address, poor, tmp_path)
    assert report.baseline["val"] < report.best["val"] and report.winner.get(address) != poor
