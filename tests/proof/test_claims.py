"""What may be claimed and what may not, whatever the kind of claim: a gain, a saving, targets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.model_shelf import Shelf, Shelved, write_shelf_task
from tests.helpers.planted import PlantedLM, plant

from workbench.errors import LMError
from workbench.lm import Request, Response
from workbench.proof import Claim, Report, describe_proof, interval, paired_proof
from workbench.proof.savings import Ceiling, paired_saving
from workbench.run import Options, optimize


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A run whose targets are shown to be met."""
    folder = tmp_path_factory.mktemp("shelf")
    shelf = Shelf({"large": Shelved(0.97, 0.010), "small": Shelved(0.6, 0.0005), "medium": Shelved(0.95, 0.002)})
    return optimize(
        write_shelf_task(folder, shelf, 120, targets={"score": 0.8, "usd": 0.005}),
        options=Options(out=str(folder / "o.yaml"), allow_unproved=True),
        database=folder / "a.db",
        pool=shelf,
    )


def test_a_judge_shows_no_targets(targets: Report) -> None:
    """Labels are of baseline and winner, so that its scores of the targets stay an opinion."""
    assert targets.is_shown(targets.levels) and targets.proved
    assert targets.proof is not None
    judged = replace(targets, claims=[*targets.claims, Claim("judge", diff=targets.proof.diff)])
    assert not judged.is_shown(judged.levels) and not judged.proved and not judged.as_dict()["targets"]["shown"]


@pytest.mark.parametrize("objection", ["no proof: the agent remembers", "the change was sent in 0 of the 9 test rows"])
def test_an_objection_ends_every_claim(objection: str, targets: Report, tmp_path: Path) -> None:
    space = {"nodes.sort.instructions": ["Plain.", "Better."]}
    gain, _ = plant(tmp_path, lambda r: 0.95 if "Better" in str(r.messages[0]) else 0.2, {"random": {"trials": 3}},
                    calls=600, search=space)  # fmt: skip
    assert gain.gain_shown and gain.proved
    for report in (gain, targets):
        voided = replace(report, objections=[objection])
        assert (
            not voided.proved
            and not voided.gain_shown
            and not voided.is_shown(voided.levels)
            and not voided.is_shown(voided.saving)
        )
        assert voided.as_dict()["objections"] == [objection] and not voided.as_dict()["gain"]["shown"]
        assert f"The gain is not shown: {objection}. Its score" in "".join(voided.headline())
    assert f"The gain is not shown: {objection}" in "".join(replace(gain, objections=[objection]).lines())


class Priced(PlantedLM):
    """A call takes 100 tokens, with the short wording so many on rows of val, and on others. late: on some test rows
    the short wording has no answer in time."""

    def __init__(self, on_val: int, on_others: int, late: bool):
        super().__init__(lambda r: 1.0)
        self.on_val, self.on_others, self.late = on_val, on_others, late

    async def complete(self, request: Request) -> Response:
        answer = await super().complete(request)
        short, row = "Short." in str(request.messages[0]), str(request.messages[-1])
        if self.late and short and "test " in row and "topic0" in row:
            raise LMError("timeout", "no answer in time")
        of_short = self.on_val if "val " in row else self.on_others
        return Response(answer.text, "stop", of_short if short else 100, 1, 0.0)


def picked_by_cost(folder: Path, lm: PlantedLM, pick: str, objectives: list[str]) -> Report:
    space = {"nodes.sort.instructions": ["Long.", "Short."]}
    plant(folder, lambda r: 1.0, {"random": {"trials": 3}}, calls=900, rows=(8, 24, 60), search=space)
    spec = json.loads((folder / "workflow.yaml").read_text()) | {"objectives": objectives, "pick": pick}
    spec["proof"] = {"margin": 0.2}
    spec["nodes"]["sort"] |= {"instructions": "Long.", "decoding": {"max_tokens": 16}}
    spec["lm"]["attempts"] = 1
    (folder / "workflow.yaml").write_text(json.dumps(spec))
    options = Options(out=str(folder / "o.yaml"), allow_unproved=True)
    return optimize(folder / "workflow.yaml", database=folder / "b.db", pool=lm, options=options)


def test_a_row_that_was_not_answered_is_no_saving(tmp_path: Path) -> None:
    """It cost nothing because it gave nothing: the short wording is cheaper on val alone."""
    report = picked_by_cost(tmp_path, Priced(50, 100, late=True), "cheapest", ["score", "tokens"])
    assert report.changes and report.failures.get("timeout", 0) >= 3
    assert report.saving is not None and report.saving.diff == 0 and not report.is_shown(report.saving)


def test_rows_that_the_winner_did_not_answer_may_have_cost_the_most(tmp_path: Path) -> None:
    """They are left out of the means, and a saving is shown only if it is with the worst case for them."""
    report = picked_by_cost(tmp_path / "a", Priced(40, 40, late=True), "cheapest", ["score", "tokens"])
    assert report.changes and report.failures.get("timeout", 0) >= 3 and report.saving is not None
    assert report.saving.diff == -60 and report.saving.p < 0.001 and not report.is_shown(report.saving)
    answered = picked_by_cost(tmp_path / "b", Priced(20, 20, late=False), "cheapest", ["score", "tokens"])
    assert answered.is_shown(answered.saving)


def test_the_knee_proves_the_cost_that_it_weighs(tmp_path: Path) -> None:
    """It looks at the first two objectives; cheapest at all."""
    report = picked_by_cost(tmp_path, Priced(20, 20, late=False), "knee", ["score", "tokens", "latency"])
    assert report.changes and report.saving is not None and report.saving.of == "tokens"


@pytest.mark.parametrize("alpha", [0.05, 0.0083, 0.0005])
def test_every_claim_has_the_level_that_earlier_tests_leave(alpha: float) -> None:
    baseline, winner = [100.0] * 60, [100.0 - 14 - i % 3 for i in range(60)]
    saving = paired_saving("tokens", baseline, winner, Ceiling(130.0, ""), alpha=alpha)
    assert saving.shown == (saving.p < alpha) and 0.0005 < saving.p < 0.0083
    gain = paired_proof([0.0] * 60, [1.0] * 9 + [0.0] * 51, alpha=alpha)
    assert gain.shown == (gain.p < alpha) and 0.0005 < gain.p < 0.0083
    if not gain.shown:
        assert f"these rows were tested before, so p must be below {alpha:.2g}" in describe_proof(gain)


def test_the_interval_covers_whatever_unanswered_rows_could_have_scored() -> None:
    baseline: list[float | None] = [0.0] * 40
    winner: list[float | None] = [1.0] * 10 + [0.0] * 20 + [None] * 10
    low, high = paired_proof(baseline, winner).ci95
    worst, best = (paired_proof([0.0] * 40, [1.0] * 10 + [0.0] * 20 + [unseen] * 10) for unseen in (0.0, 1.0))
    assert low <= worst.ci95[0] and high >= best.ci95[1]


def test_the_interval_of_one_side_is_that_of_scores_from_0_to_1() -> None:
    low, high = interval([0.5] * 20)
    assert low > 0.3 and high < 0.7
    assert interval([0.9, 0.95] * 10)[1] <= 1 and interval([0.05, 0.1] * 10)[0] >= 0


def test_few_changed_rows_promise_no_small_gain() -> None:
    """One changed row of 200 does not mean that a gain of one row would be found."""
    one = paired_proof([0.0] * 200, [1.0] + [0.0] * 199).smallest_gain
    five = paired_proof([0.0] * 200, [1.0] * 5 + [0.0] * 195).smallest_gain
    assert one == five


def scatter(spread: float) -> Any:
    baseline = [0.5] * 60
    return paired_proof(baseline, [0.5 + 0.1 + spread * (i % 2) for i in range(60)]).smallest_gain


def test_rounding_is_no_scatter_that_a_smallest_gain_could_be_made_of() -> None:
    assert scatter(1e-13) is None and scatter(0.0) is None and scatter(0.05) is not None
