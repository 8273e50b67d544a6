"""Counterfactual replay: find the step that decides a failure by rerunning with steps repaired.

Steps before a repaired one are answered from the journal, so a rerun pays for the repair and the later steps. A step
decides a failure if the run passes once it is right; the earliest of several counts: M. Zhang et al., Which Agent
Causes Task Failures and When?, 2025 (arXiv 2505.00212), section 2, where people judge it by reading. Here it is
executed.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from workbench_kit.credit.repair import Address, Repair
from workbench_kit.credit.steps import TraceStep

#: Repairs of a step, best first; each is tried until the run passes. None if the step cannot be repaired.
RepairOf = Callable[[TraceStep], Sequence[Repair]]


#: Reruns with these repairs. Returns whether the run passes.
RunWith = Callable[[Mapping[Address, Repair]], Awaitable[bool]]


@dataclass
class Diagnosis:
    """The step that decides a failure.

    Attributes:
        step: None if no repair makes the run pass.
        repaired: whether the run passes when this step alone is repaired.
        confidence: share of the relevant reruns that agree.
        evidence: the reason, in a sentence.
        reruns: number of reruns.
    """

    step: TraceStep | None
    repaired: bool = False
    confidence: float = 0.0
    evidence: str = ""
    reruns: int = 0


@dataclass
class _Replays:
    """Reruns, and counts the reruns."""

    run: RunWith
    repair_of: RepairOf
    reruns: int = 0
    known: dict[frozenset[int], bool] = field(default_factory=dict[frozenset[int], bool])

    async def passes(self, steps: Sequence[TraceStep]) -> bool:
        """Return True if the run passes with these steps repaired, by any of their repairs.

        Steps without a repair stay unchanged.
        """
        repairs = [(step, options) for step in steps if (options := self.repair_of(step))]
        key = frozenset(step.index for step, _ in repairs)
        if not key:
            return False
        if key not in self.known:
            self.known[key] = False
            for turn in range(max(len(options) for _, options in repairs)):
                chosen = {step.address: options[min(turn, len(options) - 1)] for step, options in repairs}
                self.reruns += 1
                if await self.run(chosen):
                    self.known[key] = True
                    break
        return self.known[key]

    def diagnose(self, step: TraceStep | None, repaired: bool, confidence: float, evidence: str) -> Diagnosis:
        return Diagnosis(step, repaired, confidence, evidence, self.reruns)


async def bisect_steps(steps: Sequence[TraceStep], run: RunWith, repair_of: RepairOf) -> Diagnosis:
    """Find the decisive step by bisection: the last of the shortest prefix whose repair makes the run pass.

    Correct if repairs are monotone: a run that passes with its first t steps repaired also passes with more. With one
    repair per step, it takes at most ceil(log2 n) + 2 reruns: all steps, the bisection, the step alone.

    Args:
        steps: of the failed run, in order.
        run: repeats it.
        repair_of: the repairs of a step.
    """
    replays = _Replays(run, repair_of)
    steps = [step for step in steps if repair_of(step)]
    if not await replays.passes(steps):
        return replays.diagnose(None, False, 0.0, f"it fails with all {len(steps)} steps repaired")
    low, high = 0, len(steps)  # it fails with `low` of the first steps repaired, and passes with `high`
    while high - low > 1:
        middle = (low + high) // 2
        if await replays.passes(steps[:middle]):
            high = middle
        else:
            low = middle
    step = steps[low]
    alone = await replays.passes([step])
    if alone:
        return replays.diagnose(step, True, 1.0, f"it passes with this step alone repaired{_before(low)}")
    words = f"it passes with the first {high} steps repaired{_before(low)}, and fails with this one alone"
    return replays.diagnose(step, False, 0.5, words)


async def scan_steps(steps: Sequence[TraceStep], run: RunWith, repair_of: RepairOf) -> Diagnosis:
    """Find the decisive step by repairing one at a time, from the first. Correct also if repairs are not monotone.

    Args:
        steps: of the failed run, in order.
        run: repeats it.
        repair_of: the repairs of a step.
    """
    replays, tried = _Replays(run, repair_of), [step for step in steps if repair_of(step)]
    for step in tried:
        if await replays.passes([step]):
            return replays.diagnose(step, True, 1.0, f"it passes with this step alone repaired{_before(step.index)}")
    return replays.diagnose(None, False, 0.0, f"it fails with any one of {len(tried)} steps repaired")


def _before(count: int) -> str:
    return f", and fails with the {count} before it" if count else ""


def max_reruns(steps: int) -> int:
    """Return the maximum number of reruns of `bisect_steps`, with one repair per step."""
    return math.ceil(math.log2(steps)) + 2 if steps > 1 else 1
