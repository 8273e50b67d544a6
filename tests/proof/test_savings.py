"""What a row can cost at most, and savings that hold for it, from the file to the report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.planted import PlantedLM, plant

from workbench.lm import Request, Response
from workbench.proof import Claim
from workbench.proof.savings import SAVING, Ceiling, describe_saving, find_ceilings, paired_saving
from workbench.run import Options, optimize
from workbench.study import Result
from workbench.task import Example
from workbench.workflow import CallRecord, Span, Trace, Workflow


def result(row: int, calls: list[CallRecord], **cost: Any) -> Result:
    return Result(Example(str(row), {}), 1.0, trace=Trace(str(row), [Span("sort", "Predict", {}, calls=calls)]), **cost)


def call(prompt: int, out: int, most: int, usd: float | None = 0.02, seconds: float = 240.0) -> CallRecord:
    answer = Response("a", "stop", prompt, out, 0.0)
    record = CallRecord((), answer, "task", "m", False, 0.001, max_tokens=most)
    record.max_usd, record.max_seconds = usd, seconds
    return record


@pytest.fixture
def workflow(tmp_path: Path) -> Workflow:
    node = {"kind": "predict", "signature": "text -> label", "samples": 3}
    return Workflow({"nodes": {"sort": node}}, tmp_path)


def test_a_ceiling_is_what_the_calls_of_a_row_can_cost_at_their_worst(workflow: Workflow) -> None:
    rows = [result(0, [call(100, 5, 16)], tokens=105), result(1, [call(140, 9, 16), call(20, 1, 64)], tokens=170)]
    found = find_ceilings([(workflow, rows)], {})
    assert workflow.max_calls == 3 and found["calls"].most == 3
    assert found["tokens"] == Ceiling(3 * (156.0 + 64), "the worst case of its calls"), (
        "a prompt may hold two answers before it"
    )
    assert found["usd"].most == pytest.approx(0.12) and found["latency"].most == 720
    assert str(found["tokens"]) == "at most 660 a row, the worst case of its calls"


def test_where_no_bound_is_known_rows_may_cost_ten_times_the_dearest(workflow: Workflow) -> None:
    for calls, costs in (
        ([call(10, 90, 16)], "tokens"),  # the server gave more than it was asked for
        ([call(10, 5, 16, usd=None)], "usd"),
        ([call(10, 5, 16, seconds=0.0)], "latency"),
    ):
        row = result(0, calls, tokens=100, usd=0.5, seconds=2.0)
        found = find_ceilings([(workflow, [row])], {})[costs]
        assert found.why.startswith("10 times the most expensive row observed") and found.most == {
            "tokens": 1000, "usd": 5.0, "latency": 20.0}[costs]  # fmt: skip


def test_a_declared_ceiling_counts_until_a_row_passes_it(workflow: Workflow) -> None:
    rows = [result(0, [call(100, 5, 16)], tokens=105, seconds=2.0)]
    found = find_ceilings([(workflow, rows)], {"tokens": 150, "latency": 1.5})
    assert found["tokens"] == Ceiling(150, "by proof: {ceiling: ...}; its calls could cost 396"), "3 * (116 + 16)"
    assert found["latency"].most == 720, "one took 2 s"


class Verbose(PlantedLM):
    """Answers at some length after long instructions; never wrong, whatever these say."""

    async def complete(self, request: Request) -> Response:
        answer = await super().complete(request)
        long = "Long." in str(request.messages[0])
        return Response(answer.text, "stop", 400 if long else 100, 1, 0.0)


def saving(folder: Path, **proof: Any) -> tuple[bool, str]:
    space = {"nodes.sort.instructions": ["Long.", "Short."]}
    plant(folder, lambda r: 1.0, {"random": {"trials": 3}}, calls=900, rows=(8, 24, 60), search=space)
    spec = json.loads((folder / "workflow.yaml").read_text())
    spec["nodes"]["sort"] |= {"instructions": "Long.", "decoding": {"max_tokens": 4000}}
    spec |= {"objectives": ["score", "tokens"], "pick": "cheapest", "proof": {"margin": 0.2, **proof}}
    (folder / "workflow.yaml").write_text(json.dumps(spec))
    options = Options(out=str(folder / "o.yaml"), allow_unproved=True)
    report = optimize(folder / "workflow.yaml", database=folder / "b.db", pool=Verbose(lambda r: 1.0), options=options)
    assert report.changes and report.saving is not None
    return report.is_shown(report.saving), next(line for line in report.headline() if "saving" in line)


def test_the_line_of_a_saving_says_what_a_row_can_cost(tmp_path: Path) -> None:
    """300 of 401 tokens saved on each of 60 rows: a test that allows for 4,400 tokens a row shows it just so."""
    shown, line = saving(tmp_path / "a")
    assert shown and "at most 4400 a row, the worst case of its calls" in line
    shown, line = saving(tmp_path / "b", ceiling={"tokens": 500})
    assert shown and "at most 500 a row, by proof: {ceiling: ...}; its calls could cost 4400" in line


def test_a_saving_is_proved_by_the_same_test() -> None:
    rng = np.random.default_rng(9)
    dear = rng.uniform(80, 120, 60)
    most = Ceiling(300.0, "the worst case of its calls")
    cheap = paired_saving("tokens", dear.tolist(), (dear * 0.6).tolist(), most)
    assert (
        cheap.shown
        and cheap.diff == pytest.approx(-0.4 * dear.mean())
        and cheap.ci95[0] < cheap.diff < cheap.ci95[1] < 0
    )
    assert not paired_saving("tokens", dear.tolist(), rng.permutation(dear).tolist(), most).shown
    assert not paired_saving("tokens", (dear * 0.6).tolist(), dear.tolist(), most).shown, "dearer"
    assert not paired_saving("usd", [0.0] * 9, [0.0] * 9, Ceiling(0.0, "")).shown
    outliers = paired_saving("tokens", [100.0] * 20, [99.0] * 19 + [110.0], most)
    assert not outliers.shown, "the ranks say less, the mean does not"
    assert cheap.most == 300 and cheap.bound == "the worst case of its calls"


@pytest.mark.slow
def test_a_saving_allows_for_rows_as_dear_as_they_can_be() -> None:
    """Each row 10 cheaper, and a row that costs 1,000 more in one of a hundred was not seen in 60."""
    baseline, winner = [100.0] * 60, [90.0] * 60
    assert paired_saving("tokens", baseline, winner, Ceiling(110.0, "")).shown
    assert not paired_saving("tokens", baseline, winner, Ceiling(1100.0, "")).shown
    rng, claims = np.random.default_rng(4), 0
    for _ in range(100):
        loops = np.where(rng.random(60) < 0.01, 1090.0, 90.0)
        claims += paired_saving("tokens", baseline, loops.tolist(), Ceiling(1100.0, "")).shown
    assert claims == 0, "the true saving is 0"


def test_u20_dollars_are_told_for_a_thousand_rows_and_a_dearer_winner_as_such() -> None:
    figures = {
        "n": 40,
        "baseline": 1.055e-05,
        "winner": 1.295e-05,
        "diff": 2.4e-06,
        "ci95": (1e-06, 3e-06),
        "p": 0.0003,
    }
    dearer = Claim("saving", SAVING, **figures, of="usd", most=0.001, bound="a bound")
    line = describe_saving(dearer, shown=False)
    assert line.startswith("It was picked by score and cost. It costs 23% more: $0.01055 -> $0.01295 per 1,000 rows")
    assert "e-0" not in line.split("p =")[0] and "saving" not in line
    slower = replace(dearer, of="latency", baseline=2.0, winner=1.0, diff=-1.0)
    assert "It takes 50% less: 2 -> 1 a row" in describe_saving(slower, shown=True)
    assert describe_saving(slower, shown=True).endswith("; the saving is shown.")
