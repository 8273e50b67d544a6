"""The settings of `mcts`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from workbench import Optimizer
from workbench.errors import placed_at
from workbench.lm import enter_model
from workbench.spec import home_folder
from workbench_kit.acting import enter_tool


class Settings(Optimizer):
    """The settings under `mcts:` in a workflow file."""

    rounds: int = Field(40, ge=1, le=10_000, description="maximum evaluations after the initial design")
    policy: Literal["softmix", "uct"] = Field("softmix", description="how a parent is chosen: AFlow's rule, or UCT")
    surrogate: Literal["gp", "none"] = Field(
        "gp", description="ranks proposals: gp, a Gaussian process; none: the first one is taken"
    )
    initial: int = Field(
        16,
        ge=0,
        le=1000,
        description="maximum candidates of the initial design, which covers pairs of choices; never more than a third "
        "of the budget",
    )
    pool: int = Field(64, ge=1, le=1000, description="maximum proposals per round")
    proposals: Literal["operators", "lm", "both"] = Field("operators", description="who proposes changes")
    edits: list[str] | None = Field(
        None,
        description="names of the edits to use; default: all, or none if the file has a `search:` section",
    )
    lms: list[str] = Field(default_factory=list, description="language models that the edit `model` may choose")
    tools: list[str] = Field(default_factory=list, description="tools that edits may give to agents")
    verifiers: list[str] = Field(
        default_factory=list, description="verifiers for the edit `verify`: python:module.name"
    )
    patience: int = Field(12, ge=1, description="rounds with an unchanged mean of the three best before it ends")
    race: bool = Field(True, description="stop candidates early if they are clearly worse than the best so far")
    batch: int = Field(6, ge=0, le=64, description="training rows whose results the proposer sees")
    temperature: float = Field(0.8, ge=0, le=2, description="of the proposer")
    guided: bool = Field(
        False, description="spend edits on the nodes that decide failures, found by repeating failed rows"
    )

    @model_validator(mode="after")
    def _enter(self) -> Settings:
        for lm in self.lms:
            enter_model(lm, home_folder())
        for setting, addresses in (("tools", self.tools), ("verifiers", self.verifiers)):
            for number, address in enumerate(addresses):
                with placed_at(setting, number):
                    enter_tool(address, home_folder())
        return self
