"""Stop losing candidates early, by the rule of Optuna's WilcoxonPruner, after each block of rows.

The pruner itself needs scipy. `signed_rank_p` is the same test, and tests/plugins/optuna compares their verdicts.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.base.distributions import signed_rank_p
from workbench.study import Race
from workbench_optuna.sampler import AskedTrial, Searcher

#: Number of scores of a candidate before its first test.
STARTUP_STEPS = 8
#: The p-value below which a candidate is stopped: the default of Optuna's WilcoxonPruner.
P_THRESHOLD = 0.1


def make_race(searcher: Searcher, asked: AskedTrial, p_values: dict[tuple[float, ...], float]) -> Race:
    """Return the rule that stops a candidate.

    p_values: by differences, shared by a whole search: few differ if scores are 0 or 1.
    """

    def stop(scores: Sequence[float]) -> bool:
        """Report each new score under the number of its example, and test the differences to the best trial.

        A candidate whose mean is not below that of the best trial goes on, as in the pruner.
        """
        report(asked, scores)
        try:
            best = [s for _, s in sorted(searcher.study.best_trial.intermediate_values.items())]
        except ValueError:  # no trial is complete yet
            return False
        if len(scores) < STARTUP_STEPS or sum(best) * len(scores) <= sum(scores) * len(best):
            return False
        differences = tuple(sorted(a - b for a, b in zip(scores, best, strict=False)))
        if differences not in p_values:
            p_values[differences] = signed_rank_p(differences)
        return p_values[differences] < P_THRESHOLD

    return stop


def report(asked: AskedTrial, scores: Sequence[float]) -> None:
    """Report a trial's scores so far. The pruner compares other trials with the best one, which therefore needs all
    scores, even if it was scored without a race, as the baseline is."""
    for step in range(asked.reported, len(scores)):
        asked.trial.report(scores[step], step)
    asked.reported = max(asked.reported, len(scores))
