"""Losers that are stopped early: Optuna's WilcoxonPruner, asked after each block of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from workbench.study import AskedTrial, Race, Searcher

#: Scores of a candidate before its first test.
_STARTUP_STEPS = 8
#: Up to so many differences SciPy's test of Wilcoxon tries all signs, where some of them tie.
_EXACT = 13
#: The p-value below which a candidate is stopped: the default of Optuna's WilcoxonPruner.
P_THRESHOLD = 0.1


def make_pruner() -> Any:
    import warnings

    import optuna

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.pruners.WilcoxonPruner(p_threshold=P_THRESHOLD, n_startup_steps=_STARTUP_STEPS)


def make_race(searcher: Searcher, asked: AskedTrial, verdicts: dict[Any, bool]) -> Race:
    """The rule by which the pruner stops a candidate. verdicts: of a whole search, kept here."""

    def stop(scores: Sequence[float]) -> bool:
        """Report each new score under the number of its example, then ask the pruner.

        Its verdict depends on the differences to the best trial alone, and few of those differ where scores are 0
        or 1; its exact test takes 0.1 s, so that a verdict is kept, and those that are simple are not asked for.
        """
        report(asked, scores)
        try:
            best = [s for _, s in sorted(searcher.study.best_trial.intermediate_values.items())]
        except ValueError:  # no trial is complete yet
            return False
        differences = tuple(sorted(a - b for a, b in zip(scores, best, strict=False)))
        safe = sum(best) * len(scores) <= sum(scores) * len(best)
        if (differences, safe) not in verdicts:
            p = sign_test(differences) if len(differences) >= _STARTUP_STEPS else 1.0
            prunes = asked.trial.should_prune if p is None else lambda: p < P_THRESHOLD and not safe
            verdicts[differences, safe] = prunes()
        return verdicts[differences, safe]

    return stop


def sign_test(differences: Sequence[float]) -> float | None:
    """The p-value of the pruner's exact test that differences are below zero, where it is a sign test: those that are
    not zero are of one size, as they are where scores are 0 or 1. None otherwise.

    All ranks are then equal, and of the signs that could have been drawn those count that are as many below zero.
    """
    moved = [d for d in differences if d]
    if len(differences) > _EXACT or len({abs(d) for d in moved}) > 1:
        return None
    above = sum(d > 0 for d in moved)
    return sum(math.comb(len(moved), k) for k in range(above + 1)) / 2 ** len(moved)


def report(asked: AskedTrial, scores: Sequence[float]) -> None:
    """Tell the trial its scores so far. The best trial needs all of them, though it may have been scored without a
    race (as the baseline is): the pruner compares others with it."""
    for step in range(asked.reported, len(scores)):
        asked.trial.report(scores[step], step)
    asked.reported = max(asked.reported, len(scores))
