"""A claim about a winner, and whether the sealed rows show it.

A gain, a saving, service levels and the rise of an attack rate are claims. Each kind has its own test, since one test
for all of them loses power. The report treats all kinds alike: it loops over a list of claims.

One file: a claim, and the parts that depend on its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: The level of a test on rows that were not tested before.
LEVEL = 0.05

#: A winner picked by cost must rule out a loss of the mean score this large, unless the file sets `proof: {margin:
#: ...}`. The number is a convention: five answers in a hundred. It takes 73 rows without any difference, or some
#: hundreds with a few.
MARGIN = 0.05


def _describe(claim: Claim, shown: bool, why: str | None) -> list[str]:
    """Describe a claim in one line."""
    low, high = claim.ci95
    reason = f" ({why})" if why else ""
    return [
        f"{claim.name}: {claim.baseline:.4g} -> {claim.winner:.4g}, {claim.diff:+.4g} [{low:+.4g}, {high:+.4g}], p = "
        f"{claim.p:.2g}, n = {claim.n}: {'shown' if shown else 'not shown'}{reason}"
    ]


def _list_figures(claim: Claim, shown: bool) -> dict[str, Any]:
    """List the figures that all kinds have."""
    names = ("name", "n", "baseline", "winner", "diff", "p", "margin", "bound", "why_not")
    return {**{name: getattr(claim, name) for name in names}, "ci95": list(claim.ci95), "shown": shown}


@dataclass(frozen=True)
class Kind:
    """A kind of claims: its words, its JSON, and conditions in addition to its own test.

    Attributes:
        words: lines of the report, words(claim, shown, why); None: no lines. shown: the report shows the claim. why:
            the reason if it does not, unless an earlier line gave it.
        figures: the JSON form, figures(claim, shown).
        proves: if shown, the winner becomes the result of the run.
        guards: if not shown, it is an objection to all other claims. Its reason is `why_not`.
        keeps_score: shown only if the gain rules out a loss of its margin, and shows no smaller loss.
        uncorrected: computed from scores that no label corrects, so it is never shown if a judge scored.
        plain: like `words`, in plain words for the end of a run; None: `words`.
    """

    words: Callable[[Claim, bool, str | None], Sequence[str]] | None = _describe
    figures: Callable[[Claim, bool], dict[str, Any]] = _list_figures
    proves: bool = True
    guards: bool = False
    keeps_score: bool = False
    uncorrected: bool = False
    plain: Callable[[Claim, bool, str | None], Sequence[str]] | None = None


@dataclass(frozen=True)
class Claim:
    """A comparison of winner and baseline on the sealed rows.

    Rows that only one side answered are left out of the means. But a slow side may be slow on the rows that it gets
    wrong. So `shown` and `lowest` take the worst case for those rows, and the interval covers all their possible
    scores.

    Attributes:
        name: unique in a report: gain, saving, targets, attacks, judge, or a plugin's own.
        kind: its words and conditions.
        n: units: clusters of rows, mostly of one row each.
        baseline, winner, diff: means over the units.
        ci95: 95% interval of diff.
        p: two-sided, by `test`; 1 if the kind has no p.
        shown: by its own test, in the worst case, too.
        of: the quantity: score, usd, tokens, calls, latency.
        test: name of the test.
        alpha: the level of the test.
        lowest: lower end of the interval of diff at the level 1 - alpha, in the worst case.
        margin: the loss, or rise, to rule out.
        most, bound: maximum of a unit, and its source.
        why_not: reason, if it is not shown.
        n_rows, n_excluded, n_one_sided: rows in the units; rows left out because infrastructure failed on either side;
            of these, the rows that one side answered.
        wins, losses, ties: units in which the winner is higher, lower, the same.
        smallest_gain: the true gain that a test of this size shows in 4 of 5 cases, given the scatter of the units;
            None if they do not scatter, or are too few to show any gain.
        more: details of the kind.
    """

    name: str
    kind: Kind = field(default=Kind(), repr=False)
    n: int = 0
    baseline: float = 0.0
    winner: float = 0.0
    diff: float = 0.0
    ci95: tuple[float, float] = (0.0, 0.0)
    p: float = 1.0
    shown: bool = False
    of: str = "score"
    test: str = "none"
    alpha: float = LEVEL
    lowest: float = -1.0
    margin: float = MARGIN
    most: float = 1.0
    bound: str = ""
    why_not: str | None = None
    n_rows: int = 0
    n_excluded: int = 0
    n_one_sided: int = 0
    wins: int = 0
    losses: int = 0
    ties: int = 0
    smallest_gain: float | None = None
    more: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @property
    def diff_text(self) -> str:
        """Return the difference with its interval, such as `+0.310 [+0.205, +0.402]`."""
        return f"{self.diff:+.3f} [{self.ci95[0]:+.3f}, {self.ci95[1]:+.3f}]"

    @property
    def loss_bounded(self) -> bool:
        """Return True for non-inferiority: a loss of the margin or more is ruled out at the level alpha / 2.

        False if the baseline scores no more than the margin: a loss within it would leave nothing.
        """
        return self.lowest > -self.margin and self.baseline > self.margin

    @property
    def loss_shown(self) -> bool:
        """Return True if the winner is worse, at the level of a gain on new rows."""
        return self.diff < 0 and self.p < LEVEL and self.ci95[1] < 0

    @property
    def loss_left(self) -> str | None:
        """Return the reason why the score of a cheaper winner may be too low; None if that is ruled out."""
        if self.baseline <= self.margin:
            return f"the baseline scores no more than {self.margin:g}: there is nothing to keep."
        if self.loss_shown:
            return "its score is shown to be lower."
        if not self.loss_bounded:
            return (
                f"its score may be lower by {-self.lowest:.2g}, and a loss of {self.margin:g} must be ruled out: use "
                "more test rows."
            )
        return None

    def lines(self, shown: bool | None = None, why: str | None = None, plain: bool = False) -> list[str]:
        """Return lines of the report. shown, why: as in `Kind.words`; default: the claim's own. plain: as in `Kind`."""
        words = (self.kind.plain if plain else None) or self.kind.words
        return [] if words is None else [*words(self, self.shown if shown is None else shown, why)]

    def as_dict(self, shown: bool | None = None) -> dict[str, Any]:
        """Return the JSON form. shown: as in `lines`."""
        return self.kind.figures(self, self.shown if shown is None else shown)


def find_claim(claims: Sequence[Claim], name: str) -> Claim | None:
    """Return the claim with this name, or None."""
    return next((claim for claim in claims if claim.name == name), None)
