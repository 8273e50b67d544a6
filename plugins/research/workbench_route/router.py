"""The router: what is predicted of each candidate, what it is estimated to cost, and which one is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal

from pydantic import Field, model_validator

from workbench_route.features import FeatureSpace
from workbench_route.outcomes import Candidate
from workbench_route.predictor import Learned, LearnedSetting, Predictor, Real
from workbench_route.reward import Reward

Rule = Literal["value", "match"]


class CallCost(Learned):
    """The cost of an answer of a model, estimated before the call from the length of the prompt."""

    fixed: Real = Field(ge=0)
    per_character: Real = Field(ge=0)

    def estimate(self, characters: int) -> float:
        return self.fixed + self.per_character * characters


class Router(LearnedSetting):
    """The router that the optimizer `route` has learned, in the setting `learned` of a node.

    rule: `match`, that of BEST-Route (arXiv 2506.22716): a head says how likely the candidate is no worse than the
    reference, which itself counts as certain; the cheapest one at or above the threshold is taken. `value`: a head says
    how good the candidate is expected to be; the one with the highest quality less the threshold times its cost (in
    units of the reference's mean cost) is taken.
    """

    what = "router"
    hint = "The optimizer `route` writes this setting; leave it out to take the reference for every input."
    tables = ("heads", "rewards")

    version: Literal[1] = 1
    rule: Rule
    threshold: Real
    unit: str
    candidates: list[str] = Field(min_length=2)
    reference: str
    dims: int = Field(ge=1, le=1_000_000)
    vector: int = Field(0, ge=0)
    mean_cost: Real = Field(gt=0)
    costs: Mapping[str, CallCost]
    heads: Mapping[str, Predictor]
    rewards: Mapping[str, Predictor] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _complete(self) -> Router:
        if self.reference not in self.candidates:
            raise ValueError("the reference must be one of the candidates")
        heads = [c for c in self.candidates if c != self.reference or self.rule == "value"]
        if missing := [c for c in heads if c not in self.heads]:
            raise ValueError(f"there is no head of {missing[0]}")
        if missing := [c for c in self.candidates if Candidate.named(c).model not in self.costs]:
            raise ValueError(f"there is no cost of {missing[0]}")
        return self

    @cached_property
    def space(self) -> FeatureSpace:
        return FeatureSpace(1, self.vector, self.dims)

    @cached_property
    def position(self) -> int:
        """That of the reference among the candidates."""
        return self.candidates.index(self.reference)

    def scores(self, text: str, vector: Sequence[float] = ()) -> list[float]:
        """The prediction for each candidate; 1.0 for the reference under the rule `match`."""
        features = self.space.extract([text], vector)
        return [self.heads[c](features) if c in self.heads else 1.0 for c in self.candidates]

    def estimated_costs(self, text: str) -> list[float]:
        """Estimate the cost of each candidate, in `unit`."""
        found = [Candidate.named(name) for name in self.candidates]
        return [c.samples * self.costs[c.model].estimate(len(text)) for c in found]

    def choose(self, scores: Sequence[float], costs: Sequence[float], threshold: float | None = None) -> int:
        """The position of the candidate that is taken. Of equals the cheaper, then the earlier one."""
        level = self.threshold if threshold is None else threshold
        return choose(self.rule, scores, costs, self.position, level, self.mean_cost)

    def reward(self, model: str) -> Reward | None:
        found = self.rewards.get(model)
        return Reward(found) if found is not None else None


def choose(
    rule: str, scores: Sequence[float], costs: Sequence[float], reference: int, threshold: float, mean_cost: float
) -> int:
    """The position of the candidate that is taken (see `Router`)."""
    order = range(len(scores))
    if rule == "match":
        fit = [i for i in order if i == reference or scores[i] >= threshold]
        return min(fit, key=lambda i: (costs[i], i))
    return min(order, key=lambda i: (threshold * costs[i] / mean_cost - scores[i], costs[i], i))
