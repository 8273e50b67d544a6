"""Settings of training. Nothing heavy is imported here: a workflow file is checked without torch."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Lora(BaseModel):
    """Train a low-rank adapter on all linear layers in place of all weights."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rank: int = Field(16, ge=1, description="rank of the adapter")
    alpha: float = Field(32.0, gt=0, description="the adapter counts alpha / rank")


class Learning(BaseModel):
    """How weights are changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rate: float | None = Field(None, gt=0, description="learning rate; by default 1e-6, and 1e-5 for an adapter")
    warmup: int = Field(0, ge=0, description="steps over which the rate rises to its value")
    weight_decay: float = Field(0.0, ge=0, description="of AdamW")
    betas: tuple[float, float] = Field((0.9, 0.999), description="of AdamW")
    epochs: int = Field(1, ge=1, description="times that the rows of a step are used")
    minibatches: int = Field(1, ge=1, description="updates in one pass over the rows of a step")
    micro_tokens: int = Field(16384, ge=1, description="tokens in one forward pass, padding included")
    max_tokens: int = Field(256, ge=1, description="for the aggregate `constant`: the longest answer")
    max_norm: float = Field(1.0, gt=0, description="gradients are clipped to this norm")
    temperature: float = Field(1.0, gt=0, description="at which tokens are drawn, and their log-probabilities counted")


class Course(BaseModel):
    """The course of training: how much is drawn in a step, what is kept, and what is watched."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    steps: int = Field(100, ge=1, description="steps at most; the budget may end it before")
    tasks: int = Field(8, ge=1, description="training rows in a step")
    rollouts: int = Field(8, ge=1, description="runs of the workflow on each of them; 1 teaches nothing by itself")
    refill: int = Field(
        0, ge=0, description="draw other rows in place of those whose rollouts all earned the same, so often at most"
    )
    evaluate_every: int = Field(10, ge=1, description="steps between two candidates for the proof")
    save_every: int = Field(10, ge=1, description="steps between two checkpoints of training")
    horizon: tuple[int, ...] = Field((), description="max_steps of agents, growing with training (ScalingInter-RL)")
    horizon_steps: int = Field(100, ge=1, description="training steps at each horizon")
    replay: int = Field(0, ge=0, description="successes kept for each row, for groups that all but fail (ARPO)")
    reset_after: int = Field(0, ge=0, description="least steps between two resets of the reference; 0: never (ProRL)")
    reset_patience: int = Field(3, ge=1, description="reset after so many candidates in a row that were not better")
    reset_kl: float = Field(0.1, gt=0, description="reset when the smoothed divergence is above this")
    entropy: tuple[float, float] = Field(
        (0.01, 8.0), description="alarm when the mean entropy leaves this band, in nats"
    )
    kl: float = Field(1.0, gt=0, description="alarm when the divergence is above this")
    gap: float = Field(
        0.05, gt=0, description="alarm when a log-probability differs so much between drawing and training"
    )
    on_alarm: Literal["tell", "rollback", "stop"] = Field(
        "tell", description="say it, go back to the best weights, or end training"
    )
