"""Surrogates: predict the score of a candidate, with its uncertainty, from evaluated candidates.

`gp`: a Gaussian process. Its kernel is a mixture of the share of equal labels, which models effects of single choices,
its square, which models those of pairs (a polynomial kernel on one-hot codes), and a squared exponential on the numbers
of the graph. Mixture and scale maximise the marginal likelihood on a small grid. `trees`: boosted regression trees on
bootstrap samples; the spread of their predictions is the uncertainty. `random`: an uninformed control. The noise of a
score is that of a mean of n results.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from workbench_mcts.features import Features, compare_labels, stack_numbers

if TYPE_CHECKING:
    import numpy

Kind = Literal["gp", "trees", "random", "none"]


@dataclass(frozen=True)
class Label:
    """An evaluated candidate: its mean score over n examples."""

    features: Features
    score: float
    n: int

    @property
    def variance(self) -> float:
        """The variance of the mean, as of 0/1 scores; one added success and failure keep it above 0."""
        share = (self.score * self.n + 1) / (self.n + 2)
        return share * (1 - share) / self.n


class Surrogate(Protocol):
    def fit(self, labels: Sequence[Label]) -> None: ...

    def predict(self, asked: Sequence[Features]) -> tuple[Any, Any]:
        """(means, standard deviations), arrays of shape (len(asked),)."""
        ...


def make_surrogate(kind: Kind, rng: random.Random) -> Surrogate | None:
    made: dict[str, Surrogate] = {"gp": GaussianProcess(), "trees": Trees(rng), "random": Uninformed(rng)}
    return made.get(kind)


#: The grid: weights of the share of equal labels, its square, and the numbers; and variances.
_MIXTURES = ((1.0, 0.0, 0.0), (0.6, 0.4, 0.0), (0.3, 0.7, 0.0), (0.4, 0.3, 0.3), (0.0, 0.4, 0.6), (0.0, 0.0, 1.0))
_SCALES = (0.003, 0.01, 0.03, 0.1, 0.3)


class GaussianProcess:
    """Gaussian process regression with the kernel of the module docstring."""

    def fit(self, labels: Sequence[Label]) -> None:
        import numpy
        from scipy.linalg import cho_solve, cholesky

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
                lower = cholesky(scale * shape + noise + 1e-9 * numpy.eye(len(labels)), lower=True)
                weights = cho_solve((lower, True), scores - self.mean)
                likelihood = -0.5 * (scores - self.mean) @ weights - numpy.log(numpy.diag(lower)).sum()
                if likelihood > best:
                    best = likelihood
                    self.mixture, self.scale, self.lower, self.weights = mixture, scale, lower, weights

    def predict(self, asked: Sequence[Features]) -> tuple[numpy.ndarray, numpy.ndarray]:
        import numpy
        from scipy.linalg import solve_triangular

        across = self.scale * _mixed(self.mixture, self._parts(asked))
        found = solve_triangular(self.lower, across.T, lower=True)
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


@dataclass
class Trees:
    """Least-squares boosting (Friedman 2001) of small trees on several bootstrap samples."""

    rng: random.Random
    bags: int = 10
    rounds: int = 30
    rate: float = 0.15
    depth: int = 2
    models: list[tuple[float, list[Any]]] = field(default_factory=list)
    kept: Any = None

    def fit(self, labels: Sequence[Label]) -> None:
        import numpy

        features = [label.features for label in labels]
        self.columns = list(dict.fromkeys((n, v) for f in features for n, v in f.labels.items()))
        self.names = sorted({n for f in features for n in f.numbers})
        self.kept = slice(None)
        matrix, scores = self._matrix(features), numpy.array([label.score for label in labels])
        self.kept = numpy.flatnonzero(matrix.std(axis=0) > 0)  # constant columns split nothing
        matrix = matrix[:, self.kept]
        draw = numpy.random.default_rng(self.rng.randrange(2**63))
        self.models = []
        for _ in range(self.bags):
            rows = draw.integers(0, len(scores), len(scores))
            x, left = matrix[rows], scores[rows] - scores[rows].mean()
            trees = []
            for _ in range(self.rounds):
                tree = _tree(x, left, self.depth)
                left = left - self.rate * _answers(tree, x)
                trees.append(tree)
            self.models.append((float(scores[rows].mean()), trees))

    def predict(self, asked: Sequence[Features]) -> tuple[numpy.ndarray, numpy.ndarray]:
        import numpy

        matrix = self._matrix(asked)
        found = numpy.array([mean + self.rate * sum(_answers(t, matrix) for t in trees) for mean, trees in self.models])
        return found.mean(axis=0), found.std(axis=0)

    def _matrix(self, asked: Sequence[Features]) -> numpy.ndarray:
        import numpy

        codes = numpy.array([[float(f.labels.get(n) == v) for n, v in self.columns] for f in asked])
        codes = codes.reshape(len(asked), len(self.columns))
        return numpy.hstack([codes, stack_numbers(asked, self.names)])[:, self.kept]


def _tree(x: numpy.ndarray, y: numpy.ndarray, depth: int) -> Any:
    """Fit a tree: a number, or (column, threshold, tree for values up to it, tree for values above)."""
    if depth == 0 or len(y) < 2:
        return float(y.mean()) if len(y) else 0.0
    best, cut = 1e-12, None
    for column in range(x.shape[1]):
        for threshold in _thresholds(x[:, column]):
            low = x[:, column] <= threshold
            count, total = low.sum(), y[low].sum()
            gain = total**2 / count + (y.sum() - total) ** 2 / (len(y) - count) - y.sum() ** 2 / len(y)
            if gain > best:
                best, cut = gain, (column, threshold, low)
    if cut is None:
        return float(y.mean())
    column, threshold, low = cut
    return column, threshold, _tree(x[low], y[low], depth - 1), _tree(x[~low], y[~low], depth - 1)


def _thresholds(values: numpy.ndarray) -> list[float]:
    import numpy

    known = numpy.unique(values)
    middles = (known[:-1] + known[1:]) / 2
    return [float(m) for m in middles[:: max(1, len(middles) // 4)]]


def _answers(tree: Any, x: numpy.ndarray) -> numpy.ndarray:
    import numpy

    if isinstance(tree, float):
        return numpy.full(len(x), tree)
    column, threshold, low, high = tree
    return numpy.where(x[:, column] <= threshold, _answers(low, x), _answers(high, x))


@dataclass
class Uninformed:
    """A control: random predictions."""

    rng: random.Random

    def fit(self, labels: Sequence[Label]) -> None:
        pass

    def predict(self, asked: Sequence[Features]) -> tuple[Any, Any]:
        import numpy

        return numpy.array([self.rng.random() for _ in asked]), numpy.zeros(len(asked))
