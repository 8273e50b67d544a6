"""Settings of the proposer. Nothing heavy is imported here."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from workbench_training.settings import Learning

#: Calls of a tool that earn the whole of `tools`: the authors' cap.
MOST_TOOLS = 4
#: Two proposals are alike from this share of common pairs of words. Ours: the authors cluster at a BLEU distance of
#: 0.5.
ALIKE = 0.5
#: They decide what is learned: a training is continued only with the same ones.
PROPOSER_CONSTANTS = {
    "most_tools": MOST_TOOLS,
    "alike": ALIKE,
    "shown": "any",
}


class Proposer(BaseModel):
    """Settings of the proposer: how tasks are written, what they earn, and which the solver learns."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    instructions: str = Field(
        "Write one new task of the same kind as the examples, as hard as can just be solved. Do not repeat an example.",
        description="what the proposer is asked for",
    )
    examples: int = Field(3, ge=1, description="rows of train in its prompt, without their labels")
    steps: int = Field(5, ge=0, description="its training steps in a turn; 0: it stays as it is")
    tasks: int = Field(4, ge=1, description="prompts in a step")
    rollouts: int = Field(8, ge=2, description="proposals for each prompt, which are compared with each other")
    samples: int = Field(8, ge=2, description="answers of the solver to each proposal, whose majority is its label")
    max_tokens: int = Field(256, ge=1, description="longest proposal")
    learning: Learning | None = Field(None, description="learning rate, updates, memory; by default as for the solver")
    tools: float = Field(0.0, ge=0, description="weight of the share of tool calls that the answers made")
    repetition: float = Field(1.0, ge=0, description="weight of the share of a step's proposals that are alike")
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
