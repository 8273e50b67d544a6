"""Settings of the proposer. Nothing heavy is imported here."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from workbench_training.settings import Learning


class Proposer(BaseModel):
    """How tasks are written, what they earn, and which of them the solver learns."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    instructions: str = Field(
        "Write one new task of the same kind as the examples, as hard as can just be solved. Do not repeat an example.",
        description="what the proposer is asked for",
    )
    examples: int = Field(3, ge=1, description="rows of train in its prompt, without their labels")
    shown: Literal["any", "failed"] = Field(
        "any", description="which rows of train it is shown: any, or those that the solver just failed (WebRL)"
    )
    steps: int = Field(5, ge=0, description="its training steps in a turn; 0: it stays as it is")
    tasks: int = Field(4, ge=1, description="prompts in a step")
    rollouts: int = Field(8, ge=2, description="proposals for each prompt, which are compared with each other")
    samples: int = Field(8, ge=2, description="answers of the solver to each proposal, whose majority is its label")
    max_tokens: int = Field(256, ge=1, description="longest proposal")
    learning: Learning | None = Field(None, description="learning rate, updates, memory; by default as for the solver")
    tools: float = Field(0.0, ge=0, description="weight of the share of tool calls that the answers made")
    most_tools: int = Field(4, ge=1, description="calls of a tool that earn the whole of `tools`")
    repetition: float = Field(1.0, ge=0, description="weight of the share of a step's proposals that are alike")
    alike: float = Field(
        0.5, gt=0, le=1, description="two proposals are alike from this share of common pairs of words"
    )
    pool: int = Field(32, ge=1, description="proposals that the trained proposer writes for the solver's turn")
    band: tuple[float, float] = Field(
        (0.3, 0.8), description="the solver learns proposals on which so large a share of its answers agree"
    )

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        low, high = self.band
        if not 0 <= low <= high <= 1:
            raise ValueError(f"band must be two shares, the smaller one first, not {low:g} and {high:g}")
        if not any(low <= n / self.samples <= high for n in range(1, self.samples + 1)):
            raise ValueError(
                f"no number of {self.samples} samples is a share between {low:g} and {high:g}: widen `band`"
            )
        return self


class Verdicts(BaseModel):
    """A model of outcomes, trained in each turn on the solver's runs of train, for rows that the proposer wrote."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rollouts: int = Field(4, ge=1, description="runs of each row of train that it learns from")
    epochs: int = Field(3, ge=1, description="passes over these runs")
    batch: int = Field(8, ge=1, description="runs in one update")
    learning: Learning = Field(Learning.model_validate({"rate": 1e-5}), description="learning rate, updates, memory")
    right: float = Field(1.0, gt=0, le=1, description="a run with this score or more is right")
    least: float = Field(
        0.6, ge=0.5, le=1, description="least balanced accuracy on held-out rows; below it, votes decide in this turn"
    )

    @model_validator(mode="after")
    def _is_read(self) -> Self:
        if given := self.learning.model_fields_set & {"attention", "checkpointing"}:
            raise ValueError(f"the model of outcomes is loaded as the solver is: write `{min(given)}` for both, above")
        return self
