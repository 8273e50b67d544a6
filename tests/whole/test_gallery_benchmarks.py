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
from tests.helpers.gallery_benchmarks import BENCHMARKS, plan_trip, serve
from tests.helpers.gallery_speech import Line, Speaker
from tests.helpers.gallery_tried import GALLERY
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
