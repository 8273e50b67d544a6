"""Service levels on the sealed rows: tests whether the winner meets each target, and is as good as the best candidate.

Unanswered rows score 0 here, whatever the cause: for users of the service, they are failures.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from workbench.base.distributions import binomial_tail
from workbench.proof import (
    COST_FIELDS,
    LEVEL,
    Ceiling,
    Claim,
    ClaimSource,
    Evidence,
    Kind,
    interval,
    mean_interval,
    paired_proof,
)
from workbench.spec import Spec, TargetsSpec
from workbench.study import SLOW_SHARE, Aims, Result, is_slow
from workbench.task import highest_score

#: The fewest rows of which the slowest is above the 95th percentile of all in 97.5 of 100 cases.
ROWS_OF_PERCENTILE = math.ceil(math.log(LEVEL / 2) / math.log(1 - SLOW_SHARE))


@dataclass(frozen=True)
class Level:
    """A target. value, interval: of the winner on the sealed rows; an end that no row bounds is inf. bound: the maximum
    cost of a row, and how it is known."""

    target: str
    limit: float
    value: float
    interval: tuple[float, float]
    bound: str = ""

    @property
    def verdict(self) -> Literal["met", "missed", "open"]:
        """Return whether the target is met or missed by the whole interval, else open."""
        low, high = self.interval
        if self.target == "score":
            return "met" if low >= self.limit else "missed" if high < self.limit else "open"
        return "met" if high <= self.limit else "missed" if low > self.limit else "open"

    def __str__(self) -> str:
        low, high = (f"{end:.4g}" if math.isfinite(end) else "?" for end in self.interval)
        side = "at least" if self.target == "score" else "at most"
        bound = f" ({self.bound})" if self.bound else ""
        return f"{self.target} {self.value:.4g} [{low}, {high}] of {side} {self.limit:g}: {self.verdict}{bound}"


def claim_levels(
    levels: Sequence[Level] = (),
    best: str = "",
    is_baseline: bool = False,
    loss: Claim | None = None,
    needs_margin: bool = True,
    missed_on_val: Sequence[str] = (),
) -> Claim:
    """Claim that the winner meets each target and is not worse than the best candidate.

    Each of these must be shown at the level of the test, so that their conjunction needs no smaller one.

    Args:
        levels: one per target; none without a sealed test.
        best: hash of the best candidate on val. is_baseline: it is the baseline.
        loss: the comparison of the winner with it; None if the winner is it, or was not tested.
        needs_margin: a loss of the margin against the best must be ruled out.
        missed_on_val: lines on targets that the winner misses on val, in which case no candidate meets them.
    """
    met = bool(levels) and all(level.verdict == "met" for level in levels)
    shown = met and (loss is None or not needs_margin or loss.loss_bounded)
    more = {"levels": (*levels,), "best": best, "is_baseline": is_baseline, "loss": loss, "needs_margin": needs_margin}
    return Claim("targets", LEVELS, shown=shown, more={**more, "missed_on_val": (*missed_on_val,)})


def _figures(claim: Claim, shown: bool) -> dict[str, Any]:
    loss: Claim | None = claim.more["loss"]
    levels = [
        {
            "target": one.target,
            "limit": one.limit,
            "value": _finite(one.value),
            "interval": [_finite(end) for end in one.interval],
            "verdict": one.verdict,
        }
        for one in claim.more["levels"]
    ]
    against = loss and {
        "diff": loss.diff,
        "ci95": list(loss.ci95),
        "lowest": loss.lowest,
        "margin": loss.margin,
        "ruled_out": loss.loss_bounded,
        "needed": claim.more["needs_margin"],
    }
    missed = list(claim.more["missed_on_val"])
    return {"levels": levels, "best": claim.more["best"], "loss": against, "missed_on_val": missed, "shown": shown}


def _finite(value: float) -> float | None:
    """Return the value as JSON can hold it: None for the infinities."""
    return value if math.isfinite(value) else None


def _words(claim: Claim, shown: bool, why: str | None) -> list[str]:
    """Return the verdict, then a line for each target, and one on the best candidate."""
    levels, missed, loss = claim.more["levels"], claim.more["missed_on_val"], claim.more["loss"]
    out = [f"No candidate meets all targets on val; the nearest: {', '.join(missed)}."] if missed else []
    if not levels:
        return out
    out.append(f"The targets are {'shown' if claim.shown else 'not shown'} to be met on the sealed rows:")
    out += [f"  {level}" for level in levels]
    if loss is not None:
        ruled_out = "is ruled out" if loss.loss_bounded else "is not ruled out"
        best = claim.more["best"][:8]
        which = "the baseline, the best" if claim.more["is_baseline"] else f"{best}, the best candidate"
        out.append(f"  against {which} on val: {loss.diff_text}; a loss of {loss.margin:g} {ruled_out}")
    return out


#: Service levels. Labels are of baseline and winner, so they cannot correct these.
LEVELS = Kind(_words, _figures, uncorrected=True)


class Levels(ClaimSource):
    """The claim that the targets of a file are met."""

    def find(self, tested: Evidence) -> list[Claim]:
        """Evaluate the targets on the sealed rows."""
        task, rows, targets = tested.task, tested.rows, tested.task.spec.targets
        if targets is None:
            return []
        loss = None
        if rows and tested.winner != tested.best:
            loss = paired_proof(
                [row[2].score for row in rows],
                [row[1].score for row in rows],
                clusters=tested.clusters,
                alpha=tested.alpha,
                margin=task.spec.proof.margin,
                highest=highest_score(task.metric),
            )
        levels = measure_levels(
            targets,
            [row[1] for row in rows],
            tested.clusters,
            ceilings=tested.ceilings,
            alpha=tested.alpha,
            warmed={effect.objective for effect in tested.order_effects},
        )
        best, needs_margin = tested.best, task.spec.margin_of_targets is not None
        return [claim_levels(levels, best.hash, best == task.workflow, loss, needs_margin, _missed(tested))]

    def warn(self, spec: Spec, rows: int) -> list[str]:
        """Warn if there are too few sealed rows to show a target of `p95_latency`."""
        return few_rows_warning(spec.targets, rows)


def few_rows_warning(targets: TargetsSpec | None, rows: int) -> list[str]:
    """Return a warning if this number of sealed rows cannot show `p95_latency`, even if all of them are fast."""
    if targets is None or targets.p95_latency is None or rows >= ROWS_OF_PERCENTILE:
        return []
    return [
        f"{rows} sealed rows cannot show that targets.p95_latency is met, however fast they are: it takes "
        f"{ROWS_OF_PERCENTILE} or more"
    ]


def _missed(tested: Evidence) -> tuple[str, ...]:
    """Return lines on the targets that a winner misses on val."""
    found, spec = tested.evaluations, tested.task.spec
    aims = Aims.of(spec, list(found.values())) if found else None
    on_val = found.get(tested.winner.hash)
    if aims is None or on_val is None:
        return ()
    limits = aims.targets.given
    return tuple(
        f"{name} {on_val.objectives[name]:.4g} of {limits[name]:g}"
        if name in limits
        else f"score {on_val.score:.4g} against {aims.best.score:.4g} of the best"
        for name in aims.shortfalls(on_val)
    )


def measure_levels(
    targets: TargetsSpec,
    results: Sequence[Result],
    clusters: Sequence[Hashable],
    *,
    ceilings: Mapping[str, Ceiling],
    alpha: float,
    warmed: Collection[str] = (),
) -> tuple[Level, ...]:
    """Measure the levels of a workflow.

    Args:
        targets: of the file.
        results: on sealed rows.
        clusters: one key a row: rows with equal keys count once, in time with their slowest.
        ceilings: for each cost the maximum of a row.
        alpha: the level; intervals are of 1 - alpha.
        warmed: objectives that differ for the side that ran second on a row. They are measured where the workflow ran
            first.
    """
    if not results:
        return ()
    cold = [place for place, result in enumerate(results) if result.turn <= 1]
    found: list[Level] = []
    for name, limit in targets.given.items():
        counted = cold if name.removeprefix("p95_") in warmed and cold else range(len(results))
        rows, keys = [results[place] for place in counted], [clusters[place] for place in counted]
        level = _measure(name, limit, rows, keys, ceilings, alpha)
        first = f"on the {len(rows)} rows that it ran first on" if len(rows) < len(results) else ""
        found.append(replace(level, bound=", ".join(filter(None, (level.bound, first)))))
    return tuple(found)


def _measure(
    name: str,
    limit: float,
    results: Sequence[Result],
    clusters: Sequence[Hashable],
    ceilings: Mapping[str, Ceiling],
    alpha: float,
) -> Level:
    if name == "p95_latency":
        return _measure_percentile(limit, results, clusters, alpha)
    if name == "score":
        return _measure_score(limit, results, clusters, alpha)
    # The cost of a row without a result is unknown.
    most, field_ = ceilings[name].most, COST_FIELDS[name]
    values = [most if r.score is None else float(getattr(r, field_)) for r in results]
    means = [math.fsum(of) / len(of) for of in _by_cluster(values, clusters)]
    mean = math.fsum(means) / len(means)
    scale = max(ceilings[name].most, *means)
    if scale <= 0:
        return Level(name, limit, 0.0, (0.0, 0.0))
    low, high = mean_interval([m / scale for m in means], 0.0, 1.0, 1 - alpha)
    return Level(name, limit, mean, (scale * low, scale * high), str(ceilings[name]))


def _measure_score(limit: float, results: Sequence[Result], clusters: Sequence[Hashable], alpha: float) -> Level:
    """Return the mean over the rows with a result. The interval covers any scores of the others."""

    def means(missing: float | None) -> list[float]:
        rows = [(missing if r.score is None else r.score, c) for r, c in zip(results, clusters, strict=True)]
        counted = [(value, cluster) for value, cluster in rows if value is not None]
        grouped = _by_cluster([value for value, _ in counted], [cluster for _, cluster in counted])
        return [math.fsum(of) / len(of) for of in grouped]

    scored = means(None)
    low, high = interval(means(0.0), 1 - alpha)[0], interval(means(1.0), 1 - alpha)[1]
    return Level("score", limit, math.fsum(scored) / max(1, len(scored)), (low, high))


def _measure_percentile(limit: float, results: Sequence[Result], clusters: Sequence[Hashable], alpha: float) -> Level:
    """Return the percentile with its interval by order statistics, which holds for any distribution (Hahn and Meeker,
    Statistical Intervals, 1991, section 5.2): the number of n rows below it is binomial."""
    seconds = [math.inf if is_slow(r, math.inf) else r.seconds for r in results]
    ranked = sorted(max(of) for of in _by_cluster(seconds, clusters))
    n = len(ranked)
    low = binomial_quantile(alpha / 2, n, 1 - SLOW_SHARE)  # with at most that chance, fewer rows are below it
    high = binomial_quantile(1 - alpha / 2, n, 1 - SLOW_SHARE) + 1
    ends = (ranked[low - 1] if low >= 1 else 0.0, ranked[high - 1] if high <= n else math.inf)
    return Level("p95_latency", limit, ranked[math.ceil((1 - SLOW_SHARE) * n) - 1], ends)


def binomial_quantile(share: float, n: int, chance: float) -> int:
    """Compute the smallest k with P(X <= k) of at least `share`."""
    import numpy

    return int(numpy.searchsorted(1 - binomial_tail(numpy.arange(n + 1), n, chance), share))


def _by_cluster(values: Sequence[float], clusters: Sequence[Hashable]) -> list[list[float]]:
    found: dict[Hashable, list[float]] = {}
    for key, value in zip(clusters, values, strict=True):
        found.setdefault(key, []).append(value)
    return list(found.values())
