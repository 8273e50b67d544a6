"""Poison in the store of `memory` whose trigger is rare, or does not occur in val: the harm that is left has a
bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.memory_worlds import RECALL, TRIGGER, World, attacked, poisoned_rows, run_world, true_accuracy, truth

MEMORY = {"memory": {"k": 4, "kinds": ["examples"], "trials": 2}}


def main(folder: Path, poison: int, seen: float) -> tuple[dict[bool, float], float]:
    """Accuracy on fresh inputs with the trigger and without it, and the share of poison that was set aside."""
    sizes: dict[str, Any] = {"sizes": (100, 60, 60), "clean": 0, "seen": seen}
    rows = poisoned_rows(0, poison=poison, **sizes)
    report = run_world(folder, rows, World(attacked), MEMORY, nodes=RECALL, calls=900)
    fresh = poisoned_rows(1000, poison=poison, **sizes)["test"]
    found = {
        has: true_accuracy(report, attacked, [row for row in fresh if (TRIGGER in row["text"]) == has])
        for has in (True, False)
    }
    bad = {row["text"] for row in rows["train"] if row["label"] != truth(row["text"])}
    aside = {e["inputs"]["text"] for e in report.winner.get("nodes.look.entries") if e["quarantined"]}
    return found, len(bad & aside) / max(1, len(bad))


@pytest.mark.slow
@pytest.mark.parametrize(
    "poison", [pytest.param(1, marks=pytest.mark.slow), 5, pytest.param(20, marks=pytest.mark.slow)]
)
def test_what_val_never_saw_harms_inputs_with_the_trigger_alone(poison: int, tmp_path: Path) -> None:
    """The bound: inputs without the trigger lose nothing, so no more is lost than the share of inputs that carry it."""
    clean, _ = main(tmp_path / "clean", 0, 0.0)
    hit, out = main(tmp_path / "hit", poison, 0.0)
    assert clean[True] > 0.8 and clean[False] > 0.8
    assert hit[False] >= clean[False] - 0.05
    assert out == 0 and hit[True] < clean[True] - 0.1, "what val does not show is not found: the attack works"


@pytest.mark.slow
def test_poison_of_a_fifth_is_found_where_val_carries_the_trigger_as_often(tmp_path: Path) -> None:
    hit, out = main(tmp_path, 20, 0.2)
    assert out > 0.8 and hit[True] > 0.6 and hit[False] > 0.85
