"""What is maximised, as one typed value: which rewards are compared, how they are scaled, how far a step may go.

All named algorithms are rows of the table `PRESETS`; nothing else in this plugin knows their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from workbench.errors import suggest
from workbench.spec import Pattern

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
    gain: float = Field(
        1.0,
        ge=0,
        description="added to the multiplier at once for a mean cost one budget too high, taken off for one "
        "too low; 0: the multiplier alone, which overshoots",
    )
    most: float = Field(5.0, gt=0, description="the multiplier never exceeds this, nor its sum with what `gain` adds")


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

    of: Literal["token", "turn"] = Field(
        "token",
        description="token: a value before each token, advantages by GAE; turn: values before and after each turn of "
        "the policy, learned by temporal differences, whose difference all tokens of the turn receive (ArCHer)",
    )
    gamma: float = Field(1.0, gt=0, le=1, description="discount from a turn to the next")
    within: float = Field(1.0, gt=0, le=1, description="of token: discount from a token to the next of its turn")
    lam: float = Field(0.95, ge=0, le=1, description="of token: decay of the advantage estimate")
    normalise: bool = Field(True, description="of token: advantages of a step have mean 0 and deviation 1")
    clip: float | None = Field(0.2, gt=0, description="of token: most that a value moves in a step; null: no limit")
    model: str | None = Field(
        None,
        description="folder or hub id of a model of its own, which is trained; by default only heads are, over the "
        "states that the policy has with the weights that training began with",
    )
    widths: tuple[int, ...] = Field((1024, 512), description="sizes of the hidden layers of a head")
    rate: float = Field(5e-5, gt=0, description="learning rate of the critic")
    epochs: int = Field(1, ge=1, description="passes over the rows of a step, or over the turns of `replay` steps")
    minibatches: int = Field(4, ge=1, description="updates in one pass")
    warmup: int = Field(0, ge=0, description="steps at the start that train the critic alone")
    tau: float = Field(
        0.1,
        gt=0,
        le=1,
        description="of turn: share of the critic that the copy which gives targets takes over after each pass",
    )
    replay: int = Field(4, ge=1, description="of turn: steps whose turns are learned from")


class Subgoals(BaseModel):
    """A rollout is a sequence of subgoals, each reached by a step that earns. What was earned counts for the steps of
    its subgoal alone, and the reference is asked for the goal (VSC-RL)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pattern: str = Field(
        r"(?im)^subgoal: (.*)$",
        description="regular expression whose group is the subgoal in a message of a prompt",
    )
    field: str = Field("goal", description="field of the row with the goal, which the reference sees in its place")

    @field_validator("pattern")
    @classmethod
    def _has_a_group(cls, value: str) -> str:
        groups = Pattern(value).groups
        if groups != 1:
            raise ValueError(f"'{value}' has {groups} groups: put brackets around the subgoal alone")
        return value


#: The values that a critic has, by what it is of: of states, two estimates of states, two of what turns were worth.
HEADS: Mapping[str, tuple[str, ...]] = {"token": ("v",), "turn": ("v1", "v2", "q1", "q2")}


class Objective(BaseModel):
    """How advantages and the loss are computed."""

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
    singleton: Literal["zero", "raw"] = Field(
        "zero", description="advantage of a reward with none to compare: zero, or the reward itself, as in verl-agent"
    )
    eps: float = Field(1e-6, ge=0, description="added to the deviation")
    step_weight: float = Field(0.0, ge=0, description="weight of the step term of GiGPO")
    step_scale: Literal["std", "none"] = Field("none", description="deviation that the step term is divided by")
    gamma: float = Field(0.95, gt=0, le=1, description="discount of later step rewards in the step term")
    constraints: dict[str, Constraint] = Field(default_factory=dict, description="costs with ceilings, by their names")
    critic: Critic | None = Field(None, description="values of states in place of comparisons; null: none")
    subgoals: Subgoals | None = Field(None, description="for a critic: rollouts are sequences of subgoals; null: not")
    # Loss
    surrogate: Literal["clip", "cispo", "sapo", "likelihood", "pairs", "pairwise"] = Field(
        "clip", description="form of the policy term"
    )
    ratio: RatioOf = Field(
        "token", description="probability ratio of a token, the geometric mean of a row's, or their product"
    )
    clip_low: float = Field(0.2, ge=0, description="ratios below 1 - clip_low give no gradient to push them lower")
    clip_high: float = Field(0.2, ge=0, description="ratios above 1 + clip_high likewise; for cispo the cap itself")
    delta: float | None = Field(None, gt=1, description="cap of the ratio where the advantage is negative (dual clip)")
    sapo_temperatures: tuple[float, float] = Field((1.0, 1.05), description="for positive and negative advantages")
    aggregate: Literal["sequence", "token", "constant", "local"] = Field(
        "sequence",
        description="mean over rows of their token means; mean over all tokens of the step; sum over rows x max_tokens;"
        " or mean over the tokens of a micro-batch, which depends on how the batch is split",
    )
    kl: Literal["k1", "k2", "k3"] = Field("k3", description="estimate of the divergence from the reference")
    kl_place: Literal["loss", "reward"] = Field("loss", description="the penalty is part of the loss or of the reward")
    kl_corrected: bool = Field(False, description="multiply the penalty in the loss by the ratio, as TRL does")
    beta: float = Field(0.0, ge=0, description="weight of the divergence; 0: no reference is loaded")
    pair_form: Literal["gain", "odds_ratio"] = Field(
        "gain",
        description="for pairs: what is compared, gains on the reference (DPO), or odds, beside the likelihood of the "
        "better answer (ORPO)",
    )
    pair_beta: float = Field(0.1, gt=0, description="for pairs: temperature of the preference; weight of odds")
    pair_mean: bool = Field(True, description="for pairs: mean over an answer's tokens; false: their sum, as in DPO")
    pair_best: float = Field(2.5, gt=0, description="for pairs: weight of pairs that a best answer wins")
    pair_trust: float = Field(0.001, ge=0, description="for pairs: weight of the divergence from the last policy")
    pair_clip: Literal["joint", "separate"] = Field(
        "joint", description="for pairwise: clip the ratios of a pair's two answers together, or each by itself"
    )
    correction: Correction | None = Field(
        Correction.model_validate({}),
        description="weights for what the sampler drew with other probabilities than the trainer's; null: none",
    )

    @property
    def is_corrected(self) -> bool:
        """Whether the loss has a policy term that weights of sampling can multiply: one over rows, by their ratios."""
        return self.correction is not None and self.surrogate in ("clip", "cispo", "sapo")

    @field_validator("constraints")
    @classmethod
    def _known(cls, value: dict[str, Constraint]) -> dict[str, Constraint]:
        if strange := value.keys() - set(COSTS):
            raise ValueError(f"there is no cost '{min(strange)}' to constrain. {suggest(min(strange), COSTS)}")
        return value

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.surrogate == "pairwise" and self.beta and self.kl_place == "loss":
            raise ValueError("`surrogate: pairwise` compares rewards less the divergence: give `kl_place: reward`")
        if self.critic is not None and self.surrogate not in ("clip", "cispo", "sapo"):
            raise ValueError(f"`surrogate: {self.surrogate}` takes no critic: it compares rewards, not values")
        if self.critic is not None and (self.constraints or self.step_weight):
            raise ValueError("a critic values rewards alone: remove `constraints` and `step_weight`, or the critic")
        if self.critic is not None and self.critic.of == "turn" and self.beta and self.kl_place == "reward":
            raise ValueError("a critic of turns values what the environment gave: write `kl_place: loss`")
        unread = {"ratio", "kl", "aggregate"} & self.model_fields_set if self.surrogate == "pairwise" else ()
        if unread:
            raise ValueError(
                f"`surrogate: pairwise` has no use for {', '.join(sorted(unread))}: it compares whole answers"
            )
        return self


class Preset(BaseModel):
    """A named algorithm: what differs from the defaults of `objective`, `course` (here `trainer`) and `learning`, and
    where it is from."""

    objective: dict[str, Any]
    trainer: dict[str, Any] = {}
    learning: dict[str, Any] = {}
    source: str


#: Read in code or in text, as the README says for each.
PRESETS: Mapping[str, Preset] = {
    "grpo": Preset(objective={}, source="arXiv 2402.03300, as in TRL 1.16 with loss_type=grpo"),
    "dr_grpo": Preset(
        objective={"scale": "none", "aggregate": "constant"},
        source="arXiv 2503.20783, as in TRL 1.16 with loss_type=dr_grpo, scale_rewards=none",
    ),
    "dapo": Preset(
        objective={"clip_high": 0.28, "aggregate": "token"},
        trainer={"dynamic_sampling": 3},
        learning={"minibatches": 16},
        source="arXiv 2503.14476, as in TRL 1.16 (loss), with the 16 updates of a step of section 4.1; its overlong "
        "penalty is a part of the reward of that name",
    ),
    "lite_ppo": Preset(
        objective={"scale": "batch_std", "aggregate": "token"},
        learning={"minibatches": 8},
        source="arXiv 2508.08221, as in TRL 1.16 with scale_rewards=batch; the 8 updates of a step as TRL's index of "
        "papers counts them from the paper's settings (1,024 answers in batches of 128)",
    ),
    "gspo": Preset(
        objective={"ratio": "sequence", "clip_low": 3e-4, "clip_high": 4e-4},
        learning={"minibatches": 4},
        source="arXiv 2507.18071, as in TRL 1.16 with importance_sampling_level=sequence; clips and the 4 minibatches "
        "of a step from its section 5.1, as in TRL's index of papers",
    ),
    "cispo": Preset(
        objective={"surrogate": "cispo", "clip_high": 5.0, "aggregate": "token"},
        learning={"minibatches": 16},
        source="arXiv 2506.13585, as in TRL 1.16 with loss_type=cispo, with the 16 updates of a step of section 3.1",
    ),
    "reinforce++": Preset(
        objective={"group": (), "scale": "std", "aggregate": "token", "kl": "k1", "kl_place": "reward", "beta": 1e-3},
        source="arXiv 2501.03262, as described by RLinf and coded in the TRPA repository (verl)",
    ),
    "reinforce++_baseline": Preset(
        objective={"scale": "batch_centred_std", "aggregate": "token", "kl": "k2", "beta": 1e-4},
        source="arXiv 2501.03262, as described by ms-swift and RLinf",
    ),
    "rloo": Preset(
        objective={
            "baseline": "leave_one_out",
            "scale": "none",
            "ratio": "trajectory",
            "kl": "k1",
            "kl_place": "reward",
            "beta": 0.05,
        },
        source="arXiv 2402.14740, as in TRL 1.16's RLOOTrainer",
    ),
    "gigpo": Preset(
        objective={"scale": "none", "step_weight": 1.0},
        source="arXiv 2505.10978, as in the DrMAS repository; gamma of ROLL",
    ),
    "dr_mas": Preset(
        objective={"group": ("task", "agent"), "count": "row"},
        source="arXiv 2602.08847, as in the DrMAS repository",
    ),
    "prorl": Preset(
        objective={"clip_high": 0.4, "aggregate": "token", "beta": 1e-4},
        trainer={"dynamic_sampling": 3, "reset_after": 200, "reset_patience": 3, "reset_kl": 0.1},
        learning={"minibatches": 4},
        source="arXiv 2505.24864 and 2507.12507 (clips, filter, resets), with the 4 updates of a step of the former's "
        "section 3.2; beta of OpenRLHF's ProRL v2 script",
    ),
    "ppo": Preset(
        objective={
            "critic": {"of": "token", "epochs": 4},
            "group": (),
            "baseline": "none",
            "scale": "none",
            "aggregate": "token",
        },
        learning={"epochs": 4},
        source="arXiv 1707.06347, over tokens; gamma 1, lambda 0.95, value clip and 4 epochs as TRL had them (memory); "
        "heads over frozen states, as in POAD's code",
    ),
    "poad": Preset(
        objective={
            "critic": {"of": "token", "gamma": 0.95, "within": 1.0},
            "group": (),
            "baseline": "none",
            "scale": "none",
            "aggregate": "token",
        },
        learning={"minibatches": 4},
        source="arXiv 2405.15821, as in its authors' repository (ADRL); without their entropy bonus",
    ),
    "archer": Preset(
        objective={
            "critic": {"of": "turn", "gamma": 0.9, "epochs": 50, "minibatches": 1, "warmup": 20, "rate": 1e-3},
            "group": (),
            "baseline": "none",
            "scale": "none",
            "aggregate": "token",
        },
        source="arXiv 2402.19446, as in its authors' repository at 1bcbf80; mean over tokens in place of their sum, "
        "and what `critic/turn_critic.py` says",
    ),
    "vsc_rl": Preset(
        objective={
            "critic": {"of": "token", "gamma": 0.5, "within": 1.0},
            "subgoals": {},
            "beta": 0.01,
            "group": (),
            "baseline": "none",
            "scale": "none",
            "aggregate": "token",
        },
        source="arXiv 2502.07949, its bound from the authors' page, segments and their discount from their repository "
        "at 401d793; advantages and loss are PPO's, the weight of the divergence is ours",
    ),
    "constrained": Preset(
        objective={"constraints": {"tokens": {"budget": 64.0}}},
        source="after arXiv 2310.04373: group-relative advantages of costs in place of its value functions; its "
        "multipliers with a proportional term, as in arXiv 2007.03964",
    ),
    "trpa": Preset(
        objective={"surrogate": "pairs", "beta": 1e-3},
        source="arXiv 2504.04524, as in its authors' repository at f372585",
    ),
    "p3o": Preset(
        objective={"surrogate": "pairwise", "scale": "none", "kl_place": "reward", "beta": 0.05},
        source="arXiv 2310.00212, from a digest of its text and its authors' post; the form of its clips is ours",
    ),
}


def make_objective(algorithm: str, changes: Mapping[str, Any] | None = None) -> Objective:
    """The objective of a named algorithm, with changes, also those of single settings of its critic. Raises KeyError,
    and pydantic's ValidationError."""
    own, given = PRESETS[algorithm].objective, dict(changes or {})
    if isinstance(given.get("critic"), Mapping):
        given["critic"] = {**own.get("critic", {}), **given["critic"]}
    made = Objective.model_validate({**own, **given})
    if made.subgoals is not None and (made.critic is None or not made.beta):
        raise ValueError("`subgoals` need a critic, and a divergence from a reference: give `critic` and `beta`")
    return made
