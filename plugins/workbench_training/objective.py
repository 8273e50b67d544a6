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

Key = Literal["task", "agent", "turn", "anchor"]

#: What has one probability ratio: a token, a row by the geometric mean of its tokens', a row by their product.
RatioOf = Literal["token", "sequence", "trajectory"]


class Constraint(BaseModel):
    """A cost that should stay below a ceiling, by a Lagrange multiplier."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    budget: float = Field(description="mean cost of a rollout that is aimed at")
    rate: float = Field(0.05, gt=0, description="change of the multiplier for a mean cost one budget too high")


class Correction(BaseModel):
    """Importance weights trainer / sampler, for what the sampler drew with other probabilities than the trainer's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    weight: RatioOf = Field(
        "token",
        description="the ratio that a token is weighted by: its own, the geometric mean of its row's, or their product",
    )
    cap: float | None = Field(2.0, ge=1, description="largest weight; null: none")
    mask: Literal["sequence", "trajectory"] = Field(
        "sequence",
        description="the ratio by which rows are left out: the geometric mean of a row's tokens', or their"
        " product, which grows apart with the length",
    )
    low: float = Field(0.5, ge=0, le=1, description="rows with a lower ratio are left out; 0: none")
    high: float | None = Field(2.0, ge=1, description="rows with a higher ratio are left out; null: none")


class Critic(BaseModel):
    """Values of states, trained beside the policy, in place of comparisons within groups."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    of: str = Field(
        "token",
        description="token: a value before each token, advantages by GAE; turn: values before and after each turn of "
        "the policy, learned by temporal differences, whose difference all tokens of the turn receive (ArCHer)",
    )
    gamma: float = Field(1.0, gt=0, le=1, description="discount from a turn to the next")
    model: str | None = Field(
        None,
        description="folder or hub id of a model of its own, which is trained; by default only heads are, over the "
        "states that the policy has with the weights that training began with",
    )
    widths: tuple[int, ...] = Field((1024, 512), description="sizes of the hidden layers of a head")
    rate: float = Field(5e-5, gt=0, description="learning rate of the critic")
    epochs: int = Field(1, ge=1, description="passes over the rows of a step, or over the turns of the last steps")
    minibatches: int = Field(4, ge=1, description="updates in one pass")
    warmup: int = Field(0, ge=0, description="steps at the start that train the critic alone")

    @field_validator("of")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in (kinds := critic_kinds()):
            raise ValueError(f"there is no critic of '{value}'. {suggest(value, kinds)}")
        return value


#: A critic of tokens has one value: that of the state before each token.
TOKEN_CRITIC = CriticKind(heads=("v",), address="workbench_training.critic.token_critic:TokenCritic")


def critic_kinds() -> dict[str, CriticKind]:
    """Each kind of critic by its name."""
    return {"token": TOKEN_CRITIC} | {name: kind for paper in papers().values() for name, kind in paper.critics.items()}


#: DPO's loss over pairs (arXiv 2305.18290).
DPO_LOSS = PairLoss("workbench_training.loss:preference_loss")


def pair_losses() -> dict[str, PairLoss]:
    """Each loss over pairs by its name."""
    return {"dpo": DPO_LOSS} | {name: where for paper in papers().values() for name, where in paper.pair_losses.items()}


class Objective(BaseModel):
    """Settings of advantages and loss."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # Advantages
    group: tuple[Key, ...] = Field(
        ("task",), description="rows that agree in these are compared; none: the whole batch"
    )
    count: Literal["rollout", "row"] = Field(
        "rollout", description="a rollout of several rows has one vote in its group's mean and deviation, or one a row"
    )
    baseline: Literal["mean", "leave_one_out", "none"] = Field(
        "mean", description="baseline that is subtracted from a reward"
    )
    scale: Literal["std", "batch_std", "batch_centred_std", "none"] = Field(
        "std",
        description="what a centred reward is divided by: the deviation of its group, of all rewards of the batch, or "
        "of all centred rewards of the batch",
    )
    step_weight: float = Field(0.0, ge=0, description="weight of the step term of GiGPO")
    step_scale: Literal["std", "none"] = Field("none", description="deviation that the step term is divided by")
    gamma: float = Field(0.95, gt=0, le=1, description="discount of later step rewards in the step term")
    constraints: dict[str, Constraint] = Field(default_factory=dict, description="costs with ceilings, by their names")
    critic: Critic | None = Field(None, description="values of states in place of comparisons; null: none")
    # Loss
    surrogate: Literal["clip", "cispo", "likelihood", "pairs"] = Field("clip", description="form of the policy term")
    ratio: RatioOf = Field(
        "token", description="probability ratio of a token, the geometric mean of a row's, or their product"
    )
    clip_low: float = Field(0.2, ge=0, description="ratios below 1 - clip_low give no gradient to push them lower")
    clip_high: float = Field(0.2, ge=0, description="ratios above 1 + clip_high likewise; for cispo the cap itself")
    delta: float | None = Field(None, gt=1, description="cap of the ratio where the advantage is negative (dual clip)")
    aggregate: Literal["sequence", "token", "constant", "local"] = Field(
        "sequence",
        description="mean over rows of their token means; mean over all tokens of the step; sum over rows x max_tokens;"
        " or mean over the tokens of a micro-batch, which depends on how the batch is split",
    )
    kl: Literal["k1", "k2", "k3"] = Field("k3", description="estimate of the divergence from the reference")
    kl_place: Literal["loss", "reward"] = Field("loss", description="the penalty is part of the loss or of the reward")
    beta: float = Field(0.0, ge=0, description="weight of the divergence; 0: no reference is loaded")
    pair_loss: str = Field("dpo", description="for pairs: the loss: dpo, or that of a paper: trpa, odds_ratio")
    pair_beta: float = Field(0.1, gt=0, description="for pairs: temperature of the preference; weight of odds")
    correction: Correction | None = Field(
        Correction.model_validate({}),
        description="weights for what the sampler drew with other probabilities than the trainer's; null: none",
    )

    @property
    def is_corrected(self) -> bool:
        """True if the loss has a policy term that weights of sampling can multiply: one over rows, by their ratios."""
        return self.correction is not None and self.surrogate in ("clip", "cispo")

    @field_validator("constraints")
    @classmethod
    def _known(cls, value: dict[str, Constraint]) -> dict[str, Constraint]:
        if strange := value.keys() - set(COSTS):
            raise ValueError(f"there is no cost '{min(strange)}' to constrain. {suggest(min(strange), COSTS)}")
        return value

    @field_validator("pair_loss")
    @classmethod
    def _known_loss(cls, value: str) -> str:
        if value not in (losses := pair_losses()):
            raise ValueError(f"there is no loss over pairs '{value}'. {suggest(value, losses)}")
        return value

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.critic is not None and self.surrogate not in ("clip", "cispo"):
            raise ValueError(f"`surrogate: {self.surrogate}` takes no critic: it compares rewards, not values")
        if self.critic is not None and (self.constraints or self.step_weight):
            raise ValueError("a critic values rewards alone: remove `constraints` and `step_weight`, or the critic")
        if self.critic is not None and self.critic.of != "token" and self.beta and self.kl_place == "reward":
            raise ValueError("only a critic of tokens can value the divergence: write `kl_place: loss`")
        return self
