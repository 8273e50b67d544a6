"""DSPy's optimizers: what they try is recorded. What they find is tested in tests/whole/test_planted_optimizers.py."""

from __future__ import annotations

from pathlib import Path

from workbench.plugins import plugins
from workbench.testing.simulated import SimulatedLM, run_simulated


def test_a_proposal_that_fails_on_a_few_rows_was_tried(tmp_path: Path) -> None:
    """GEPA scores a proposal on a minibatch first. Where none passes, the proposer's answers were good nevertheless."""
    gepa = plugins().get("optimizers", "dspy_gepa")(metric_calls=60)
    run = run_simulated(gepa, tmp_path, lm=SimulatedLM(helps=False), calls=400)
    assert run.report.untried is None and len(run.trees) > 1
    assert "nothing was tried" not in "\n".join(run.report.lines())
