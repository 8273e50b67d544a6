"""GTA in the gallery: its metrics tell who looks from who asks for the wrong thing, or loses an image on the way.

The numbers in the names are those of the documents that list the benchmarks.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.gallery_drawings import LOOKS, TASKS, next_step, work
from tests.helpers.gallery_speech import Line
from tests.helpers.gallery_tried import GALLERY, Tried, tried

from workbench.lm import count_images
from workbench.spec import load_user_code
from workbench.workflow import Trace
from workbench_metrics.function import FunctionMetric

ALL = len(TASKS)
#: Every third task is a count in one half, every third a sum of prices, every third a drawing.
COUNT, PRICE, DRAW = ([number % 3 == kind for number in range(ALL)] for kind in range(3))


def scores(found: Tried, metric: str) -> list[float]:
    """Of each task, by a metric of the file; 0 for one that failed."""
    measure = FunctionMetric(load_user_code(f"gta_metrics.py:{metric}", GALLERY), metric)
    return [
        0.0 if run.failure else measure(task, run.prediction, run.trace).value  # type: ignore[arg-type]
        for task, run in zip(TASKS, found.outcomes, strict=True)
    ]


def acted(folder: Path, table: list[Line] | None = None, change: dict[str, Any] | None = None) -> Tried:
    return tried("gta", folder, [(task, {}) for task in TASKS], change, table)


def agent(say: Any) -> list[Line]:
    return [("give its name to the next tool", "question", say), *LOOKS]


def test_158_who_looks_with_tools_is_right_and_sees_no_picture_itself(tmp_path: Path) -> None:
    found = acted(tmp_path)
    assert scores(found, "ans_acc") == scores(found, "tool_f1") == [1.0] * ALL
    for request in found.script.requests:
        looks = "picture" in str(request.messages[0]["content"])
        assert sum(map(count_images, request.messages)) == looks, "one image to the tool, none to the agent"


def test_158_an_answer_without_looking_is_wrong(tmp_path: Path) -> None:
    found = acted(tmp_path, agent("answer: There are 2 red squares. It is drawn."))
    assert scores(found, "ans_acc") == [1.0] + [0.0] * (ALL - 1), "one guess is right"
    assert scores(found, "tool_f1") == [0.0] * ALL, "and no tool was called"


def test_158_right_tools_with_wrong_arguments_are_seen_in_the_answer(tmp_path: Path) -> None:
    found = acted(tmp_path, agent(lambda m: work(m, colours=("blue", "red"))))
    assert scores(found, "tool_f1") == [1.0] * ALL
    assert scores(found, "ans_acc") == [float(draws) for draws in DRAW], "these name no colours but green"


def test_158_an_image_lost_between_tools_is_seen_where_the_answer_depends_on_it(tmp_path: Path) -> None:
    found = acted(tmp_path, agent(lambda m: work(m, keeps=False)))
    assert scores(found, "ans_acc") == [float(asks) for asks in PRICE], "prices need no image but the first"
    assert scores(found, "tool_f1") == [1.0] * ALL


def test_158_words_that_must_not_be_in_the_answer(tmp_path: Path) -> None:
    measure = load_user_code("gta_metrics.py:ans_acc", GALLERY)
    row = {"gt_answer": {"whitelist": [["2", "two"], ["red"]], "blacklist": [["5", "five"]]}}
    said = ("Two RED squares.", "2", "12 red", "2 or 5 red squares", "2 red, and fifteen blue")
    assert [measure(row, {"answer": answer}, None) for answer in said] == [1.0, 0.0, 0.0, 0.0, 1.0]
    assert measure({"gt_answer": ["a red cat", "the cat is red"]}, {"answer": "a red dog"}, None) == pytest.approx(
        2 / 3
    )


STEPS = ("inst_acc", "tool_acc", "arg_acc", "summ_acc")


def walked(folder: Path, said: Any) -> list[list[float]]:
    """The tasks' scores by each metric of the step-by-step mode."""
    found = tried("gta_steps", folder, [(task, {}) for task in TASKS], None, [("the next step?", "history", said)])
    return [scores(found, metric) for metric in STEPS]


def test_158_step_by_step_each_metric_counts_what_it_names(tmp_path: Path) -> None:
    assert walked(tmp_path, next_step) == [[1.0] * ALL] * len(STEPS)

    def swaps(found: Any) -> str:
        return next_step(found).replace('"red square"', '"blue square"')

    inst, tool, arg, summ = walked(tmp_path, swaps)
    assert inst == tool == summ == [1.0] * ALL
    assert arg == [1 / 2, 2 / 3, 1.0] * (ALL // 3), "one call of each task that names red squares"
    inst, tool, arg, summ = walked(tmp_path, "There are 2 red squares.")
    assert inst == [1 / 3, 1 / 4, 1 / 4] * (ALL // 3) and tool == arg == [0.0] * ALL, (
        "right to answer at the last step alone"
    )
    assert summ[:3] == [1.0, 0.0, 1.0]
    assert walked(tmp_path, '{"name": "Crop"') == [[0.0] * ALL] * len(STEPS), "a call that cannot be read"


def test_158_no_step_is_shown_what_comes_after_it() -> None:
    for task in TASKS:
        for history, step in zip(task["histories"], task["steps"], strict=True):
            assert json.dumps(step) not in history and str(step.get("answer")) not in history
        calls = [step for step in task["steps"] if "name" in step]
        assert [json.dumps(call) in task["histories"][-1] for call in calls] == [True] * len(calls)


def test_a_task_that_no_tool_solves_has_no_hits() -> None:
    """`gta:` reads dialogs in which nothing is called, or nothing is said at all."""
    f1, inst = (load_user_code(f"gta_metrics.py:{name}", GALLERY) for name in ("tool_f1", "inst_acc"))
    row: dict[str, Any] = {"tools": [], "steps": [{"answer": "No."}]}
    assert f1(row, Trace("row")) == 0.0 and inst({"steps": []}, {"actions": []}) == 0.0
