"""Every sampler of the optimizer `optuna` on planted problems (a formula answers, no model)."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import candidates, demos_of, evaluations, plant, true_skill

from workbench.errors import SpecError
from workbench.lm import Request
from workbench.study import objective_sign
from workbench_optuna.sampler import Searcher

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")

SPACE = {
    "nodes.sort.decoding.temperature": {"float": [0.0, 1.5]},
    "nodes.sort.decoding.top_p": {"float": [0.1, 1.0], "step": 0.1},
    "nodes.sort.retrieve": {"int": [1, 4]},
}
NEEDS = {"gp": "torch", "cmaes": "cmaes"}


def needed(sampler: str) -> None:
    if sampler in NEEDS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pytest.importorskip(NEEDS[sampler])


def skill(request: Request) -> float:
    """0.95 at temperature 0.3 and top_p 0.7, less with the distance from there."""
    return 0.95 - 0.6 * (request.temperature - 0.3) ** 2 - 1.0 * (request.top_p - 0.7) ** 2


@pytest.mark.slow
@pytest.mark.parametrize("sampler", Searcher.SAMPLERS)
def test_every_sampler_finds_better_numbers(sampler: str, tmp_path: Path) -> None:
    needed(sampler)

    def bad_start(request: Request) -> float:
        return skill(request) if request.temperature else 0.2

    settings = {"sampler": sampler, "trials": 14}
    report, lm = plant(tmp_path, bad_start, {"optuna": settings}, calls=700, search=SPACE, rows=(12, 24, 24))
    assert report.status == "finished" and 8 < report.candidates <= 15 and lm.requests <= 700
    assert true_skill(report, bad_start, 0) > 0.7, report.changes
    for values in candidates(tmp_path):
        assert 0.0 <= values["nodes.sort.decoding.temperature"] <= 1.5
        top_p = values["nodes.sort.decoding.top_p"] * 10
        assert abs(top_p - round(top_p)) < 1e-6 and 1 <= round(top_p) <= 10
        assert values["nodes.sort.retrieve"] in (1, 2, 3, 4)


FRONTS = [["score", "tokens"], ["tokens", "score"], ["score", "tokens", "calls"]]


@pytest.mark.parametrize(
    ("sampler", "objectives"),
    # The first form of each, and all of one; `gp` once, since it takes its time.
    [
        pytest.param(s, objectives, marks=() if objectives is FRONTS[0] or s == "tpe" else pytest.mark.slow)
        for s in Searcher.SAMPLERS
        if s not in ("cmaes", "gp")
        for objectives in FRONTS
    ]
    + [pytest.param("gp", FRONTS[0], marks=pytest.mark.slow)],
)
def test_every_sampler_gives_a_front_of_several_objectives(sampler: str, objectives: list[str], tmp_path: Path) -> None:
    """More demos are better and cost more tokens, so the front has several points."""
    needed(sampler)

    def by_demos(request: Request) -> float:
        return 0.25 + 0.09 * min(len(demos_of(request)), 8)

    settings: dict[str, Any] = {"sampler": sampler, "trials": 12}
    report, _ = plant(
        tmp_path, by_demos, {"optuna": settings}, calls=600, objectives=objectives, pick="cheapest", rows=(24, 24, 24)
    )
    front = [tuple(objective_sign(o) * p[o] for o in objectives) for p in report.pareto]
    assert len(front) > 1 and len(set(front)) == len(front)
    assert not any(a != b and all(x >= y for x, y in zip(a, b, strict=True)) for a in front for b in front)
    every = evaluations(tmp_path)
    assert all(e["complete"] for e in every) and len(every) >= 5
    assert max(e["score"] for e in every) == max(p["score"] for p in report.pareto)
    chosen = next(p for p in report.pareto if p["workflow"] == report.winner.hash)
    start = every[0]["score"]
    cost = next(o for o in objectives if o != "score")
    assert chosen["score"] >= start and chosen[cost] == min(p[cost] for p in report.pareto if p["score"] >= start)


def test_the_same_seed_gives_the_same_run(tmp_path: Path) -> None:
    for sampler in ("tpe", "nsga2", "qmc"):
        runs = []
        for turn in range(2):
            folder = tmp_path / f"{sampler}{turn}"
            settings = {"sampler": sampler, "trials": 6}
            plant(folder, skill, {"optuna": settings}, calls=200, search=SPACE, rows=(12, 12, 12))
            runs.append([(e["candidate"], e["n"], e["score"]) for e in evaluations(folder)])
        assert runs[0] == runs[1] and len(runs[0]) > 4


def test_one_objective_is_all_that_cmaes_takes(tmp_path: Path) -> None:
    needed("cmaes")
    with pytest.raises(SpecError, match="takes one objective\n.*nsga2 or tpe"):
        plant(
            tmp_path, skill, {"optuna": {"sampler": "cmaes"}}, calls=300, search=SPACE, objectives=["score", "tokens"]
        )
