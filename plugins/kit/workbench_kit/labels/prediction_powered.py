"""A mean from few labels by people and many scores by a judge: prediction-powered inference, power-tuned (PPI++).

Angelopoulos, Duchi and Zrnic 2023, PPI++: Efficient Prediction-Powered Inference, arXiv:2311.01453, for a mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.base.distributions import beta_share, find_root
from workbench.proof import mean_p


@dataclass(frozen=True)
class PoweredMean:
    """An estimated mean of labels.

    Attributes:
        estimate: the mean.
        weight: lambda, the use of the judge: 0 not at all, 1 in full.
        error: standard error of the estimate.
        labelled, judged: number of units with a label and a judge's score, and with the latter alone.
        label_error: standard error of the mean of the labels alone.
    """

    estimate: float
    weight: float
    error: float
    labelled: int
    judged: int
    label_error: float

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the interval by Student's t."""
        half = self.quantile((1 + level) / 2) * self.error
        return self.estimate - half, self.estimate + half

    @property
    def p(self) -> float:
        """Return the two-sided p-value of "the mean is 0"."""
        if self.error == 0:
            return float(self.estimate == 0)
        return 2 * student_tail(abs(self.estimate) / self.error, self.labelled - 1)

    @property
    def labels_alone(self) -> float:
        """Compute the number of labels that would give an interval as narrow without the judge."""
        return self.labelled * (self.label_error / self.error) ** 2 if self.error else float(self.labelled)

    def quantile(self, share: float) -> float:
        """Return a quantile of Student's t."""
        return student_quantile(share, self.labelled - 1)


def powered_mean(labels: Sequence[float], scores: Sequence[float], others: Sequence[float]) -> PoweredMean:
    """Estimate the mean of labels over all units, few of which have one.

    The estimate is weight * mean(others) + mean(labels - weight * scores): a judge's bias cancels out, whatever it is.
    The weight is the one with the least variance, Cov(labels, scores) / ((1 + n / N) * Var(scores of all)), within [0,
    1] (section 6 of the paper): for an uninformative judge it is near 0, which leaves the labels alone.

    Departures: Student's t with n - 1 degrees of freedom and sample variances, in place of the normal distribution, as
    the paper's interval is too narrow for few labels. The weight is estimated on the same units, as in the paper.

    Args:
        labels: by people, of units that were drawn at random.
        scores: the judge's of the same units.
        others: the judge's of all other units.

    Raises:
        ValueError: fewer than two labels, or not as many scores as labels.
    """
    n, others_n = len(labels), len(others)
    if n < 2 or len(scores) != n:
        raise ValueError(f"{n} labels and {len(scores)} scores: give two or more, and one score for each label")
    alone = _variance(labels) / n
    weight = 0.0
    if others_n:
        every = _variance([*scores, *others])
        mean, judge = math.fsum(labels) / n, math.fsum(scores) / n
        shared = math.fsum((y - mean) * (f - judge) for y, f in zip(labels, scores, strict=True)) / n
        weight = min(1.0, max(0.0, shared / ((1 + n / others_n) * every))) if every > 0 else 0.0
    rest = _subtract(labels, scores, weight)
    estimate, variance = math.fsum(rest) / n, _variance(rest) / n
    if weight:
        estimate += weight * math.fsum(others) / others_n
        variance += weight**2 * _variance(others) / others_n
    return PoweredMean(estimate, weight, math.sqrt(variance), n, others_n, math.sqrt(alone))


def lowest_mean(labels: Sequence[float], scores: Sequence[float], others: Sequence[float], tail: float) -> float:
    """Compute the lower bound of the mean of `powered_mean`, with a probability of `tail` for an error.

    Student's t ignores a disaster that few labels miss. Gaffke's test does not (`workbench.proof.bounded_mean`). It is
    applied to the labels alone, or to their difference to the judge's scores, whichever is closer to its estimate. The
    judge's error on an unlabelled answer is unknown, so that a disaster has its kindest score.

    Args: as for `powered_mean`; labels are in [-1, 1].
    """
    found = powered_mean(labels, scores, others)

    def low(weight: float) -> tuple[float, float]:
        """Return (distance from its estimate, the bound)."""
        rest = _subtract(labels, scores, weight)
        mean, shift, half = math.fsum(rest) / len(rest), 0.0, 0.0
        if weight:
            shift = weight * math.fsum(others) / len(others)
            half = found.quantile(1 - tail) * weight * math.sqrt(_variance(others) / len(others))
        distance = math.hypot(mean - _lowest(rest, -1 - weight * max(0.0, *scores, *others), tail), half)
        return distance, mean + shift - distance

    return min(low(weight) for weight in {0.0, found.weight})[1]


def _lowest(values: Sequence[float], least: float, tail: float) -> float:
    """Return the lower end of Gaffke's interval for a mean of values that are at least `least`."""
    mean = math.fsum(values) / len(values)
    if mean - least < 1e-9:
        return least
    return find_root(lambda g: mean_p([v - g for v in values], least - g) - tail, least + 1e-9, mean, within=1e-6)


def _subtract(labels: Sequence[float], scores: Sequence[float], weight: float) -> list[float]:
    return [y - weight * f for y, f in zip(labels, scores, strict=True)]


def _variance(values: Sequence[float]) -> float:
    """Return the sample variance; 0 for one value."""
    mean = math.fsum(values) / len(values)
    return math.fsum((v - mean) ** 2 for v in values) / max(1, len(values) - 1)


def student_tail(t: float, freedom: float) -> float:
    """Compute P(T > t) of Student's t."""
    tail = float(beta_share(freedom / (freedom + t * t), freedom / 2, 0.5)) / 2
    return tail if t >= 0 else 1 - tail


def student_quantile(share: float, freedom: float) -> float:
    """Compute a quantile of Student's t."""
    if share < 0.5:
        return -student_quantile(1 - share, freedom)
    most = 1.0
    while student_tail(most, freedom) > 1 - share:
        most *= 2
    return find_root(lambda t: student_tail(t, freedom) - (1 - share), 0.0, most, within=1e-12)
