"""Several objectives: the front is what nothing beats, and picks are right on a front made by hand."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.data import Example
from workbench.evaluate import Evaluation, Result
from workbench.pareto import pareto_set, pick
from workbench.workflow import Workflow

ROWS = [Example(str(i), {"text": f"row {i}", "label": "yes"}) for i in range(4)]


def candidate(name: str, score: float, usd: float) -> Evaluation:
    rows = tuple(Result(ROWS[i], score, usd=usd) for i in range(4))
    return Evaluation(Workflow({"nodes": {}, "name": name}, Path(".")), "val", rows, True)


HAND = {
    "baseline": (0.50, 1.00), "worse": (0.40, 1.20), "cheap": (0.50, 0.20), "best": (0.90, 3.00),
    "bend": (0.85, 0.60), "poor": (0.10, 0.10), "twin": (0.90, 3.00),
}  # fmt: skip


def test_picks_from_a_front_made_by_hand() -> None:
    made = [candidate(n, *v) for n, v in HAND.items()]
    front = pareto_set(made, ["score", "usd"])
    assert [e.workflow.tree["name"] for e in front] == ["best", "bend", "cheap", "poor"]
    for how, name in (("score", "best"), ("cheapest", "cheap"), ("knee", "bend")):
        assert pick(made, ["score", "usd"], how).workflow.tree["name"] == name


points = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12)


@given(points)
@settings(max_examples=100, deadline=None)
def test_a_front_is_what_nothing_beats(found: list[tuple[int, int]]) -> None:
    made = [candidate(str(i), a / 4, float(b)) for i, (a, b) in enumerate(found)]
    kept = {(e.score, e.objectives["usd"]) for e in pareto_set(made, ["score", "usd"])}
    every = {(a / 4, float(b)) for a, b in found}
    assert kept == {p for p in every if not any(q != p and q[0] >= p[0] and q[1] <= p[1] for q in every)}
    assert len(pareto_set(made, ["score", "usd"])) == len(kept), "equal ones are kept once"
