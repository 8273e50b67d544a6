"""The objective, as one typed value: which rewards are compared, how they are scaled, how far a step may go.

`advantages.py` and `loss.py` read it. Named algorithms are rows of the table in `presets.py`.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from workbench.errors import suggest
from workbench_training.extension import CriticKind, PairLoss, papers

#: What a rollout costs, as constraints name it: tokens drawn, calls, tool calls, seconds of waiting for the model.
COSTS = ("tokens", "calls", "tools", "latency")

#: What has one probability ratio: a token, a row by the geometric mean of its tokens', a row by their product.
RatioOf = Literal["token", "sequence", "trajectory"]


class Critic(BaseModel):
    """Values of states, trained beside the policy, in place of comparisons within groups."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    of: str = "token"  #: `token`: a value before each token, advantages by GAE; or a paper's kind
    gamma: float = 1.0  #: discount from a turn to the next
    model: str | None = None  #: a model of its own, which is trained; None: heads over the first policy's states
    widths: tuple[int, ...] = (1024, 512)  #: of a head's hidden layers, as POAD's authors have them
    rate: float = 5e-5
    epochs: int = 1  #: passes over the rows of a step, or over the turns of the last steps
    minibatches: int = 4  #: updates in one pass
    warmup: int = 0  #: steps at the start that train the critic alone


#: A critic of tokens has one value: that of the state before each token.
TOKEN_CRITIC = CriticKind(heads=("v",), address="workbench_training.critic.token_critic:TokenCritic")


def critic_kinds() -> dict[str, CriticKind]:
    """Each kind of critic by its name."""
    return {"token": TOKEN_CRITIC} | {name: kind for paper in papers().values() for name, kind in paper.critics.items()}


#: The score of an answer that no other can surpass: for losses over pairs in which such an answer weighs more.
BEST = 1.0

#: DPO's loss over pairs (arXiv 2305.18290).
DPO_LOSS = PairLoss("workbench_training.loss:preference_loss")


def pair_losses() -> dict[str, PairLoss]:
    """Each loss over pairs by its name."""
    return {"dpo": DPO_LOSS} | {name: where for paper in papers().values() for name, where in paper.pair_losses.items()}


class Objective(BaseModel):
    """Advantages and loss of a training. A file names an algorithm (`presets.py`), and may change a few."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # Advantages
    #: Rows that agree in these are compared; none: the whole batch.
    group: tuple[Literal["task", "agent"], ...] = ("task",)
    #: A rollout of several rows has one vote in its group's mean and deviation, and one share in the loss; or each of
    #: its rows has.
    count: Literal["rollout", "row"] = "rollout"
    baseline: Literal["mean", "leave_one_out", "none"] = "mean"  #: subtracted from a reward
    #: What a centred reward is divided by: the deviation of its group, of all rewards, or of all centred rewards.
    scale: Literal["std", "batch_std", "batch_centred_std", "none"] = "std"
    step_weight: float = 0.0  #: of the step term of GiGPO
    constraints: dict[str, float] = Field(default_factory=dict)  #: budgets of costs, by their names
    critic: Critic | None = None  #: values of states in place of comparisons
    # Loss
    surrogate: Literal["clip", "cispo", "likelihood", "pairs"] = "clip"
    ratio: RatioOf = "token"
    #: Ratios below 1 - clip_low and above 1 + clip_high give no gradient away from 1; for cispo the latter is the cap.
    clip_low: float = 0.2
    clip_high: float = 0.2
    #: Mean over rollouts of their token means; mean over all tokens of the step; sum over rollouts x max_tokens. Where
    #: each row is a decision of its own, rows stand for rollouts (`counts_rollouts`).
    aggregate: Literal["sequence", "token", "constant"] = "sequence"
    max_tokens: int = 256  #: for `constant`: the longest answer of the model; a training sets it
    kl: Literal["k1", "k2", "k3"] = "k3"  #: estimate of the divergence from the reference
    kl_place: Literal["loss", "reward"] = "loss"
    beta: float = Field(default=0.0, ge=0)  #: weight of the divergence; 0: no reference is loaded
    resets: bool = False  #: the reference becomes the policy where that stalls or has moved far (ProRL)
    pair_loss: str = "dpo"  #: for pairs: `dpo`, or a paper's
    pair_beta: float = 0.1  #: for pairs: temperature of the preference; weight of odds, or of the divergence
    correction: bool = True  #: weights for what the sampler drew with other probabilities (`correction.py`)

    @property
    def is_corrected(self) -> bool:
        """True if the loss has a policy term that weights of sampling can multiply: one over rows, by their ratios."""
        return self.correction and self.surrogate in ("clip", "cispo")

    @property
    def counts_rollouts(self) -> bool:
        """True if all rows of a rollout share its weight in the loss; False where each is a decision of its own."""
        return self.count == "rollout" and not self.step_weight and self.critic is None

    @field_validator("constraints")
    @classmethod
    def _known(cls, value: dict[str, float]) -> dict[str, float]:
        if strange := value.keys() - set(COSTS):
            raise ValueError(f"there is no cost '{min(strange)}' to constrain. {suggest(min(strange), COSTS)}")
        return value

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.constraints and (self.critic is not None or self.surrogate == "pairs"):
            raise ValueError("a critic and a loss over pairs read rewards alone, and no costs: remove `constraints`")
        return self
