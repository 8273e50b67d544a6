"""The state of a `grpo` training besides weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class State:
    """The state of training besides the weights, as plain JSON values."""

    step: int = 0
    multipliers: dict[str, dict[str, float]] = field(default_factory=dict)  # by policy
    replay: dict[str, list[list[dict[str, Any]]]] = field(default_factory=dict)  # by task: rows of successes
    submitted: dict[str, dict[str, str]] = field(default_factory=dict)  # by step: the folder of each policy's weights
    scores: dict[str, float] = field(default_factory=dict)  # by step, of candidates on val
    unscored: list[str] = field(default_factory=list)  # steps whose candidate was beyond the budget
    best: float = -1.0
    stale: int = 0  # candidates since the best one
    last_reset: int = 0
    kl: dict[str, float] = field(default_factory=dict)  # by policy
    skipped: dict[str, int] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)  # the rest of this pass over the tasks
    known: dict[str, list[float]] = field(default_factory=dict)  # by task: the curriculum's record
    usual_length: dict[str, float] = field(default_factory=dict)  # by policy: of the longest conversation of a rollout
    rng: list[Any] = field(default_factory=list)
    ended: bool = False  # by an alarm
