"""The size of the sealed test: the number of rows that makes a proved gain most likely, given the cost of each row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import NormalDist, fmean

from workbench.study import Evaluation

#: Assumptions before anything is known: the size of a gain, and the variance of a row's difference, which has the
#: weight of PRIOR_ROWS rows.
GAIN, VARIANCE, PRIOR_ROWS = 0.15, 0.3, 5
#: Sizes to compare, in steps of 1 / SIZES of the sealed rows, and the largest number of candidates to consider.
SIZES, MAX_CANDIDATES = 20, 50
#: Chances that differ by less count as equal. Of equal tests the largest is chosen, as its interval is the narrowest.
EQUAL = 0.01

#: The normal distribution, and the standard errors at which a two-sided test of level 0.05 shows a gain.
_NORMAL, _BOUND = NormalDist(), 1.96


@dataclass(frozen=True)
class Outlook:
    """The gains to expect, estimated from evaluations on val.

    gain: of the best candidate, without the part due to chance. deviation: of the score differences of single rows.
    improving: share of candidates that are better than all before. step: their mean improvement.
    """

    gain: float = 0.0
    deviation: float = math.sqrt(VARIANCE)
    improving: float = 0.5
    step: float = GAIN

    @classmethod
    def of(cls, baseline: Evaluation, best: Evaluation, tried: Iterable[Evaluation]) -> Outlook:
        """Estimate from evaluations on val. tried: all of them, in order."""
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
        """Return the chance that `rows` sealed rows show the best's gain after `candidates` more candidates."""
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
        rows: number of rows in the whole sealed test.
        left: calls, tokens and dollars for search and test together; infinite without a ceiling.
        test: the cost of testing all rows, in each of these units.
        candidate: the cost of one candidate on val, in the same units.
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
