"""Settings of training. Nothing heavy is imported here: a workflow file is checked without torch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from workbench.spec import connect, home_folder, start_program
from workbench_training.rewards import RewardTerm


class Lora(BaseModel):
    """Train a low-rank adapter on all linear layers in place of all weights."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rank: int = Field(default=16, ge=1, description="rank of the adapter, which is scaled by 32 / rank")


#: Of the scale of an adapter, ALPHA / rank: with it one rate fits many ranks. A common choice.
ALPHA = 32.0
#: AdamW's betas as torch has them, and no decay: the defaults of TRL's trainers.
BETAS, WEIGHT_DECAY = (0.9, 0.999), 0.0
#: Gradients are clipped to this norm, as TRL's trainers do.
MAX_NORM = 1.0
#: They decide what is learned: a training is continued only with the same ones.
LEARNING_CONSTANTS = {"betas": list(BETAS), "weight_decay": WEIGHT_DECAY, "max_norm": MAX_NORM}


class Learning(BaseModel):
    """Settings of the update: rate, passes, memory."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rate: float | None = Field(None, gt=0, description="learning rate; by default 1e-6, and 1e-5 for an adapter")
    warmup: int = Field(0, ge=0, description="warm-up steps of the learning rate")
    epochs: int = Field(1, ge=1, description="times that the rows of a step are used; ppo: 4")
    minibatches: int = Field(
        1,
        ge=1,
        description="updates in one pass over the rows of a step; by default as the algorithm has it",
    )
    micro_tokens: int = Field(16384, ge=1, description="tokens in one forward pass, padding included")
    checkpointing: bool | Literal["auto"] = Field(
        "auto",
        description="compute activations of decoder layers again in the backward pass instead of keeping them; auto: "
        "above 300 million weights",
    )
    attention: Literal["auto", "eager", "sdpa", "flash_attention_2", "flash_attention_3"] = Field(
        "auto",
        description="attention kernel; flash_attention_* need their package and a GPU, and pass rows without padding; "
        "auto: what transformers takes",
    )
    fsdp: bool = Field(False, description="spread weights, gradients and AdamW's memory over all processes (FSDP2)")
    temperature: float = Field(1.0, gt=0, description="sampling temperature, also of the log-probabilities")


class CriticSettings(BaseModel):
    """Settings of an algorithm's critic. Those not given are as the algorithm has them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = Field(
        None,
        description="folder or hub id of a model of its own, which is trained; by default only heads are, over the "
        "states that the policy has with the weights that training began with",
    )
    rate: float = Field(5e-5, gt=0, description="learning rate of the critic; archer: 1e-3")
    warmup: int = Field(0, ge=0, description="steps at the start that train the critic alone; archer: 20")


class ServerSettings(BaseModel):
    """A vLLM server that is started with the training and stopped with it, or one that runs already."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str = Field("", description="address of a server that runs already; empty: one is started")
    command: str = Field("vllm serve", description="what starts it; the model and the options below are appended")
    memory: float = Field(0.45, gt=0, le=1, description="share of the GPU's memory that it may take beside training")
    sleep: bool = Field(
        False, description="free its memory between drawing and the next weights, so that an update has the whole GPU"
    )
    transfer: Literal["auto", "ipc", "reload"] = Field(
        "auto",
        description="how all weights reach it: CUDA IPC on one GPU, or a file that it reads; auto: ipc on the GPU of a "
        "server on this machine, else reload. An adapter is a file",
    )
    candidates: bool = Field(True, description="it also draws for the evaluation of candidates")
    seeds: bool = Field(False, description="send a seed with each request; vLLM then samples row by row, slowly")
    start: float = Field(900.0, gt=0, description="seconds until it must be ready")
    arguments: list[str] = Field(default_factory=list, description="further arguments, e.g. [--max-model-len, '4096']")

    @property
    def command_line(self) -> str:
        """Return what starts it, with the further arguments, in one text."""
        return " ".join([self.command, *self.arguments])

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        given = self.model_fields_set & {"command", "memory", "start", "arguments"}
        if self.url and given:
            raise ValueError(f"`{min(given)}` is for a server that is started here, and `url` names one that runs")
        return self


#: Ranks that vLLM allocates for (`--max-lora-rank`; config/lora.py of 0.33).
VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)


def round_rank(rank: int) -> int:
    """The `--max-lora-rank` with which vLLM serves an adapter. Raises ValueError for a rank above its largest."""
    allowed = next((allowed for allowed in VLLM_RANKS if allowed >= rank), None)
    if allowed is None:
        raise ValueError(f"vLLM serves adapters up to rank {VLLM_RANKS[-1]}, and this one has {rank}")
    return allowed


def enter_server(server: str | ServerSettings) -> None:
    """Pass the doors of a server by its address, or of one that is started; its arguments can load code."""
    if isinstance(server, str):
        if server:
            connect(server, "server")
        return
    if server.url:
        connect(server.url, "server", "url")
    else:
        start_program(server.command_line, home_folder(), form="")


class PolicySettings(BaseModel):
    """Settings of a policy among several. Those not given are the shared ones."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str = Field(description="the LM that is trained: lm, or that of a node: nodes.NAME.lm")
    lora: Lora | None = Field(None, description="train an adapter; roles of one base then share its other weights")
    learning: Learning | None = Field(None, description="learning rate, updates, memory of this one")
    rewards: list[RewardTerm] | None = Field(None, min_length=1, description="what this one earns")


class Stage(BaseModel):
    """Settings that change at a step, until the next stage. Those not given are as without stages."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    start: int = Field(ge=0, description="the first step of the stage; training begins at step 0")
    rewards: list[RewardTerm] | None = Field(None, min_length=1, description="in place of `rewards`")
    rate: float | None = Field(None, gt=0, description="learning rate of all policies")
    max_steps: int | None = Field(
        None,
        ge=1,
        description="most steps of agents, turns of states and steps of tree_search; growing from stage to stage as in "
        "ScalingInter-RL",
    )
    train: list[str] | None = Field(
        None, min_length=1, description="the policies that learn, by role; the others stay as they are (PilotRL)"
    )


#: ProRL's reset of the reference: after so many candidates that were not better, or above this divergence. Ours, where
#: the paper gives no numbers.
RESET_PATIENCE, RESET_KL = 3, 0.1
#: Least steps between two resets.
RESET_AFTER = 200
#: Alarms: the band of the mean entropy in nats, the divergence from the reference, the mean difference of sampling and
#: training, and their divergence. A policy beyond them has collapsed or left its model, or something else draws.
ENTROPY, KL, OFF_POLICY_GAP, OFF_POLICY_KL = (0.01, 8.0), 1.0, 0.05, 0.01
#: They decide what is learned: a training is continued only with the same ones.
SCHEDULE_CONSTANTS = {
    "reset_patience": RESET_PATIENCE,
    "reset_kl": RESET_KL,
    "reset_after": RESET_AFTER,
    "entropy": list(ENTROPY),
    "kl": KL,
    "off_policy_gap": OFF_POLICY_GAP,
}


class TrainingSchedule(BaseModel):
    """The schedule of training: how much is drawn in a step, what is kept, and what is watched."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    steps: int = Field(100, ge=1, description="steps at most; the budget may end it before")
    tasks: int = Field(8, ge=1, description="training rows in a step")
    rollouts: int = Field(8, ge=1, description="runs of the workflow on each row; 1 alone teaches nothing")
    dynamic_sampling: int = Field(
        0,
        ge=0,
        description="redraw rows whose rollouts all score the same by the metric, at most this many times (DAPO)",
    )
    staleness: int = Field(
        0,
        ge=0,
        le=1,
        description="1: draw the rollouts of a step during the update before it, with weights that are one update old; "
        "needs `server`. A step after a candidate or a checkpoint draws with the current weights",
    )
    straggler_cut: float | None = Field(
        None,
        gt=1,
        description="end rollouts whose conversation grows to this multiple of the median in the step before, and "
        "learn nothing from them",
    )
    evaluate_every: int = Field(10, ge=1, description="steps between two candidates for the proof")
    keep: int = Field(
        3,
        ge=0,
        description="candidates whose weights stay on disk: the best on val; 0: all. Where `objectives` has more than "
        "the score, all stay",
    )
    save_every: int = Field(10, ge=1, description="steps between two checkpoints of training")
    curriculum: bool = Field(
        False, description="draw rows by their recent success: those solved about half of the time most often"
    )
    replay: int = Field(0, ge=0, description="successes kept for each row, for groups that all but fail (ARPO)")
    on_alarm: Literal["tell", "rollback", "stop"] = Field(
        "tell", description="log it, go back to the best weights, or end training"
    )
