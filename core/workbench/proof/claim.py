"""A claim: what the sealed rows say of a winner, and whether they show it.

A gain, a saving, service levels and the rise of an attack rate are claims. Each kind has a test of its own, since one
test for all of them loses power. The report treats all kinds alike: it loops over a list of claims.

One file: a claim, and what a kind of claims adds to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: The level of a test on rows that were not tested before.
LEVEL = 0.05

#: A pick by cost must rule out a loss of the mean score as large as this, if `proof: {margin: ...}` says nothing else.
#: It is a convention, not a computed number: five answers in a hundred, which takes 73 rows without any difference and
#: some hundreds with a few.
MARGIN = 0.05


def _describe(claim: Claim, shown: bool, why: str | None) -> list[str]:
    """Describe a claim in a line."""
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
    """A kind of claims: its words, its JSON, and the conditions beside its own test.

    Attributes:
        words: lines of the report, words(claim, shown, why); None: no lines. shown: the claim stands in the report.
            why: the reason if it does not, where no line before tells it.
        figures: the JSON form, figures(claim, shown).
        proves: a claim that is shown makes the winner the result of the run.
        guards: a claim that is not shown is an objection to all others. Its reason is `why_not`.
        keeps_score: shown only if the gain rules out a loss of its margin, and is no smaller loss either.
        uncorrected: computed from scores that no label corrects, so that nothing is shown where a judge scored.
    """

    words: Callable[[Claim, bool, str | None], Sequence[str]] | None = _describe
    figures: Callable[[Claim, bool], dict[str, Any]] = _list_figures
    proves: bool = True
    guards: bool = False
    keeps_score: bool = False
    uncorrected: bool = False


@dataclass(frozen=True)
class Claim:
    """A comparison of winner and baseline on the sealed rows.

    Rows that only one side answered are left out of the means. But a slow side may be slow on the rows that it gets
    wrong. So `shown` and `lowest` take the worst case for those rows, and the interval covers whatever they would have
    scored.

    Attributes:
        name: unique in a report: gain, saving, targets, attacks, judge, or a plugin's own.
        kind: words and conditions.
        n: units: clusters of rows, mostly of one row each.
        baseline, winner, diff: means over the units.
        ci95: 95% interval of diff.
        p: two-sided, by `test`; 1 where the kind has no p.
        shown: by its own test, in the worst case, too.
        of: the quantity: score, usd, tokens, calls, latency.
        test: name of the test.
        alpha: the level of the test.
        lowest: lower end of the interval of diff at the level 1 - alpha, in the worst case.
        margin: the loss, or rise, to rule out.
        most, bound: maximum of a unit, and how it is known.
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
        """The difference with its interval, such as `+0.310 [+0.205, +0.402]`."""
        return f"{self.diff:+.3f} [{self.ci95[0]:+.3f}, {self.ci95[1]:+.3f}]"

    @property
    def loss_bounded(self) -> bool:
        """Non-inferiority: a loss of the margin or more is ruled out, with alpha / 2 for an error.

        Not for a baseline that scores no more than the margin: a loss within it would leave nothing.
        """
        return self.lowest > -self.margin and self.baseline > self.margin

    @property
    def loss_shown(self) -> bool:
        """Return True if the winner is worse, at the level of a gain on new rows."""
        return self.diff < 0 and self.p < LEVEL and self.ci95[1] < 0

    @property
    def loss_left(self) -> str | None:
        """Why a loss of the score is possible that a cheaper winner must not have; None if it is ruled out."""
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

    def lines(self, shown: bool | None = None, why: str | None = None) -> list[str]:
        """Lines of the report. shown, why: as of `Kind.words`; by default the claim's own."""
        words = self.kind.words
        return [] if words is None else [*words(self, self.shown if shown is None else shown, why)]

    def as_dict(self, shown: bool | None = None) -> dict[str, Any]:
        """The JSON form. shown: as of `lines`."""
        return self.kind.figures(self, self.shown if shown is None else shown)


def find_claim(claims: Sequence[Claim], name: str) -> Claim | None:
    """Find a claim by its name."""
    return next((claim for claim in claims if claim.name == name), None)
