"""The size of the sealed test: how many rows make a proved gain most likely, given what each row takes from search."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import NormalDist, fmean

from workbench.study import Evaluation

#: Assumed before anything is known: the size of a gain, and the variance of a row's difference, which weighs as much as
#: PRIOR_ROWS rows.
GAIN, VARIANCE, PRIOR_ROWS = 0.15, 0.3, 5
#: Sizes that are compared, in steps of 1 / SIZES of the sealed rows, and the most candidates that are counted.
SIZES, MAX_CANDIDATES = 20, 50
#: Chances within this are equal. Of equal tests the largest is chosen, as its interval is the narrowest.
EQUAL = 0.01

#: The normal distribution, and the standard errors at which a two-sided test of level 0.05 shows a gain.
_NORMAL, _BOUND = NormalDist(), 1.96


@dataclass(frozen=True)
class Outlook:
    """The gains that evaluations on val lead to expect.

    gain: of the best candidate, less what chance adds to it. deviation: of the score differences of single rows.
    improving: share of candidates that are better than all before. step: by how much these are better.
    """

    gain: float = 0.0
    deviation: float = math.sqrt(VARIANCE)
    improving: float = 0.5
    step: float = GAIN

    @classmethod
    def of(cls, baseline: Evaluation, best: Evaluation, tried: Iterable[Evaluation]) -> Outlook:
        """Estimate from evaluations on val. tried: all of them, in their order."""
        highest, count, steps = baseline.score, 0, list[float]()
        for one in tried:
            if one.workflow != baseline.workflow:
                steps += [one.score - highest] if one.score > highest else []
                highest, count = max(highest, one.score), count + 1
        improving, step = (1 + len(steps)) / (2 + count), (GAIN + math.fsum(steps)) / (1 + len(steps))
        if best.workflow == baseline.workflow:
            return cls(improving=improving, step=step)
        differences = [after - before for before, after in zip(baseline.scores, best.scores, strict=True)]
        rows, gain = len(differences), fmean(differences)
        squares = math.fsum((one - gain) ** 2 for one in differences)
        variance = (squares + PRIOR_ROWS * VARIANCE) / (rows + PRIOR_ROWS)
        true, chance = max(GAIN**2, gain**2 - variance / rows), variance / rows
        return cls(gain * true / (true + chance), math.sqrt(variance), improving, step)

    def chance_of_proof(self, rows: float, candidates: int) -> float:
        """Return the chance that so many sealed rows show the gain of the best after so many further candidates."""
        found = 0.0
        for better in range(candidates + 1):
            gain = min(1.0, self.gain + better * self.step)
            shown = _NORMAL.cdf(gain * math.sqrt(rows) / self.deviation - _BOUND) if gain > 0 else 0.0
            ways = math.comb(candidates, better)
            found += ways * self.improving**better * (1 - self.improving) ** (candidates - better) * shown
        return found


def plan_test_size(
    rows: int, left: Mapping[str, float], test: Mapping[str, float], candidate: Mapping[str, float], outlook: Outlook
) -> float:
    """Return the share of the sealed rows, 0 to 1, whose test makes a proved gain most likely.

    Args:
        rows: of the whole sealed test.
        left: calls, tokens and dollars for search and test together; infinite without a ceiling.
        test: what the test of all rows takes of each.
        candidate: what one candidate takes of each on val.
        outlook: the gains to expect.
    """
    chances = dict[float, float]()
    for size in range(1, SIZES + 1):
        share = size / SIZES
        search = {what: most - share * test[what] for what, most in left.items()}
        if min(search.values()) >= 0:
            candidates = min((search[what] / candidate[what] for what in search if candidate[what]), default=0.0)
            chances[share] = outlook.chance_of_proof(share * rows, int(min(MAX_CANDIDATES, candidates)))
    best = max(chances.values(), default=0.0)
    return max((share for share, chance in chances.items() if chance >= best - EQUAL), default=0.0)
