"""Attacks on the sealed rows: tests whether more of them succeed on the winner than on the baseline."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from workbench.proof import Claim, ClaimSource, Evidence, Kind, cluster_means, interval, paired_proof
from workbench.spec import Spec
from workbench.study import Result
from workbench.task import Task
from workbench_redteam.attacked_context import UnderAttack
from workbench_redteam.attacks import check_attacks
from workbench_redteam.outcomes import judge

#: The name under which the source is registered: the section of the file that it tests.
SECTION = "constraints"
#: For each attack on a row, True if it succeeded and None if it was not answered.
Outcomes = Sequence[bool | None]


def _words(claim: Claim, shown: bool, why: str | None) -> list[str]:
    return [f"Safety: {_describe(claim)}; a rise of {claim.margin:g} is ruled out."] if claim.shown else []


def _describe(claim: Claim) -> str:
    (a, b), (c, d) = (claim.more[side] for side in ("baseline_interval", "winner_interval"))
    return (
        f"attacks succeed on {claim.baseline:.3f} [{a:.3f}, {b:.3f}] with the baseline and on {claim.winner:.3f} "
        f"[{c:.3f}, {d:.3f}] with the winner, {claim.diff_text}"
    )


def _figures(claim: Claim, shown: bool) -> dict[str, Any]:
    return {
        "baseline": claim.baseline,
        "winner": claim.winner,
        **claim.more,
        "rise": claim.diff,
        "ci95": claim.ci95,
        "highest": 0.0 - claim.lowest,
        "margin": claim.margin,
        "n": claim.n,
        "ruled_out": claim.shown,
    }


#: No rise of the attack rate, the share of attacks that succeed, by the margin. `lowest` is for the attacks that fail.
ATTACKS = Kind(_words, _figures, proves=False, guards=True)


class AttackRise(ClaimSource):
    """The claim that no more attacks succeed on the winner than on the baseline."""

    guards = True

    def check(self, task: Task) -> None:
        """Check that the attacks of a file have their places."""
        check_attacks(task)

    def perturbations(self, task: Task) -> Mapping[str, UnderAttack]:
        """Run the sealed rows under the attacks of a file that limits their rate."""
        return {} if task.spec.constraints is None else {n: UnderAttack(one) for n, one in task.attacks.items()}

    def find(self, tested: Evidence) -> list[Claim]:
        """Compare the attack rates of baseline and winner."""
        limits = tested.task.spec.constraints
        if limits is None:
            return []
        outcomes = [(_outcomes(tested.task, a), _outcomes(tested.task, b)) for a, b in tested.pairs]
        rise = measure_rise(outcomes, tested.clusters, margin=limits.attack, alpha=tested.alpha)
        return [rise] if rise is not None else []

    def warn(self, spec: Spec, rows: int) -> list[str]:
        """Warn if there are too few sealed rows to rule out the rise."""
        return few_rows_for_attacks(spec.constraints.attack, rows) if spec.constraints is not None else []


def _outcomes(task: Task, result: Result) -> Outcomes:
    """Return the attacks on a row; none if it ran without them."""
    found = [(attack, result.perturbed.get(f"{SECTION}.{name}")) for name, attack in task.attacks.items()]
    return [judge(attack, result, one).succeeded for attack, one in found if one is not None]


def measure_rise(
    outcomes: Sequence[tuple[Outcomes, Outcomes]], clusters: Sequence[Hashable], *, margin: float, alpha: float
) -> Claim | None:
    """Measure the rise of the attack rate on sealed rows. A row counts with the mean of its attacks. None if no row was
    attacked. outcomes: of each row with baseline and winner."""
    if not any(a and b for a, b in outcomes):
        return None
    rates = [(_rate(a), _rate(b)) for a, b in outcomes]
    sides = [[None if rate is None else 1 - rate for rate in side] for side in zip(*rates, strict=True)]
    found = paired_proof(*sides, clusters=clusters, alpha=alpha, margin=margin)
    known = [(key, a, b) for key, (a, b) in zip(clusters, rates, strict=True) if a is not None and b is not None]
    means = cluster_means(known)
    before, after = [a for a, _ in means], [b for _, b in means]
    low, high = found.ci95
    claim = Claim(
        "attacks",
        ATTACKS,
        found.n,
        1 - found.baseline if means else 0.0,
        1 - found.winner if means else 0.0,
        0.0 - found.diff,
        (0.0 - high, 0.0 - low),
        found.p,
        found.n > 0 and 0.0 - found.lowest < margin,
        of="attack rate",
        test=found.test,
        alpha=alpha,
        lowest=found.lowest,
        margin=margin,
        n_rows=found.n_rows,
        more={"baseline_interval": interval(before), "winner_interval": interval(after)},
    )
    if claim.shown:
        return claim
    few = "" if claim.diff >= margin else f" on {claim.n} rows: use more test rows"
    return replace(claim, why_not=f"{_describe(claim)}; a rise of {margin:g} is not ruled out{few}")


def few_rows_for_attacks(margin: float, rows: int) -> list[str]:
    """Return a warning if this number of sealed rows cannot rule out the rise, even if no attack succeeds."""
    if not rows or -paired_proof([1.0] * rows, [1.0] * rows).lowest < margin:
        return []
    return [
        f"{rows} sealed rows cannot rule out that the attack rate rises by {margin:g}, even if no attack succeeds on "
        "them: no gain would be shown. Use more test rows, or a larger constraints.attack"
    ]


def _rate(succeeded: Outcomes) -> float | None:
    """Return the share of the attacks on a row that succeeded; None if none was answered."""
    known = [float(one) for one in succeeded if one is not None]
    return math.fsum(known) / len(known) if known else None
