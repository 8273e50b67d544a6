"""Plans count with the calls that rows took, once measured; and a run that tried nothing says what to write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.helpers.planted import better_with_demos, plant

from workbench.lm import make_lm
from workbench.run import estimate, prepare
from workbench.spec import lm_spec
from workbench.store import Store

#: An agent that may take eight calls a row, and takes one.
AGENT = {"sort": {"agent": "text -> label", "max_steps": 8}}


@pytest.mark.parametrize("calls", [140, 200])
def test_a_search_is_planned_with_the_calls_that_the_baseline_took(calls: int, tmp_path: Path) -> None:
    """20 val rows at 8 calls each are more than either budget leaves."""
    report, lm = plant(
        tmp_path, better_with_demos, {"random": {"trials": 2}}, calls=calls, rows=(20, 20, 40), nodes=AGENT
    )
    assert report.candidates == 3 and report.untried is None and report.test_rows == 40
    assert report.spent["calls"] == lm.requests == 20 * 3 + 40 * 2


def test_the_ceiling_holds_whatever_the_plan_says(tmp_path: Path) -> None:
    report, lm = plant(tmp_path, better_with_demos, {"random": {"trials": 9}}, calls=90, rows=(20, 20, 40), nodes=AGENT)
    assert report.spent["calls"] <= 90 and lm.requests <= 90


def test_a_run_that_tried_nothing_names_the_budget_that_suffices(tmp_path: Path) -> None:
    report, _ = plant(tmp_path, lambda r: 0.3, {"random": {"trials": 2}}, calls=48)
    assert report.untried == "a candidate takes 24 calls more than are left for search. Write budget.calls: 72"
    report, _ = plant(tmp_path / "more", lambda r: 0.3, {"random": {"trials": 2}}, calls=72)
    assert report.untried is None and report.candidates >= 2


def test_a_budget_that_ends_with_the_baseline_is_named(tmp_path: Path) -> None:
    report, _ = plant(tmp_path, lambda r: 0.3, {"random": {"trials": 2}}, calls=44)
    assert (
        report.untried == "the budget ended before there was a candidate. Raise budget.calls (see workbench estimate)"
    )


def test_an_estimate_counts_with_the_calls_of_an_earlier_run(tmp_path: Path) -> None:
    report, _ = plant(tmp_path, better_with_demos, {"random": {"trials": 2}}, calls=400, rows=(20, 20, 40), nodes=AGENT)
    _, _, task, optimizers = prepare(tmp_path / "workflow.yaml")
    guessed, known = estimate(task, optimizers), estimate(task, optimizers, tmp_path / "run.db")
    assert known["lines"][0].startswith(f"At most 8 call(s) per example (1 measured on 40 rows of run {report.run}), ")
    assert (guessed["baseline"]["calls"], known["baseline"]["calls"], known["proof"]["calls"]) == (160, 20, 80)
    assert (known["baseline_calls"], known["max_calls"]) == (guessed["baseline_calls"], guessed["max_calls"])
    assert not any("may be too small" in line for line in known["lines"])


def test_an_estimate_prices_the_models_of_the_search(tmp_path: Path) -> None:
    """The mean of a model and of one that is nine times as dear is five times the price of the first."""
    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 2}}, calls=400)
    file = tmp_path / "workflow.yaml"
    spec = json.loads(file.read_text())
    with Store(tmp_path / "run.db") as store:  # the calls of a model in its place
        store.execute("update calls set lm = ?", make_lm(lm_spec(spec["lm"])).identity)
    own, dear = ({**spec["lm"], "price": {"input": n, "output": n}} for n in (1, 9))

    def usd(part: str, **more: object) -> float:
        file.write_text(json.dumps({**spec, "lm": own, **more}))
        _, _, task, optimizers = prepare(file)
        return estimate(task, optimizers, tmp_path / "run.db")[part]["usd"]

    alone = {part: usd(part) for part in ("baseline", "search", "proof")}
    both = {part: usd(part, search={"lm": [own, dear]}) for part in alone}
    assert both["baseline"] == alone["baseline"] > 0
    assert both["search"] == pytest.approx(5 * alone["search"], rel=0.01)
    assert both["proof"] == pytest.approx((1 + 5) / 2 * alone["proof"], rel=0.01), "one side is the file's own"
