"""The surrogate: a Gaussian process that predicts the score of a candidate, with its uncertainty, from evaluated ones.

Its kernel is a mixture of three parts. The share of equal labels models effects of single choices, its square models
those of pairs (a polynomial kernel on one-hot codes), and a squared exponential covers the numbers of the graph.
Mixture and scale maximise the marginal likelihood on a small grid. The noise of a score is that of a mean of n results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench_mcts.features import Features, compare_labels, stack_numbers

if TYPE_CHECKING:
    import numpy


@dataclass(frozen=True)
class Label:
    """An evaluated candidate: its mean score over n examples."""

    features: Features
    score: float
    n: int

    @property
    def variance(self) -> float:
        """Return the variance of the mean, as of 0/1 scores. One added success and failure keep it above 0."""
        share = (self.score * self.n + 1) / (self.n + 2)
        return share * (1 - share) / self.n


#: The grid: weights of the share of equal labels, its square, and the numbers; and variances.
_MIXTURES = ((1.0, 0.0, 0.0), (0.6, 0.4, 0.0), (0.3, 0.7, 0.0), (0.4, 0.3, 0.3), (0.0, 0.4, 0.6), (0.0, 0.0, 1.0))
_SCALES = (0.003, 0.01, 0.03, 0.1, 0.3)


class GaussianProcess:
    """Gaussian process regression with the kernel of the module docstring."""

    def fit(self, labels: Sequence[Label]) -> None:
        import numpy

        self.rows = [label.features for label in labels]
        self.names = sorted({n for f in self.rows for n in f.numbers})
        numbers = stack_numbers(self.rows, self.names)
        spread = numbers.std(axis=0)
        self.spread = numpy.where(spread > 0, spread, numpy.inf)  # a constant number carries no information
        scores = numpy.array([label.score for label in labels])
        noise = numpy.diag([label.variance for label in labels])
        self.mean = float(scores.mean())
        parts = self._parts(self.rows)
        best = -numpy.inf
        for mixture in _MIXTURES:
            shape = _mixed(mixture, parts)
            for scale in _SCALES:
                lower = numpy.linalg.cholesky(scale * shape + noise + 1e-9 * numpy.eye(len(labels)))
                weights = numpy.linalg.solve(lower.T, numpy.linalg.solve(lower, scores - self.mean))
                likelihood = -0.5 * (scores - self.mean) @ weights - numpy.log(numpy.diag(lower)).sum()
                if likelihood > best:
                    best = likelihood
                    self.mixture, self.scale, self.lower, self.weights = mixture, scale, lower, weights

    def predict(self, asked: Sequence[Features]) -> tuple[numpy.ndarray, numpy.ndarray]:
        import numpy

        across = self.scale * _mixed(self.mixture, self._parts(asked))
        found = numpy.linalg.solve(self.lower, across.T)
        variance = self.scale * sum(self.mixture) - (found**2).sum(axis=0)
        return self.mean + across @ self.weights, numpy.sqrt(numpy.maximum(variance, 1e-12))

    def _parts(self, asked: Sequence[Features]) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
        import numpy

        share = compare_labels(asked, self.rows)
        here, there = (stack_numbers(f, self.names) / self.spread for f in (asked, self.rows))
        distance = ((here[:, None, :] - there[None, :, :]) ** 2).sum(axis=2) / max(1, len(self.names))
        return share, share**2, numpy.exp(-0.5 * distance)


def _mixed(mixture: Sequence[float], parts: Sequence[numpy.ndarray]) -> numpy.ndarray:
    first, second, third = (weight * part for weight, part in zip(mixture, parts, strict=True))
    return first + second + third
