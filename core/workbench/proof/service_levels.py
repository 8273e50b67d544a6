"""Service levels on the sealed rows: does the winner meet each target, and is it as good as the best candidate?

Rows that were not answered score 0 here, whoever's fault that was: to whom the service is promised, they are failures.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from workbench.base.distributions import binomial_quantile
from workbench.proof.bounded_mean import mean_interval
from workbench.proof.savings import COST_FIELDS, Ceiling
from workbench.proof.statistics import LEVEL, Proof, interval
from workbench.spec import TargetsSpec
from workbench.study import SLOW_SHARE, Result, is_slow

#: The fewest rows the slowest of which is above the 95th percentile of all in 97.5 of 100 cases.
ROWS_OF_PERCENTILE = math.ceil(math.log(LEVEL / 2) / math.log(1 - SLOW_SHARE))


@dataclass(frozen=True)
class Level:
    """A target. value, interval: of the winner on the sealed rows; an end that no row bounds is inf. bound: the most
    that a row can cost, and how that is known."""

    target: str
    limit: float
    value: float
    interval: tuple[float, float]
    bound: str = ""

    @property
    def verdict(self) -> Literal["met", "missed", "open"]:
        """Met or missed: by the whole interval."""
        low, high = self.interval
        if self.target == "score":
            return "met" if low >= self.limit else "missed" if high < self.limit else "open"
        return "met" if high <= self.limit else "missed" if low > self.limit else "open"

    def __str__(self) -> str:
        low, high = (f"{end:.4g}" if math.isfinite(end) else "?" for end in self.interval)
        side = "at least" if self.target == "score" else "at most"
        bound = f" ({self.bound})" if self.bound else ""
        return f"{self.target} {self.value:.4g} [{low}, {high}] of {side} {self.limit:g}: {self.verdict}{bound}"


@dataclass(frozen=True)
class ServiceLevels:
    """The targets of a run.

    Attributes:
        levels: by target; none without a sealed test.
        best: hash of the best candidate on val. is_baseline: whether that is the baseline.
        loss: the comparison of the winner with it; None if the winner is it, or was not tested.
        needs_margin: whether a loss of the margin against the best has to be ruled out.
        missed_on_val: lines on targets that the winner misses on val, which then no candidate meets.
    """

    levels: tuple[Level, ...] = ()
    best: str = ""
    is_baseline: bool = False
    loss: Proof | None = None
    needs_margin: bool = True
    missed_on_val: tuple[str, ...] = field(default=())

    @property
    def shown(self) -> bool:
        """Return True if the sealed rows show that each target is met, and rule out a loss of the margin against the
        best where that is asked for.

        Each of these has to be shown at the level of the test, so that all together need no smaller one.
        """
        met = bool(self.levels) and all(level.verdict == "met" for level in self.levels)
        return met and (self.loss is None or not self.needs_margin or self.loss.loss_bounded)

    def as_dict(self) -> dict[str, Any]:
        levels = [
            {
                "target": one.target,
                "limit": one.limit,
                "value": _finite(one.value),
                "interval": [_finite(end) for end in one.interval],
                "verdict": one.verdict,
            }
            for one in self.levels
        ]
        loss = self.loss and {
            "diff": self.loss.diff,
            "ci95": list(self.loss.ci95),
            "lowest": self.loss.lowest,
            "margin": self.loss.margin,
            "ruled_out": self.loss.loss_bounded,
            "needed": self.needs_margin,
        }
        return {
            "levels": levels,
            "best": self.best,
            "loss": loss,
            "missed_on_val": list(self.missed_on_val),
            "shown": self.shown,
        }

    def lines(self) -> list[str]:
        """The verdict, then a line for each target, and one on the best candidate."""
        out = [f"No candidate meets all targets on val; the nearest: {', '.join(self.missed_on_val)}."]
        out = out if self.missed_on_val else []
        if not self.levels:
            return out
        out.append(f"The targets are {'shown' if self.shown else 'not shown'} to be met on the sealed rows:")
        out += [f"  {level}" for level in self.levels]
        if self.loss is not None:
            loss, ruled_out = self.loss, "is ruled out" if self.loss.loss_bounded else "is not ruled out"
            which = "the baseline, the best" if self.is_baseline else f"{self.best[:8]}, the best candidate"
            out.append(
                f"  against {which} on val: {loss.diff:+.3f} [{loss.ci95[0]:+.3f}, "
                f"{loss.ci95[1]:+.3f}]; a loss of {loss.margin:g} {ruled_out}"
            )
        return out


def few_rows_warning(targets: TargetsSpec | None, rows: int) -> list[str]:
    """A warning if the number of sealed rows cannot show a target of `p95_latency`, even if all of them are fast."""
    if targets is None or targets.p95_latency is None or rows >= ROWS_OF_PERCENTILE:
        return []
    return [
        f"{rows} sealed rows cannot show that targets.p95_latency is met, however fast they are: it takes "
        f"{ROWS_OF_PERCENTILE} or more"
    ]


def _finite(value: float) -> float | None:
    """The value as JSON has it."""
    return value if math.isfinite(value) else None


def measure_levels(
    targets: TargetsSpec,
    results: Sequence[Result],
    clusters: Sequence[Hashable],
    *,
    ceilings: Mapping[str, Ceiling],
    alpha: float,
    warmed: Collection[str] = (),
) -> tuple[Level, ...]:
    """The levels of a workflow.

    Args:
        targets: what is asked for.
        results: on sealed rows.
        clusters: one key a row: rows with equal keys count once, in time with their slowest.
        ceilings: for each cost the most that a row can cost.
        alpha: the level; intervals are of 1 - alpha.
        warmed: objectives of which the side that ran second on a row has more or less. They are measured where the
            workflow ran first.
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
    # What a row without a result took is not known.
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
    """The mean over the rows with a result. The interval covers whatever the others would have scored."""

    def means(missing: float | None) -> list[float]:
        rows = [(missing if r.score is None else r.score, c) for r, c in zip(results, clusters, strict=True)]
        counted = [(value, cluster) for value, cluster in rows if value is not None]
        grouped = _by_cluster([value for value, _ in counted], [cluster for _, cluster in counted])
        return [math.fsum(of) / len(of) for of in grouped]

    scored = means(None)
    low, high = interval(means(0.0), 1 - alpha)[0], interval(means(1.0), 1 - alpha)[1]
    return Level("score", limit, math.fsum(scored) / max(1, len(scored)), (low, high))


def _measure_percentile(limit: float, results: Sequence[Result], clusters: Sequence[Hashable], alpha: float) -> Level:
    """The percentile with its interval by order statistics, which holds for any distribution (Hahn and Meeker,
    Statistical Intervals, 1991, section 5.2): as many of n rows are below it as a
    binomial says."""
    seconds = [math.inf if is_slow(r, math.inf) else r.seconds for r in results]
    ranked = sorted(max(of) for of in _by_cluster(seconds, clusters))
    n = len(ranked)
    low = binomial_quantile(alpha / 2, n, 1 - SLOW_SHARE)  # with that chance or less, fewer rows are below it
    high = binomial_quantile(1 - alpha / 2, n, 1 - SLOW_SHARE) + 1
    ends = (ranked[low - 1] if low >= 1 else 0.0, ranked[high - 1] if high <= n else math.inf)
    return Level("p95_latency", limit, ranked[math.ceil((1 - SLOW_SHARE) * n) - 1], ends)


def _by_cluster(values: Sequence[float], clusters: Sequence[Hashable]) -> list[list[float]]:
    found: dict[Hashable, list[float]] = {}
    for key, value in zip(clusters, values, strict=True):
        found.setdefault(key, []).append(value)
    return list(found.values())
