"""What `workbench estimate` says that a test can show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import plant

from workbench.run import estimate, prepare


def test_repeated_rows_count_once_in_the_estimate_as_in_the_proof(tmp_path: Path) -> None:
    plant(tmp_path, lambda r: 0.5, {"random": {"trials": 1}}, calls=300, rows=(20, 20, 60))
    lines = [{"text": f"row {i % 6} topic1 word1: a a-thing" + "!" * (i // 6), "label": "a"} for i in range(60)]
    file, test = tmp_path / "workflow.yaml", tmp_path / "test.jsonl"
    whole = estimate(prepare(file)[2])
    assert 0 < whole["smallest_gain"] < 0.3 and whole["lines"][-1].startswith(
        "With 60 test rows, the test can show gains of about"
    )
    test.write_text("".join(json.dumps(line) + "\n" for line in lines))
    few = estimate(prepare(file)[2])
    assert few["smallest_gain"] is None or few["smallest_gain"] > 0.5
    assert few["lines"][-1].startswith("With 60 test rows in 6 clusters, each of which counts once, ")


@pytest.mark.parametrize(
    ("settings", "rows"),
    [
        ({"random": {"trials": 3}}, 3 * 20),
        ({"optuna": {"trials": 3}}, 3 * 20),
        ({"bootstrap": {"trials": 3}}, 3 * 20 + 20),
        ({"bootstrap": {"trials": 3, "self_generated": False}}, 3 * 20),
    ],
    ids=str,
)
def test_the_estimate_counts_no_more_rows_than_the_settings_allow(
    settings: dict[str, Any], rows: int, tmp_path: Path
) -> None:
    space: Any = {} if "bootstrap" in settings else {"nodes.sort.instructions": ["One.", "Two.", "Three."]}
    _, lm = plant(tmp_path, lambda r: 0.5, settings, calls=5000, rows=(20, 20, 60), search=space)
    task, optimizers = prepare(tmp_path / "workflow.yaml")[2:4]
    found = estimate(task, optimizers)
    (name,) = settings
    assert f"{name}: runs at most {rows} rows." in found["lines"]
    assert found["search"]["calls"] == rows and found["candidates"] == rows // 20
    assert lm.requests <= found["total"]["calls"] == 20 + rows + 2 * 60


def test_two_optimizers_of_one_name_are_both_counted(tmp_path: Path) -> None:
    space = {"nodes.sort.instructions": ["One.", "Two.", "Three."]}
    both = [{"random": {"trials": 2}}, {"random": {"trials": 3}}]
    plant(tmp_path, lambda r: 0.5, None, calls=5000, rows=(20, 20, 60), search=space, optimize=both)
    task, optimizers = prepare(tmp_path / "workflow.yaml")[2:4]
    found = estimate(task, optimizers)
    assert found["candidates"] == 5 and found["search"]["calls"] == 5 * 20
