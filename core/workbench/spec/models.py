"""A workflow file as typed values."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from workbench.base.type_guards import is_dict, is_list
from workbench.spec import defaults
from workbench.spec.attacks import AttackSpec, ConstraintsSpec
from workbench.spec.base import Strict, Track
from workbench.spec.data import DataSpec
from workbench.spec.lm import LMSpec
from workbench.spec.objectives import (
    ConfigurationSpec,
    Objective,
    Pick,
    ProofSpec,
    TargetsSpec,
    add_limited_costs,
    check_objectives,
)
from workbench.spec.policy import PolicySpec


class BudgetSpec(Strict):
    """Hard ceilings for all roles together, retries included. A missing ceiling means no limit."""

    calls: int | None = Field(None, ge=1, description="requests to language models, each attempt counted")
    tokens: int | None = Field(None, ge=1, description="tokens in and out together")
    usd: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="dollars, by the prices that are known or given"
    )
    minutes: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="time on the clock, over all parts of a resumed run"
    )


class DomainSpec(Strict):
    """The values that one address may take: exactly one of float, int, choice, demos, or a node's any_of and
    optional."""

    float_: Annotated[
        list[float] | None, Field(alias="float", min_length=2, max_length=2, description="[least, most] of a number")
    ] = None
    int_: Annotated[
        list[int] | None, Field(alias="int", min_length=2, max_length=2, description="[least, most] of a whole number")
    ] = None
    choice: Annotated[
        list[Any] | None, Field(min_length=1, description="any of these values; short form: the list alone")
    ] = None
    demos: Annotated[int | None, Field(ge=1, le=256, description="maximum number of train rows as demos")] = None
    any_of: Annotated[
        dict[str, dict[str, Any]] | None,
        Field(min_length=1, description="nodes that may take this one's place, by name"),
    ] = None
    optional: bool = Field(False, description="whether the node may be left out")
    nearest: bool = Field(True, description="for demos: also try, for each input, the training rows nearest to it")
    log: bool = Field(False, description="for float and int: search on a logarithmic scale")
    step: float | None = Field(None, gt=0, description="for float and int: distance between values")
    when: dict[str, Any] = Field(default_factory=dict, description="only if these addresses have these values")

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"choice": value} if is_list(value) else {"optional": True} if value == "optional" else value

    @model_validator(mode="after")
    def _one_domain(self) -> DomainSpec:
        given = [n for n in ("float_", "int_", "choice", "demos", "any_of") if getattr(self, n) is not None]
        if len(given) != 1 and not (self.optional and not given):
            raise ValueError(
                "give exactly one of float, int, choice, demos, any_of, optional, e.g. {float: [0.0, 1.0]}"
            )
        if self.optional and given not in ([], ["any_of"]):
            raise ValueError("optional is for nodes: alone, or with any_of")
        taken = [n for n in self.any_of or {} if n in ("as_written", "absent")]
        if taken:
            raise ValueError(f"'{taken[0]}' names what is there anyway; call the alternative something else")
        bounds = self.float_ or self.int_
        if bounds and not all(map(math.isfinite, bounds)):
            raise ValueError("bounds must be finite numbers")
        if not bounds and (self.log or self.step is not None):
            raise ValueError("log and step belong to float and int")
        if self.log and self.step is not None:
            raise ValueError("log and step exclude each other")
        if self.int_ and self.step is not None and self.step != int(self.step):
            raise ValueError(f"the step of whole numbers is a whole number, not {self.step:g}")
        if bounds and bounds[0] > bounds[1]:
            raise ValueError(f"the lower bound {bounds[0]} is above the upper bound {bounds[1]}")
        if self.log and bounds and bounds[0] <= 0:
            raise ValueError("a log scale needs a lower bound above 0")
        return self

    @property
    def is_slot(self) -> bool:
        """Return True for a choice of nodes instead of values: alternatives, or leaving a node out."""
        return self.any_of is not None or self.optional

    def contains(self, value: Any) -> bool:
        """Return True if the domain could suggest this value."""
        if self.choice is not None:
            return value in self.choice
        bounds = self.float_ or self.int_
        if bounds is None or isinstance(value, bool) or not isinstance(value, int | float):
            return False
        on_step = self.step is None or abs((value - bounds[0]) / self.step % 1) < 1e-9
        return bounds[0] <= value <= bounds[1] and on_step and (self.int_ is None or isinstance(value, int))


class Spec(Strict):
    """A whole workflow file."""

    name: str = Field("workflow", min_length=1, max_length=100, description="what runs of it are called")
    description: str = Field("", description="what it is for; readers see it, and proposers are told")
    lm: LMSpec = Field(
        default_factory=lambda: LMSpec.model_validate({"model": defaults.LM}),
        description="the language model that does the task; short: its name alone",
    )
    roles: dict[Literal["proposer", "judge", "teacher", "user"], LMSpec] = Field(
        default={},
        description="other models for those who propose changes, who judge answers, whom a trained model learns from, "
        "and who play the user",
    )
    data: DataSpec = Field(description="where the examples come from; short: the file alone")
    metric: str | dict[str, Any] | Annotated[list[str | dict[str, Any]], Field(min_length=1)] = Field(
        description="how an answer is scored, e.g. exact_match(label); of a list the first decides, and `eval` shows "
        "all"
    )
    objectives: list[Objective] = Field(
        default_factory=lambda: ["score"],
        min_length=1,
        description="what to optimize; with several, the Pareto set is kept and shown; default: score, and what "
        "`targets` limits",
    )
    pick: Pick = Field("score", description="which of the Pareto set becomes the result")
    targets: TargetsSpec | None = Field(
        None,
        description="service levels, instead of `pick`: the cheapest candidate that meets them becomes the "
        "result, and is tested on the sealed rows",
    )
    configurations: list[ConfigurationSpec] = Field(
        default=[],
        description="written by `optimize` where there are targets: the file's own configuration, then faster ones, "
        "of which `serve` takes one when requests have to wait",
    )
    nodes: dict[str, dict[str, Any]] = Field(min_length=1, description="the steps, by name (see nodes.md)")
    types: dict[str, str] = Field(
        default_factory=dict,
        description="classes of pydantic that signatures may name: {Person: python:models.py:Person}",
    )
    search: dict[str, DomainSpec] = Field(
        default_factory=dict, description="what may be changed, by address, and how far"
    )
    optimize: list[dict[str, dict[str, Any]]] = Field(
        default=[],
        description="optimizers in their order, each from the winner so far (see optimizers.md); none: by the file",
    )
    rounds: int = Field(1, ge=1, le=100, description="number of passes through the list of optimizers")
    budget: BudgetSpec = Field(
        default_factory=lambda: BudgetSpec.model_validate({"calls": 1000}),
        description="hard ceilings for the whole run",
    )
    proof: ProofSpec = Field(
        default_factory=lambda: ProofSpec.model_validate({}), description="how the gain is tested on the sealed rows"
    )
    attacks: str | dict[str, AttackSpec] = Field(
        default={}, description="attacks by name, or the file that has them: for `redteam`, and for `constraints`"
    )
    constraints: ConstraintsSpec | None = Field(None, description="limits on what a gain may cost")
    cache: bool = Field(
        False,
        description="take answers of earlier runs in the run database: calls of the same model with the same content, "
        "and the same draw where there is sampling, are not paid again",
    )
    policy: PolicySpec = Field(default_factory=lambda: PolicySpec(), description="which tool calls are allowed")
    track: Track = []
    executor: str | dict[str, dict[str, Any] | None] = Field(
        "local", description="where rows run: in this process, or in workers (ray, slurm: see their pages)"
    )
    concurrency: int = Field(16, ge=1, le=4096, description="examples evaluated at once")
    timeout: float = Field(
        300.0,
        gt=0,
        le=86_400,
        description="seconds for one call of a tool, one step of an environment, or one score by a metric of your own",
    )
    seed: int = Field(0, description="of everything random in the run")

    @property
    def margin_of_targets(self) -> float | None:
        """Return how far below the best candidate one that meets the targets may score; None if meeting the target for
        the score is enough."""
        stated = self.targets is not None and self.targets.score is not None
        return None if stated and "margin" not in self.proof.model_fields_set else self.proof.margin

    @property
    def tested_sides(self) -> int:
        """Count the workflows that run on the sealed rows: baseline, winner and, with targets, the best candidate."""
        return 2 if self.targets is None else 3

    @property
    def metrics(self) -> list[str | dict[str, Any]]:
        """Return the metrics, the first of which decides."""
        return self.metric if isinstance(self.metric, list) else [self.metric]

    @model_validator(mode="before")
    @classmethod
    def _objectives_of_targets(cls, value: Any) -> Any:
        return add_limited_costs(value)

    @model_validator(mode="after")
    def _attacks_of_constraints(self) -> Spec:
        if self.constraints is not None and not self.attacks:
            raise ValueError("constraints: {attack: ...} needs `attacks`, e.g. attacks: attacks.yaml")
        return self

    @model_validator(mode="after")
    def _objectives(self) -> Spec:
        if self.targets is not None and "pick" in self.model_fields_set:
            raise ValueError("targets and pick exclude each other: targets take the cheapest that meets them")
        check_objectives(self.objectives, self.pick)
        return self

    @field_validator("optimize", mode="before")
    @classmethod
    def _expand_optimizers(cls, value: Any) -> Any:
        if isinstance(value, str | dict):
            value = [value]
        return [_expand_optimizer(v) for v in value] if is_list(value) else value

    @field_validator("optimize")
    @classmethod
    def _one_name_each(cls, value: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for entry in value:
            if len(entry) != 1:
                raise ValueError(f"each entry names one optimizer, this one has {len(entry)}: {', '.join(entry)}")
        return value


def _expand_optimizer(value: Any) -> Any:
    """Return the settings of an optimizer, which may be written as its name alone, or with nothing after its name."""
    if isinstance(value, str):
        return {value: {}}
    return {k: dict[str, Any]() if v is None else v for k, v in value.items()} if is_dict(value) else value
