"""The floor: what a vote of the nearest rows reaches without a model, beside the sealed scores."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import plant

from workbench.lm import Request
from workbench.run import estimate, prepare
from workbench_metrics.function import load_function
from workbench_metrics.text import Contains, ExactMatch, NormalizedMatch

WORDS = {"a": "red warm fire", "b": "blue cold water", "c": "green soft grass"}


def rows(seed: int, count: int, noise: float = 0.0) -> list[dict[str, Any]]:
    """Two of a label's words and one of another; some rows have another label."""
    draw = random.Random(seed)
    made = []
    for n in range(count):
        label = "abc"[n % 3]
        other = draw.choice([x for x in "abc" if x != label])
        words = [*draw.sample(WORDS[label].split(), 2), draw.choice(WORDS[other].split()), f"n{seed}{n}"]
        made.append({"text": " ".join(words), "label": other if draw.random() < noise else label})
    return made


def floor(train: Any, test: Any, metric: Any = None) -> Any:
    return (metric or ExactMatch("label")).floor(train, test, ["text"])


def test_a_vote_of_the_nearest_rows_is_scored_by_the_metric() -> None:
    score, how = floor(rows(0, 60), rows(1, 30))
    assert score == 1.0 and how.startswith(("a vote of the ", "the label of the "))
    shuffled = [
        {**row, "label": label["label"]} for row, label in zip(rows(0, 60), rows(7, 60)[1:] + rows(7, 1), strict=True)
    ]
    assert floor(shuffled, rows(1, 30))[0] < 0.4, "the labels of train decide, and not those of the rows"
    capitals = [{**row, "label": row["label"].upper()} for row in rows(1, 30)]
    assert floor(rows(0, 60), capitals)[0] == 0.0
    assert floor(rows(0, 60), capitals, NormalizedMatch("label"))[0] == 1.0


def test_train_chooses_how_many_vote() -> None:
    """Where a quarter of the labels is wrong, one neighbor repeats the faults. The tested rows have no part in it."""
    noisy = rows(0, 120, noise=0.25)
    score, how = floor(noisy, rows(1, 30))
    assert "9 nearest" in how or "5 nearest" in how
    assert score > 0.9 and floor(noisy, rows(2, 3))[1] == how


@pytest.mark.parametrize(
    "train",
    [
        [],
        [{"text": "x", "label": "a"}] * 6,  # one label
        [{"text": f"x{n}", "label": f"answer {n}"} for n in range(30)],  # an open set
        [{"text": f"x{n}", "label": ["a", "b"][: n % 2 + 1]} for n in range(30)],  # lists
    ],
    ids=["no rows", "one label", "open", "lists"],
)
def test_there_is_none_where_labels_are_no_closed_set(train: Any) -> None:
    assert floor(train, rows(1, 9)) is None


def test_rows_of_any_types_and_without_a_label_are_read() -> None:
    same = [{"text": str(n % 2), "label": bool(n % 2)} for n in range(20)]
    assert floor(same, [{"text": "1", "label": "yes"}, {"text": "0"}, {"text": "2", "label": None}]) == (
        1.0,
        "the label of the nearest train row",
    ), "a row of train with the same input votes, too"
    nested = [{"text": {"x": n % 2}, "label": n % 2 / 2} for n in range(20)]
    assert floor(nested, [{"text": {"x": 1}, "label": [0.5, 0.7]}])[0] == 1.0
    assert floor(same, [{"text": "1"}]) is None and floor(same, same * 101) is None, "none, or too many"


def test_metrics_of_other_kinds_have_none() -> None:
    assert not hasattr(Contains("label"), "floor")


def run(folder: Path, skill: float) -> Any:
    """Rows of the planted problem have their label in their text, so that the nearest rows know it well."""

    def answer(request: Request) -> float:
        return skill if "Good" in str(request.messages[0]["content"]) else 0.3

    space = {"nodes.sort.instructions": ["Plain.", "Good."]}
    return plant(folder, answer, {"random": {"trials": 4}}, calls=700, search=space)[0]


def test_the_report_tells_it_beside_the_sealed_scores(tmp_path: Path) -> None:
    report = run(tmp_path, 0.9)
    assert report.floor == (1.0, "a vote of the 9 nearest train rows"), "the planted texts name their labels"
    (line,) = [line for line in report.lines() if line.startswith("Without a model: ")]
    assert line.endswith("has 1.000 on the same rows, which the winner is not above.")
    assert report.floor._replace(score=0.5).beside(0.9).endswith("has 0.500 on the same rows.")
    assert report.as_dict()["floor"]["score"] == 1.0


def test_without_a_sealed_test_there_is_none(tmp_path: Path) -> None:
    report = run(tmp_path, 0.3)
    assert report.floor is None and "floor" not in report.as_dict()


def test_estimate_tells_it_before_any_call(tmp_path: Path) -> None:
    run(tmp_path, 0.3)
    lines = estimate(prepare(tmp_path / "workflow.yaml")[2])["lines"]
    assert [line for line in lines if line.startswith("Without a model: ") and line.endswith(" on val.")]


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (0.5, "TypeError: 'float' object is not callable"),
        (lambda *given: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda *given: ("high", "words"), "ValueError: could not convert string to float: 'high'"),
    ],
    ids=["no function", "raises", "no number"],
)
def test_a_floor_that_fails_loses_no_report(
    broken: Any, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ExactMatch, "floor", broken)
    report, told = run(tmp_path, 0.9), f"the metric's `floor` failed: {why}"
    assert report.status == "finished" and report.test_rows and report.floor is None
    assert told in report.warnings
    assert f"Warning: {told}" in estimate(prepare(tmp_path / "workflow.yaml")[2])["lines"]


def test_a_function_of_ones_own_has_the_floor_that_it_says(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "def metric(row, pred):\n    return row['label'] == pred['label']\n\n"
        "def floor(train, rows, inputs):\n    return len(rows) / 100, f'{len(train)} rows of {inputs[0]}'\n\n"
        "metric.floor = floor\n"
    )
    metric = load_function("own.py:metric", tmp_path)
    assert metric.floor([1, 2], [3], ["text"]) == (0.01, "2 rows of text")
    assert not load_function("own.py:floor", tmp_path).floor


def test_only_the_first_characters_of_long_texts_are_compared() -> None:
    long = [{**row, "text": "the same words " * 200 + row["text"]} for row in rows(0, 60)]
    assert floor(long, rows(1, 30))[0] < 0.5
