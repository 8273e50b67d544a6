"""The objectives of a workflow file: what to optimize, which candidate wins, and how its gain is tested."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from workbench.base.type_guards import is_dict
from workbench.spec.base import Strict
from workbench.spec.lm import LMSpec

Objective = Literal["score", "usd", "tokens", "latency", "calls", "p95_latency"]
Pick = Literal["score", "knee", "cheapest"]

OBJECTIVES: tuple[Objective, ...] = get_args(Objective)


class ProofSpec(Strict):
    """The test of the gain on the sealed rows."""

    when_unchanged: Literal["skip", "test"] = Field(
        "skip",
        description="if nothing beat the baseline on val: leave the sealed rows unused, or test the baseline on them",
    )
    margin: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="the loss of score that must be ruled out where a cheaper candidate is taken: against the baseline "
        "(`pick: cheapest`, `knee`), against the best candidate (`targets:`; where they name a score, only if it is "
        "set)",
    )
    labels: str | None = Field(
        None,
        description="file of labels by people (`workbench label`), without which a judge proves nothing; it may "
        "be made after the run",
    )
    rerun: bool = Field(
        False,
        description="also run the old workflow on each sealed row as often as the winner's cost pays for, and compare "
        "the winner with its vote; takes what the budget leaves after the proof",
    )
    ceiling: dict[Literal["usd", "tokens", "calls", "latency"], Annotated[float, Field(gt=0)]] = Field(
        default={},
        description="what a row can cost at most, where you know better than the worst case of its calls: the lower it "
        "is, the smaller the saving that can be shown",
    )


class TargetsSpec(Strict):
    """Service levels: the cheapest candidate that meets them is taken. Score, dollars, tokens and calls are means."""

    score: float | None = Field(None, gt=0, le=1, description="minimum mean score")
    usd: float | None = Field(None, gt=0, description="maximum dollars per row")
    tokens: float | None = Field(None, gt=0, description="maximum tokens per row, input and output")
    calls: float | None = Field(None, gt=0, description="maximum model calls per row")
    latency: float | None = Field(None, gt=0, description="maximum average seconds per row")
    p95_latency: float | None = Field(None, gt=0, description="maximum seconds for 95% of the rows")

    @property
    def given(self) -> dict[str, float]:
        """Return the limits that are set, by objective."""
        return {name: limit for name, limit in self.model_dump().items() if limit is not None}

    @model_validator(mode="after")
    def _one_at_least(self) -> TargetsSpec:
        if not self.given:
            raise ValueError("targets name at least one limit, e.g. {score: 0.8, usd: 0.002, p95_latency: 3}")
        return self


class ConfigurationSpec(Strict):
    """Another configuration of the workflow, as `optimize` writes it, with its figures on val."""

    score: float = Field(ge=0, le=1, description="mean score")
    usd: float = Field(0.0, ge=0, description="dollars a row")
    tokens: float = Field(0.0, ge=0, description="tokens a row")
    latency: float = Field(gt=0, description="seconds a row, on average")
    p95_latency: float = Field(gt=0, description="seconds that 95 of 100 rows stay below")
    lm: LMSpec | None = Field(None, description="instead of the file's")
    nodes: dict[str, dict[str, Any]] | None = Field(None, min_length=1, description="instead of the file's")


def add_limited_costs(spec: Any) -> Any:
    """Add the costs that `targets` limits to the objectives if a file lists none."""
    if not is_dict(spec) or not is_dict(spec.get("targets")) or "objectives" in spec:
        return spec
    costs = [name for name in OBJECTIVES if name in spec["targets"] and name != "score"]
    return {**spec, "objectives": ["score", *costs]}


def check_objectives(objectives: Sequence[Objective], pick: Pick) -> None:
    """Raise ValueError if the objectives contradict each other, or leave nothing for `pick` to choose by."""
    if "score" not in objectives:
        raise ValueError("objectives must contain score: without it the cheapest nonsense is best")
    if len(set(objectives)) < len(objectives):
        raise ValueError("objectives must differ from each other")
    if pick == "score":
        return
    if len(objectives) == 1:
        raise ValueError(f"pick: {pick} needs a second objective, e.g. objectives: [score, tokens]")
    costs = [o for o in objectives if o != "score"][:1] if pick == "cheapest" else objectives[:2]
    if "p95_latency" in costs:
        raise ValueError(
            f"pick: {pick} by p95_latency could never be proved: no row has one. Write latency, or limit it "
            "by targets: {p95_latency: ...}"
        )
