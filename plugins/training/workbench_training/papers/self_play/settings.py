"""Settings of the proposer. Nothing heavy is imported here."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from workbench_training.settings import Learning

#: Calls of a tool that earn the whole of `tools`: the authors' cap.
MAX_TOOLS = 4
#: Two proposals are alike from this share of common pairs of words. Ours: the authors cluster at a BLEU distance of
#: 0.5.
ALIKE = 0.5
#: The solver learns proposals on which so large a share of its answers agree. The authors select 0.3 to 0.7.
BAND = (0.3, 0.8)
#: Weight of the share of a step's proposals that are alike, as in the paper.
REPETITION = 1.0
#: Rows of train in the proposer's prompt, without their labels, and the tokens of its longest proposal. Ours.
EXAMPLES, MAX_TOKENS = 3, 256
#: They decide what is learned: a training is continued only with the same ones.
PROPOSER_CONSTANTS = {
    "most_tools": MAX_TOOLS,
    "alike": ALIKE,
    "shown": "any",
    "band": list(BAND),
    "repetition": REPETITION,
    "examples": EXAMPLES,
    "max_tokens": MAX_TOKENS,
}


class Proposer(BaseModel):
    """Settings of the proposer: how tasks are written, what they earn, and which the solver learns."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    instructions: str = Field(
        "Write one new task of the same kind as the examples, as hard as can just be solved. Do not repeat an example.",
        description="what the proposer is asked for",
    )
    steps: int = Field(5, ge=0, description="its training steps in a turn; 0: it stays as it is")
    tasks: int = Field(4, ge=1, description="prompts in a step")
    rollouts: int = Field(8, ge=2, description="proposals for each prompt, which are compared with each other")
    samples: int = Field(8, ge=2, description="answers of the solver to each proposal, whose majority is its label")
    learning: Learning | None = Field(None, description="learning rate, updates, memory; by default as for the solver")
    tools: float = Field(0.0, ge=0, description="weight of the share of tool calls that the answers made")
    pool: int = Field(32, ge=1, description="proposals that the trained proposer writes for the solver's turn")
