"""Scores of diagnoses against a known truth: ours, which compares values, and that of the published code.

The published scorer (`Automated_FA/evaluate.py`) checks whether the true text occurs inside the predicted one, so a
prediction of step 10, 12 or 21 counts as right if the truth is 1. Both scores are printed, for comparison with
published figures. In both, a log without a prediction counts as wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from workbench.proof import interval
from workbench_attribute.diagnosis import Diagnosis
from workbench_kit.logs import Log

#: Distances of the tolerance curve.
TOLERANCES = (0, 1, 2, 3, 5)


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Shares of n logs. within: by distance, the share of steps at most that far from the true one; agent95, step95:
    95% intervals of the exact ones."""

    n: int
    agent: float
    step: float
    agent95: tuple[float, float]
    step95: tuple[float, float]
    official_agent: float
    official_step: float
    within: dict[int, float]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def is_agent(found: Diagnosis, log: Log) -> bool:
    """Return True if the agent is the true one, ignoring case."""
    return found.agent is not None and log.gold_agent is not None and _same(found.agent, log.gold_agent)


def _same(one: str, other: str) -> bool:
    return one.strip().casefold() == other.strip().casefold()


def is_step(found: Diagnosis, log: Log, distance: int = 0) -> bool:
    """Return True if the step is at most this far from the true one, compared as integers."""
    return found.step is not None and log.gold_step is not None and abs(found.step - log.gold_step) <= distance


def official_agent(found: Diagnosis, log: Log) -> bool:
    """Return True if the true name occurs in the predicted one, as in the published scorer."""
    return found.agent is not None and log.gold_agent is not None and log.gold_agent in found.agent


def official_step(found: Diagnosis, log: Log) -> bool:
    """Return True if the digits of the true step occur in the predicted one, as in the published scorer."""
    return found.step is not None and log.gold_step is not None and str(log.gold_step) in str(found.step)


def score(found: Sequence[Diagnosis], logs: Sequence[Log]) -> Accuracy | None:
    """Return the accuracy on the logs with known truth; None if there are none.

    Args:
        found: one for each log, in the same order.
        logs: with or without truth.
    """
    pairs = [(d, log) for d, log in zip(found, logs, strict=True) if log.has_gold]
    if not pairs:
        return None
    agents, steps = ([float(right(d, log)) for d, log in pairs] for right in (is_agent, is_step))
    return Accuracy(
        len(pairs),
        _mean(agents),
        _mean(steps),
        interval(agents),
        interval(steps),
        _mean([float(official_agent(d, log)) for d, log in pairs]),
        _mean([float(official_step(d, log)) for d, log in pairs]),
        {k: _mean([float(is_step(d, log, k)) for d, log in pairs]) for k in TOLERANCES},
    )


def expect_random(logs: Sequence[Log]) -> tuple[float, float] | None:
    """Return the average (agent, step) accuracy of uniform random draws; None if no truth is known."""
    known = [log for log in logs if log.has_gold]
    if not known:
        return None
    agents = [_same_share(log) for log in known]
    return _mean(agents), _mean([float(log.gold_step is not None) / len(log.steps) for log in known])


def _same_share(log: Log) -> float:
    return sum(_same(agent, log.gold_agent or "") for agent in log.agents) / len(log.agents)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
