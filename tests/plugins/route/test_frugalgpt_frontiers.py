"""The recorded frontiers of FrugalGPT by our measures (contrib/bench/optimizers/frugalgpt_frontiers.py)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "contrib" / "bench" / "optimizers"))

from frugalgpt_frontiers import CASCADE, read_frontiers  # noqa: E402

SHARED = ROOT.parent / "shared/data/frugalgpt_frontiers"


def test_the_figures_of_a_frontier_are_those_of_its_points(tmp_path: Path) -> None:
    """Cheap 0.6 at 1, strong 0.8 at 11; the cascade has 0.8 at 6, so its area is the line to there and level after."""
    points = [
        ("cheap", 0.6, 1.0, 99.0),
        ("strong", 0.8, 11.0, 99.0),
        (CASCADE, 0.8, 6.0, 5.0),
        (CASCADE, 0.9, 20.0, 20.0),
    ]
    labels = [
        {"Method": name, "Test_acc": str(acc), "Test_cost": str(cost), "Budget": str(budget)}
        for name, acc, cost, budget in points
    ]
    tables = [("summary_NEWS_e8.csv", one) for one in labels] + [("other_2024updatedmodel.csv", labels[0])]
    lines = [json.dumps({"inputs": {"table": table}, "labels": one}) for table, one in tables]
    (tmp_path / "table.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (frontier,) = read_frontiers(tmp_path)
    found = frontier.figures()
    assert (frontier.name, frontier.over_budget) == ("NEWS", 1)
    assert (found["best single"], found["cascade"]) == (0.8, 0.9)
    assert found["cost at best single"] == pytest.approx(6 / 11)
    assert found["area of the mix"] == pytest.approx(0.7)
    # The line from (1, 0.6) to (6, 0.8), then towards (20, 0.9) as far as 11.
    assert found["area"] == pytest.approx((5 * 0.7 + 5 * (0.8 + 0.8 + 0.1 * 5 / 14) / 2) / 10)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data are not here")
def test_the_published_cascades_are_ahead_of_their_best_model_and_hold_no_outcome_of_a_question() -> None:
    frontiers = {frontier.name: frontier for frontier in read_frontiers(SHARED)}
    assert set(frontiers) == {"AGNEWS", "COQA", "HEADLINES", "OVERRULING", "SCIQ"}
    for frontier in frontiers.values():
        found = frontier.figures()
        assert len(frontier.cascade) == 20 and found["cascade"] > found["best single"]
        assert found["area"] > found["area of the mix"] or frontier.name == "COQA"
    rows = [json.loads(line) for line in (SHARED / "table.jsonl").read_text(encoding="utf-8").splitlines()]
    aggregates = {"Test_acc", "Test_cost", "Test_size", "Train_acc", "Train_cost", "Train_size", "Budget"}
    assert all(set(row["labels"]) == aggregates | {"Method", "Provider", "Marker"} for row in rows)
