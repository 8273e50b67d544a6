"""The result of an evaluation: score, cost, failures and variance, as text, as JSON and as a table."""

from __future__ import annotations

import html
import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.errors import FailureKind, describe_missing
from workbench.evaluation.rows import read_rows
from workbench.ledger import describe_lost, describe_reused, describe_usd, per_1000
from workbench.proof import interval, more_line, page_of
from workbench.store import ReadOnlyStore, read_report, typed
from workbench.study import Evaluation, Result, mean_score

#: Columns of a table of rows in addition to their fields and predictions.
_FOUND = ("id", "split", "repeat", "score", "failure", "message", "feedback")


@dataclass
class EvalReport:
    """The result of `workbench eval`, as printed, stored and returned.

    Attributes:
        n, of: the number of rows with a score, and of requested rows, each `repeats` times.
        missing: the number of missing results, counting each repeat, by kind of failure (`FailureKind.no_result`).
        score, ci95: mean over the rows with a score, and its 95% interval, in which a cluster of rows counts once. A
            row on which the workflow failed counts as 0.
        scores: means by further metrics, each over the rows that it could score. unscored: the number of results that
            it could not score, if any.
        cost: means per row and repeat: usd, tokens, calls, latency (seconds).
        unpriced: models whose dollars are missing in the costs because their price is unknown.
        grouped: the number of clusters and the mean over them, to which `ci95` belongs; None if that mean is `score`.
        ceiling: the part of the budget that ended it: calls, tokens, usd or minutes; empty if none did.
        variance: of the score, within a row and between rows; None without repeats.
    """

    run: str
    name: str
    status: str
    split: str
    n: int
    of: int
    repeats: int
    score: float
    ci95: tuple[float, float]
    scores: dict[str, float | None]
    failures: dict[str, int]
    cost: dict[str, float]
    variance: dict[str, float] | None
    spent: dict[str, Any]
    database: str
    workflow: str
    warnings: list[str] = field(default_factory=list[str])
    error: str | None = None
    label: str = ""  # of a cell of a matrix
    ceiling: str = ""
    unpriced: list[str] = field(default_factory=list[str])
    missing: dict[str, int] = field(default_factory=dict[str, int])
    grouped: dict[str, float] | None = None
    unscored: dict[str, int] = field(default_factory=dict[str, int])
    warned: list[str] = field(default_factory=list[str])  # the warnings that were given when it started

    @property
    def complete(self) -> bool:
        """Return True if every row was run."""
        return self.status == "finished"

    def as_dict(self) -> dict[str, Any]:
        found = {name: value for name, value in vars(self).items() if name != "warned"}
        return {"kind": "eval", **found, "ci95": list(self.ci95)}

    def headline(self) -> str:
        """Return the score in one line."""
        if not self.n:
            return f"{self.split}: no score; {describe_missing(self.missing)}"
        low, high = self.ci95
        part = "" if self.n == self.of else f" of {self.of}"
        times = f", each {self.repeats} times" if self.repeats > 1 else ""
        rows = "row" if self.n == 1 and not part else "rows"
        noun = "row" if self.repeats == 1 else "answer"
        missing = f"; {describe_missing(self.missing, noun)}" if self.missing else ""
        if grouped := self.grouped:
            times += f"; the interval is of {grouped['score']:.3f}, the mean over {grouped['n']} clusters of rows"
        return f"{self.split}: {self.score:.3f} [{low:.3f}, {high:.3f}] on {self.n}{part} {rows}{times}{missing}"

    def summary(self) -> list[str]:
        """Return `lines` for a terminal: of the warnings those that came after the start, and where the others are."""
        return self.lines([warning for warning in self.warnings if warning not in self.warned])

    def lines(self, warnings: Sequence[str] | None = None) -> list[str]:
        """Return the report as lines of plain text. warnings: those to give in full, by default all."""
        ended = "ended at the budget's ceiling" if self.status == "budget" else self.status
        out = [f"workbench run {self.run}: eval {ended}"]
        if self.n or self.missing:
            out.append(self.headline())
        out += [f"  {name}: {self.describe_further(name)}" for name in self.scores]
        if self.variance is not None:
            within, between = (math.sqrt(self.variance[k]) for k in ("within", "between"))
            out.append(f"Spread (standard deviation): {within:.3f} within a row, {between:.3f} between rows")
        if self.error:
            out.append(f"Error: {self.error}")
        if failed := {kind: n for kind, n in self.failures.items() if kind not in self.missing}:
            out.append("Failed, scored 0: " + ", ".join(f"{kind} {n}" for kind, n in failed.items()))
        out += [f"Warning: {warning}" for warning in (self.warnings if warnings is None else warnings)]
        cost, spent = self.cost, self.spent
        usd = "unpriced" if self.unpriced else f"${per_1000(cost['usd'])} per 1,000 rows"
        seconds = f"{cost['latency']:.2f} s of models"  # a program around them takes more
        out += [
            f"Per row: {cost['tokens']:.0f} tokens, {cost['calls']:.1f} calls, {seconds}; {usd}",
            f"Spent: {spent['calls']} calls ({spent['cached']} more answered from the journal), {describe_usd(spent)}, "
            f"{spent['seconds']:.1f} s{describe_reused(spent)}{describe_lost(spent)}",
        ]
        out += [more_line(self.warnings, self.run, self.database)] if warnings is not None and self.warnings else []
        again = sum(n for kind, n in self.missing.items() if FailureKind(kind).infrastructure)
        more = f" --budget-{self.ceiling} N" if self.ceiling and not self.complete else ""
        resume = typed(f"workbench resume {self.run}{more}", self.database)
        if not self.complete:
            larger = f" (N: more {self.ceiling} than now)" if more else ""
            return [*out, f"Nothing paid for is lost. Resume it{larger} with: {resume}"]
        if again:
            out.append(f"For {again} of them a server, network or key failed. Ask again for these with: {resume}")
        return [*out, f"Rows that score below 1: {typed(f'workbench show {self.run} --failures', self.database)}"]

    def describe_further(self, name: str) -> str:
        """Return the mean by a further metric, with the number of results that it could not score."""
        mean, unscored = self.scores.get(name), self.unscored.get(name)
        return ("-" if mean is None else f"{mean:.3f}") + (f" ({unscored} not scored)" if unscored else "")

    def to_pandas(self) -> Any:
        """Return the rows as a pandas DataFrame, with a column for each field of the rows.

        More columns: id, split, repeat, score, failure, message, feedback, the scores of further metrics, and
        predictions as `prediction.FIELD`. A field of the rows with one of these names becomes `row.FIELD`. Raises
        ImportError without pandas.
        """
        import pandas

        with ReadOnlyStore(self.database) as store:
            row = store.find_run(self.run)
            found = read_rows(store, row, read_report(row))
        results = [
            {"id": r["example"], "split": r["split"], "repeat": r["replica"]}
            | {f"prediction.{name}": value for name, value in (r["prediction"] or {}).items()}
            | {name: r[name] for name in ("score", "failure", "message", "feedback")}
            | {_apart(name, _FOUND, "scores."): value for name, value in (r["scores"] or {}).items()}
            for r in found
        ]
        taken, fields = {name for result in results for name in result}, {f for r in found for f in r["fields"] or ()}
        columns = {name: _apart(name, taken, "row.", fields) for name in fields}
        return pandas.DataFrame(
            dict.fromkeys(_FOUND[:3]) | {columns[name]: value for name, value in (r["fields"] or {}).items()} | result
            for r, result in zip(found, results, strict=True)
        )

    def to_html(self) -> str:
        """Return the page that `workbench report` writes. Raises PluginError without the plugin that renders it."""
        return page_of(self.run, self.database)

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: the lines of the report."""
        return f"<pre>{html.escape(chr(10).join(self.lines()))}</pre>"


def summarise(
    results: Sequence[Sequence[Result | None]], evaluation: Evaluation, clusters: Sequence[str]
) -> dict[str, Any]:
    """Compute the figures of an EvalReport.

    Args:
        results: by repeat, a result for each row, or None if there is none yet.
        evaluation: all results of all repeats.
        clusters: a key for each row. Rows with equal keys are one unit of the interval, as in the proof.
    """
    by_row = [[r for r in row if r is not None] for row in zip(*results, strict=True)]
    means, units = list[float](), defaultdict[str, list[float]](list)
    for key, row in zip(clusters, by_row, strict=True):
        if (mean := mean_score(row)) is not None:
            means.append(mean)
            units[key].append(means[-1])
    further = defaultdict[str, list[float | None]](list)
    for result in evaluation.results:
        for name, value in result.scores.items():
            further[name].append(value)
    known = {name: [value for value in values if value is not None] for name, values in further.items()}
    score, grouped = math.fsum(means) / max(1, len(means)), [math.fsum(unit) / len(unit) for unit in units.values()]
    middle = math.fsum(grouped) / max(1, len(grouped))
    return {
        "n": len(means),
        "of": len(by_row),
        "score": score,
        "ci95": interval(grouped) if means else (0.0, 0.0),
        "grouped": {"n": len(grouped), "score": middle} if abs(score - middle) >= 0.0005 else None,
        "scores": {name: math.fsum(v) / len(v) if v else None for name, v in known.items()},
        "unscored": {name: lost for name, values in further.items() if (lost := values.count(None))},
        "failures": evaluation.failures,
        "missing": evaluation.missing,
        "cost": {name: value for name, value in evaluation.objectives.items() if name != "score"},
        "variance": _variance(by_row) if len(results) > 1 else None,
    }


def _variance(by_row: Sequence[Sequence[Result]]) -> dict[str, float] | None:
    """Return the variance of the score within rows and between rows, by the analysis of variance with random effects.
    In an evaluation that was cut short, rows with fewer scores than the others are left out."""
    scored = [[r.score for r in row if r.score is not None] for row in by_row]
    whole = max(map(len, scored), default=0)
    rows = [row for row in scored if len(row) == whole]
    if whole < 2 or len(rows) < 2:
        return None
    means = [math.fsum(row) / whole for row in rows]
    grand = math.fsum(means) / len(means)
    within = math.fsum((s - m) ** 2 for row, m in zip(rows, means, strict=True) for s in row) / (
        len(rows) * (whole - 1)
    )
    of_means = math.fsum((m - grand) ** 2 for m in means) / (len(rows) - 1)
    return {"within": within, "between": max(0.0, of_means - within / whole)}


def stored_report(report: Mapping[str, Any]) -> EvalReport:
    """Return the report of a stored evaluation."""
    known = {name: report[name] for name in EvalReport.__dataclass_fields__ if name in report}
    return EvalReport(**{**known, "ci95": tuple(report["ci95"])})


def _apart(name: str, taken: Collection[str], prefix: str, others: Collection[str] = ()) -> str:
    """Return the name; if it is taken, add the prefix until it is not in `others` either."""
    if name not in taken:
        return name
    return next(found for n in itertools.count(1) if (found := prefix * n + name) not in {*taken, *others})
