"""The recorded frontiers of FrugalGPT by our measures (contrib/bench/optimizers/frugalgpt_frontiers.py)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "contrib" / "bench" / "optimizers"))

from frugalgpt_frontiers import CASCADE, read_frontiers  # noqa: E402


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
