"""Learning curves of a run: the reward of each training step, as optimizers logged it.

An optimizer that trains logs the figures `step` and `reward` (`Study.log`). Nothing else is needed for a curve.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

from workbench.base.type_guards import is_dict
from workbench.store import ReadOnlyStore, RunRecord, Store

_BARS = "▁▂▃▄▅▆▇█"
#: Width of a curve in a terminal, in characters. Longer ones show means of several steps.
_WIDTH = 60
#: The beginning of a step's message, after the name of the training: `proposer, turn 1, step 3: ...`
_STEP = re.compile(r"^(?:(.*), )?(?:step|round) \d+:")


@dataclass
class LearningCurve:
    """The mean reward of the rollouts of each step. name: of the optimizer, and of the training if it has several.

    points: (step, reward), by step, from 1.
    """

    name: str
    points: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])

    def describe(self) -> str:
        """Return the line of a report."""
        rewards = [reward for _, reward in self.points]
        (first, start), (last, end) = self.points[0], self.points[-1]
        if len(self.points) == 1:
            return f"Training ({self.name}): reward {start:.3f} in step {first}"
        at, best = max(self.points, key=lambda point: point[1])
        told = f"reward {start:.3f} in step {first}, {end:.3f} in step {last}, at most {best:.3f} in step {at}"
        return f"Training ({self.name}): {told}  {draw_bars(rewards)}"


def draw_bars(values: list[float]) -> str:
    """Draw values as a line of block characters, scaled from the lowest to the highest."""
    width = min(len(values), _WIDTH)
    parts = [values[i * len(values) // width : (i + 1) * len(values) // width] for i in range(width)]
    means = [math.fsum(part) / len(part) for part in parts]
    low, high = min(means), max(means)
    top = len(_BARS) - 1
    return "".join(_BARS[round((mean - low) / (high - low) * top) if high > low else 0] for mean in means)


def read_learning_curves(store: Store | ReadOnlyStore, run_id: int) -> list[LearningCurve]:
    """Return the curves of a run, in the order in which its trainings began.

    A resumed run logs some steps again: at the same number of paid calls, newer figures replace older ones. A training
    that begins again at a later number is another one.
    """
    found = dict[str, list[LearningCurve]]()
    paid = dict[str, int]()
    for event in RunRecord(store, run_id).read_events("optimizer_told"):
        point, message = _point(event.get("figures")), _STEP.match(str(event.get("message", "")))
        if point is None or message is None:
            continue
        name = f"{event.get('optimizer')}, {message[1]}" if message[1] else str(event.get("optimizer"))
        calls, curves = int(event.get("calls", 0)), found.setdefault(name, [])
        if not curves or (point[0] <= curves[-1].points[-1][0] and calls > paid[name]):
            curves.append(LearningCurve(f"{name}, {len(curves) + 1}" if curves else name))
        curve = curves[-1]
        curve.points = [*(known for known in curve.points if known[0] < point[0]), point]
        paid[name] = calls
    return [curve for curves in found.values() for curve in curves]


def _point(figures: Any) -> tuple[int, float] | None:
    """Return the step and its reward; None if they are not finite numbers."""
    if not is_dict(figures):
        return None
    step, reward = figures.get("step"), figures.get("reward")
    if not isinstance(step, int | float) or not isinstance(reward, int | float):
        return None
    return (int(step) + 1, float(reward)) if math.isfinite(step) and math.isfinite(reward) else None
