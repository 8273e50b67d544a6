"""Learning a router from outcomes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench_route.features import FeatureSpace
from workbench_route.fitting import fit_constant, fit_heads
from workbench_route.outcomes import Candidate, Pick, Row, draw_scores, first_answer, match_label
from workbench_route.predictor import Predictor
from workbench_route.reward import Reward, fit_reward
from workbench_route.router import CallCost, Router, Rule

#: Fits the heads: (features, outcomes by head, size, seed) -> predictors by head.
Fit = Callable[..., dict[str, Predictor]]


@dataclass(frozen=True)
class Problem:
    """The routing problem.

    Args:
        candidates: in the order of the file.
        reference: the one that is taken where nothing is known; usually the best.
        rule: see `Router`.
        unit: of the costs: usd, tokens, calls or characters.
    """

    candidates: Sequence[Candidate]
    reference: Candidate
    rule: Rule = "value"
    unit: str = "usd"
    dims: int = 2048

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(c.model for c in self.candidates))


def learn_router(problem: Problem, rows: Sequence[Row], seed: int, fit: Fit = fit_heads) -> Router:
    """A router from the outcomes of some rows, none of which may be empty. Its threshold is still to be chosen.

    fit: another way to fit, for tests of what the predictors are worth.
    """
    rewards, picks = _fit_rewards(problem, rows, seed)
    scores = {c: [draw_scores(row, c, picks[c.model]) for row in rows] for c in problem.candidates}
    space = FeatureSpace(1, len(rows[0].vector), problem.dims)
    features = [space.extract([row.text], row.vector) for row in rows]
    headed = [c for c in problem.candidates if problem.rule == "value" or c != problem.reference]
    wanted = {candidate.name: make_labels(problem, scores, candidate) for candidate in headed}
    costs = {model: fit_cost(rows, model) for model in problem.models}
    mean = math.fsum(costs[problem.reference.model].estimate(len(row.text)) for row in rows) / len(rows)
    return Router(
        rule=problem.rule,
        threshold=0.0 if problem.rule == "value" else 2.0,
        unit=problem.unit,
        candidates=[c.name for c in problem.candidates],
        reference=problem.reference.name,
        dims=problem.dims,
        vector=len(rows[0].vector),
        mean_cost=max(problem.reference.samples * mean, 1e-12),
        costs=costs,
        heads=fit(features, wanted, space.size, seed),
        rewards={model: reward.predictor for model, reward in rewards.items()},
    )


def _fit_rewards(problem: Problem, rows: Sequence[Row], seed: int) -> tuple[dict[str, Reward], Mapping[str, Pick]]:
    """Rewards of the models of which several answers may be drawn, and how answers of train are picked."""
    several = {c.model for c in problem.candidates if c.samples > 1}
    rewards: dict[str, Reward] = {}
    picks: dict[str, Pick] = dict.fromkeys(problem.models, first_answer)
    for model in problem.models:
        if model in several:
            reward, picks[model] = fit_reward(rows, model, seed)
            if reward is not None:
                rewards[model] = reward
    return rewards, picks


def make_labels(
    problem: Problem, scores: Mapping[Candidate, Sequence[Sequence[float]]], candidate: Candidate
) -> list[float]:
    """Make the targets of a head, by row: the share of pairs of draws in which the candidate is no worse than the
    reference (`match`), or its mean score (`value`)."""
    own = scores[candidate]
    if problem.rule == "value":
        return [math.fsum(drawn) / len(drawn) for drawn in own]
    pairs = zip(own, scores[problem.reference], strict=True)
    return [match_label(drawn, others) for drawn, others in pairs]


def fit_cost(rows: Sequence[Row], model: str) -> CallCost:
    """The cost of an answer as a line over the length of the input, by least squares, which never falls.

    The slope is the price of the prompt, which is known, and of the part of the answer that grows with it; the rest of
    the answer, which is not known before it is given, goes into the constant.
    """
    pairs = [(len(row.text), sample.cost) for row in rows for sample in row.samples[model]]
    n, mean_x = len(pairs), math.fsum(x for x, _ in pairs) / len(pairs)
    mean_y = math.fsum(y for _, y in pairs) / n
    spread = math.fsum((x - mean_x) ** 2 for x, _ in pairs)
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in pairs) / spread if spread else 0.0
    slope = min(max(0.0, slope), mean_y / mean_x if mean_x else 0.0)
    return CallCost(fixed=max(0.0, mean_y - slope * mean_x), per_character=slope)


def fit_constants(
    rows: Sequence[Any],
    wanted: Mapping[str, Sequence[float]],
    size: int,
    seed: int,
) -> dict[str, Predictor]:
    """In place of `fit_heads`: say the same of every input. What a router gains over this it owes to the text."""
    return {name: fit_constant(labels) for name, labels in wanted.items()}
