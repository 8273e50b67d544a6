"""Agreement among labellers, and of a judge with them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from workbench.base.text import one_line
from workbench.proof import interval
from workbench_kit.labels.judged import Label

Interval = tuple[float, float]


def krippendorff_alpha(units: Sequence[Sequence[float]]) -> float | None:
    """Return Krippendorff's alpha on an interval scale; None if no unit has two values, or all values are equal.

    K. Krippendorff, Computing Krippendorff's Alpha-Reliability, 2011. units: the values of each unit, by any number of
    labellers; units with a single value do not count.
    """
    paired = [unit for unit in units if len(unit) > 1]
    values = [value for unit in paired for value in unit]
    if len(values) < 2:
        return None
    seen = sum(_squares(unit) / (len(unit) - 1) for unit in paired)
    expected = _squares(values) / (len(values) - 1)
    return None if expected == 0 else 1 - seen / expected


def _squares(values: Sequence[float]) -> float:
    """Return the sum of the squared differences of all ordered pairs."""
    mean = math.fsum(values) / len(values)
    return 2 * len(values) * math.fsum((v - mean) ** 2 for v in values)


def cohen_kappa(first: Sequence[Any], second: Sequence[Any]) -> float | None:
    """Return Cohen's kappa of two labellers: agreement beyond chance (J. Cohen 1960). None if chance explains all."""
    n = len(first)
    if not n:
        return None
    seen = sum(a == b for a, b in zip(first, second, strict=True)) / n
    shares = Counter(first), Counter(second)
    expected = sum(shares[0][value] * shares[1][value] for value in shares[0]) / n**2
    return None if expected == 1 else (seen - expected) / (1 - expected)


@dataclass(frozen=True)
class Labellers:
    """The agreement of labellers.

    names: the labellers. shared: answers scored by two or more. alpha: Krippendorff's; kappa: Cohen's, for two whose
    scores are all 0 or 1.
    """

    names: Sequence[str]
    answers: int
    shared: int
    alpha: float | None
    kappa: float | None


def compare_labellers(labels: Sequence[Label]) -> Labellers:
    by_answer: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for label in labels:
        if label.score is not None:
            by_answer[label.row, label.answer][label.by] = label.score
    names = sorted({label.by for label in labels})
    both = [given for given in by_answer.values() if len(given) > 1]
    kappa = None
    if len(names) == 2 and both and all(score in (0.0, 1.0) for given in both for score in given.values()):
        kappa = cohen_kappa(*([given[name] for given in both] for name in names))
    alpha = krippendorff_alpha([list(given.values()) for given in by_answer.values()])
    return Labellers(names, len(by_answer), len(both), alpha, kappa)


def describe_labellers(people: Labellers) -> list[str]:
    """Describe the agreement of labellers as plain text."""
    who = ", ".join(map(one_line, people.names)) or "nobody"
    what = "1 answer" if people.answers == 1 else f"{people.answers} answers"
    lines = [f"{what} labelled by {len(people.names)}: {who}"]
    if people.shared:
        alpha = "not defined: all scores are equal" if people.alpha is None else f"{people.alpha:.2f}"
        kappa = "" if people.kappa is None else f", Cohen's kappa {people.kappa:.2f}"
        lines.append(f"{people.shared} of them by several: Krippendorff's alpha {alpha}{kappa}")
    return lines


@dataclass(frozen=True)
class JudgeAgreement:
    """A judge against people, on answers that both scored.

    Attributes:
        n: number of answers.
        same, same95: the share on which both say good (0.5 or more), or both bad.
        error, error95: mean of the judge's score minus the people's: above 0 it is too kind.
        slope, slope95: growth of the error per 100 words of the answer; None if all are equally long.
        correlation: of both scores (Pearson); None if one of them is constant.
    """

    n: int
    same: float
    same95: Interval
    error: float
    error95: Interval
    slope: float | None
    slope95: Interval | None
    correlation: float | None

    def as_dict(self) -> Mapping[str, Any]:
        return vars(self)


def compare_judge(scores: Sequence[tuple[float, float, int]]) -> JudgeAgreement | None:
    """Compare a judge with people; None for fewer than three answers.

    The length bias is the slope of the *error* over the length: if long answers are better, a judge may say so.

    scores: (by the judge, by people, words of the answer).
    """
    if len(scores) < 3:
        return None
    from scipy import stats  # pyright: ignore[reportMissingTypeStubs]

    n, stats_ = len(scores), cast(Any, stats)
    same = [float((judge >= 0.5) == (people >= 0.5)) for judge, people, _ in scores]
    errors = [judge - people for judge, people, _ in scores]
    mean = math.fsum(errors) / n
    half = float(stats_.t.ppf(0.975, n - 1)) * math.sqrt(math.fsum((e - mean) ** 2 for e in errors) / (n - 1) / n)
    lengths = [words / 100 for *_, words in scores]
    slope, slope95 = None, None
    if len(set(lengths)) > 1:
        line = stats_.linregress(lengths, errors)
        slope, room = float(line.slope), float(stats_.t.ppf(0.975, n - 2)) * float(line.stderr)
        slope95 = (slope - room, slope + room)
    varied = len({judge for judge, *_ in scores}) > 1 and len({people for _, people, _ in scores}) > 1
    correlation = float(stats_.pearsonr(*zip(*[(j, p) for j, p, _ in scores], strict=True))[0]) if varied else None
    share = math.fsum(same) / n
    return JudgeAgreement(n, share, interval(same), mean, (mean - half, mean + half), slope, slope95, correlation)
