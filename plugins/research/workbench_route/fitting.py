"""Fitting predictors with scikit-learn (extra `route`), and writing them down as numbers.

Linear models and gradient boosting are compared by cross-validation, together with their mean and with a constant.
Where the text says nothing about the outcome the constant wins, and the router then chooses by cost alone. Boosting has
to be better than a linear model by a standard error: with a few hundred rows it is so by chance too often. With fewer
rows than FEW_ROWS the heads of a router share this choice and the calibration. Chosen for each of four heads from 70
rows, a constant wins for one or two of them by chance, and a candidate that is said to be equally good everywhere
takes rows of others. Departure from BEST-Route (arXiv 2506.22716), which fine-tunes an encoder: no weights to load, and
a decision in microseconds.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.base.distribution import pip_install
from workbench.errors import PluginError
from workbench_route.features import Features
from workbench_route.predictor import Linear, Predictor, Sigmoid, Tree, Trees, expit, logit

FOLDS = 5
#: Digits of a learned number: their errors sum up to less than 1e-9 in a prediction.
DIGITS = 11
#: Rows below which there is nothing to learn from.
MIN_ROWS = 10
#: Inverse strengths of the linear model's penalty. The loose one is for few rows.
STRENGTHS = {"strict": 0.003, "linear": 0.01, "loose": 1.0}
FEW_ROWS = 300
#: Rows from which a calibration is fitted: with fewer it is noise.
MIN_CALIBRATED = 50


def check_library() -> None:
    """Raise PluginError with the command that installs what fitting needs, if it is missing."""
    try:
        import sklearn  # noqa: F401
    except ImportError:
        raise PluginError(f"learning a router needs scikit-learn: {pip_install('research[route]')}") from None


def fit_predictor(
    rows: Sequence[Features],
    wanted: Sequence[float],
    size: int,
    seed: int,
    groups: Sequence[int] | None = None,
) -> tuple[Predictor, list[float]]:
    """Fit the probability of an outcome.

    Args:
        rows: features of each row.
        wanted: the outcome of each row, or its probability, in [0, 1].
        size: how many features there are.
        seed: of the folds and of the boosting.
        groups: rows of one group are in one fold; default: each is its own.

    Returns:
        The predictor, and its predictions for these rows, each made by a model that has not seen the row's group.
    """
    return _fit_together(rows, {"": wanted}, size, seed, groups)[""]


def fit_heads(
    rows: Sequence[Features],
    wanted: Mapping[str, Sequence[float]],
    size: int,
    seed: int,
) -> dict[str, Predictor]:
    """Fit the probabilities of several outcomes of the same rows.

    Args:
        rows, size, seed: as for `fit_predictor`.
        wanted: by head, the outcome of each row.

    Returns:
        The predictors by head. Up to FEW_ROWS rows all heads whose outcomes vary are models of one kind, with one
        calibration.
    """
    together = [[*wanted]] if len(rows) <= FEW_ROWS else [[name] for name in wanted]
    parts = [_fit_together(rows, {n: wanted[n] for n in names}, size, seed) for names in together]
    return {name: predictor for part in parts for name, (predictor, _) in part.items()}


def _fit_together(
    rows: Sequence[Features],
    wanted: Mapping[str, Sequence[float]],
    size: int,
    seed: int,
    groups: Sequence[int] | None = None,
) -> dict[str, tuple[Predictor, list[float]]]:
    """By head, the predictor and its predictions of unseen rows. The heads share the kind of model and calibration."""
    check_library()
    from sklearn import config_context
    from threadpoolctl import threadpool_limits

    known = list(groups) if groups is not None else list(range(len(rows)))
    found = {name: (fit_constant(labels), [_smoothed_mean(labels)] * len(rows)) for name, labels in wanted.items()}
    varied = {name: labels for name, labels in wanted.items() if max(labels) - min(labels) >= 1e-9}
    if len(set(known)) < MIN_ROWS or not varied:
        return found
    # Sums in another order are other numbers, and a replay has to see the same. Else a third of the time would go into
    # looks at the same settings and rows for each of hundreds of trees.
    with threadpool_limits(1), config_context(skip_parameter_validation=True, assume_finite=True):
        return found | _fit_varied(rows, varied, size, seed, known)


def fit_constant(wanted: Sequence[float]) -> Predictor:
    """Says the same of every input."""
    return Predictor(models=[Linear(bias=round(logit(_smoothed_mean(wanted)), DIGITS))])


def _fit_varied(
    rows: Sequence[Features],
    wanted: Mapping[str, Sequence[float]],
    size: int,
    seed: int,
    groups: Sequence[int],
) -> dict[str, tuple[Predictor, list[float]]]:
    fold_of, matrix = _make_folds(groups, seed), _make_matrix(rows, size)
    folds = [fold_of[group] for group in groups]
    unseen = {name: _predict_unseen(rows, matrix, labels, folds, seed) for name, labels in wanted.items()}
    every = [y for labels in wanted.values() for y in labels]
    joined = {kind: [p for part in unseen.values() for p in part[kind]] for kind in next(iter(unseen.values()))}
    kinds = _choose_kinds(recalibrate(joined, every) if len(wanted) > 1 else joined, every)
    constant = {n: (fit_constant(labels), unseen[n]["constant"]) for n, labels in wanted.items()}
    if not kinds:
        return constant
    found = {n: [math.fsum(p) / len(p) for p in zip(*(unseen[n][k] for k in kinds), strict=True)] for n in wanted}
    fitted: Sigmoid | None = Sigmoid()
    if len(set(groups)) >= MIN_CALIBRATED:
        fitted = _calibrate([p for part in found.values() for p in part], every)
    if fitted is None:
        return constant
    return {
        name: (
            Predictor(models=[_fit(kind, matrix, labels, seed) for kind in kinds], calibration=fitted),
            [fitted.calibrate(p) for p in found[name]],
        )
        for name, labels in wanted.items()
    }


def recalibrate(unseen: Mapping[str, Sequence[float]], wanted: Sequence[float]) -> dict[str, Sequence[float]]:
    """The predictions of each kind of model after a calibration, which mends what a kind claims too much: a weakly
    regularised model orders a few rows well, and is too sure of each. A kind that ranks them wrongly is a constant."""
    fitted = {kind: _calibrate(found, wanted) for kind, found in unseen.items() if kind != "constant"}
    known = {k: [f.calibrate(p) for p in unseen[k]] if f is not None else unseen["constant"] for k, f in fitted.items()}
    return {**known, "constant": unseen["constant"]}


def _predict_unseen(
    rows: Sequence[Features], matrix: Any, wanted: Sequence[float], folds: Sequence[int], seed: int
) -> dict[str, list[float]]:
    """The predictions of each kind of model for each row, made without the row's fold."""
    kinds = [*(kind for kind in STRENGTHS if kind != "loose" or len(rows) <= FEW_ROWS), "trees"]
    unseen = {kind: [0.0] * len(rows) for kind in ("constant", *kinds)}
    for fold in range(FOLDS):
        inside = [i for i in range(len(rows)) if folds[i] != fold]
        outside = [i for i in range(len(rows)) if folds[i] == fold]
        found = {kind: _fit(kind, matrix[inside], [wanted[i] for i in inside], seed) for kind in kinds}
        base = _smoothed_mean([wanted[i] for i in inside])
        for i in outside:
            unseen["constant"][i] = base
            for kind, model in found.items():
                unseen[kind][i] = expit(model.log_odds(rows[i]))
    return unseen


def _choose_kinds(unseen: Mapping[str, Sequence[float]], wanted: Sequence[float]) -> tuple[str, ...]:
    """The models whose mean is taken; none where a constant is as good."""
    losses = {kind: _log_losses(found, wanted) for kind, found in unseen.items()}
    linear = min((kind for kind in STRENGTHS if kind in losses), key=lambda kind: math.fsum(losses[kind]))
    both = [(a + b) / 2 for a, b in zip(unseen[linear], unseen["trees"], strict=True)]
    chosen, best = (linear,), losses[linear]
    for kinds, found in (((linear, "trees"), _log_losses(both, wanted)), (("trees",), losses["trees"])):
        gains = [a - b for a, b in zip(best, found, strict=True)]
        mean = math.fsum(gains) / len(gains)
        error = math.sqrt(math.fsum((g - mean) ** 2 for g in gains) / (len(gains) - 1) / len(gains))
        if mean > error:
            chosen, best = kinds, found
    return chosen if math.fsum(best) < math.fsum(losses["constant"]) else ()


def _make_folds(groups: Sequence[int], seed: int) -> dict[int, int]:
    names = sorted(set(groups))
    random.Random(f"folds:{seed}").shuffle(names)
    return {name: i % FOLDS for i, name in enumerate(names)}


def _smoothed_mean(wanted: Sequence[float]) -> float:
    return (math.fsum(wanted) + 0.5) / (len(wanted) + 1)


def _log_losses(found: Sequence[float], wanted: Sequence[float]) -> list[float]:
    pairs = ((min(max(p, 1e-6), 1 - 1e-6), y) for p, y in zip(found, wanted, strict=True))
    return [-y * math.log(p) - (1 - y) * math.log(1 - p) for p, y in pairs]


def _make_matrix(rows: Sequence[Features], size: int) -> Any:
    import numpy

    matrix = numpy.zeros((len(rows), size))
    for i, row in enumerate(rows):
        for j, value in row.items():
            matrix[i, j] = value
    return matrix


def _fit(kind: str, matrix: Any, wanted: Sequence[float], seed: int) -> Linear | Trees:
    from scipy.sparse import csr_array

    model = make_model(kind, seed)
    x, y, weights = _split_labels(matrix, wanted)
    if len(set(y)) < 2:
        return Linear(bias=round(logit(_smoothed_mean(wanted)), DIGITS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the last digits of a weight have not converged
        # Nearly all features of a row are 0, which a linear model need not multiply.
        model.fit(csr_array(x) if kind in STRENGTHS else x, y, sample_weight=weights)
    return export_linear(model) if kind in STRENGTHS else export_trees(model)


def make_model(kind: str, seed: int) -> Any:
    """The library's model, not yet fitted. Strongly regularised: rows are few, and features many."""
    if kind in STRENGTHS:
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(C=STRENGTHS[kind], max_iter=300)
    from sklearn.ensemble import GradientBoostingClassifier

    return GradientBoostingClassifier(
        n_estimators=80,
        max_depth=3,
        learning_rate=0.1,
        subsample=0.7,
        max_features=0.1,
        min_samples_leaf=8,
        random_state=seed % 2**32,
    )


def _split_labels(matrix: Any, wanted: Sequence[float]) -> tuple[Any, list[int], list[float]]:
    """A row whose outcome is a probability becomes two, one of each class, with that weight."""
    import numpy

    lines = [(i, 1, p) for i, p in enumerate(wanted) if p > 0] + [(i, 0, 1 - p) for i, p in enumerate(wanted) if p < 1]
    lines.sort()
    return matrix[numpy.array([i for i, _, _ in lines])], [y for _, y, _ in lines], [w for _, _, w in lines]


def export_linear(model: Any) -> Linear:
    """A fitted logistic regression as numbers."""
    weights = {i: round(float(w), DIGITS) for i, w in enumerate(model.coef_[0]) if round(float(w), DIGITS)}
    return Linear(bias=round(float(model.intercept_[0]), DIGITS), weights=weights)


def export_trees(model: Any) -> Trees:
    """A fitted gradient boosting classifier as numbers."""
    prior = float(model.init_.class_prior_[1])
    return Trees(
        bias=round(logit(prior), DIGITS), trees=[_export_tree(t, model.learning_rate) for (t,) in model.estimators_]
    )


def _export_tree(regressor: Any, rate: float) -> Tree:
    tree = regressor.tree_
    leaves = [int(child) < 0 for child in tree.children_left]
    return Tree(
        feature=[-1 if leaf else int(f) for leaf, f in zip(leaves, tree.feature, strict=True)],
        threshold=[0.0 if leaf else float(t) for leaf, t in zip(leaves, tree.threshold, strict=True)],
        left=[0 if leaf else int(c) for leaf, c in zip(leaves, tree.children_left, strict=True)],
        right=[0 if leaf else int(c) for leaf, c in zip(leaves, tree.children_right, strict=True)],
        value=[
            round(rate * float(v[0][0]), DIGITS) if leaf else 0.0 for leaf, v in zip(leaves, tree.value, strict=True)
        ],
    )


def _calibrate(found: Sequence[float], wanted: Sequence[float]) -> Sigmoid | None:
    """Platt's calibration of probabilities; None where they say nothing: the higher, the less often it happens."""
    import numpy
    from sklearn.linear_model import LogisticRegression

    odds = numpy.array([[logit(p)] for p in found])
    x, y, weights = _split_labels(odds, wanted)
    fitted = LogisticRegression(C=1e3, max_iter=1000, tol=1e-8).fit(x, y, sample_weight=weights)
    slope, bias = round(float(fitted.coef_[0][0]), DIGITS), round(float(fitted.intercept_[0]), DIGITS)
    return Sigmoid(slope=slope, bias=bias) if slope > 0 else None
