"""The outcome of an evaluation: its rows, their scores and costs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from workbench.errors import FailureKind, LMError, count_missing
from workbench.task import Example
from workbench.workflow import Trace, Workflow


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a row: an answer with its score, a failure of the workflow with score 0.0, or no result.

    failure: None, or its kind. score: None if there is no result (`FailureKind.no_result`).
    """

    example: Example
    score: float | None
    failure: str | None = None
    message: str | None = None
    feedback: str | None = None
    prediction: Mapping[str, Any] = field(default_factory=dict[str, Any])
    trace: Trace | None = None
    calls: int = 0
    tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0  # in the requests of its calls
    queued: float = 0.0  # in which its calls waited for a slot, a rate limit or another attempt
    unreadable_calls: int = 0  # tool calls of the model that could not be parsed (`Trace.unreadable_calls`)
    scores: Mapping[str, float | None] = field(default_factory=dict[str, float | None])  # by further metrics
    turn: int = 0  # of a sealed row: the position of this side, from 1, in the order of running; 0 if no other side ran
    perturbed: Mapping[str, Result] = field(default_factory=dict[str, "Result"])  # of the same row, by perturbation
    cached_tokens: int = 0  # the part of `tokens` that the server reported as cached


@dataclass(frozen=True, slots=True)
class RowRun:
    """A run of a workflow on an example, for trackers.

    number: the row number of its calls (`workbench.ledger.CallInfo.row`). result: with the score, unless `scored` is
    False. began, ended: in seconds since 1970.
    """

    number: int
    workflow: Workflow
    split: str
    replica: int
    result: Result
    trace: Trace
    began: float
    ended: float
    scored: bool = True


@dataclass(frozen=True)
class Evaluation:
    """A workflow's results, aligned with the examples; fewer than examples if racing stopped it (complete=False)."""

    workflow: Workflow
    split: str
    results: tuple[Result, ...]
    complete: bool
    replica: int = 0

    @property
    def scores(self) -> list[float]:
        """Return a score per row, for search (`filled_scores`). The proof uses `Result.score` instead."""
        return filled_scores(self.results)

    @cached_property  # a search reads it for each candidate after every new one
    def score(self) -> float:
        """Return the mean over the rows with a result; 0.0 if there are none."""
        return mean_score(self.results) or 0.0

    @cached_property
    def lost(self) -> tuple[int, ...]:
        """Return the positions of the rows without a result."""
        return tuple(place for place, result in enumerate(self.results) if result.score is None)

    @property
    def max_calls(self) -> int:
        """Return the most calls that a row has taken."""
        return max((r.calls for r in self.results), default=0)

    @property
    def failures(self) -> dict[str, int]:
        return dict(Counter(r.failure for r in self.results if r.failure))

    @property
    def missing(self) -> dict[str, int]:
        """Return the number of rows without a result, by kind of failure."""
        return count_missing(self.failures)

    @cached_property
    def objectives(self) -> dict[str, float]:
        """Return means over the rows with a result (over all rows if there are none), and a percentile of the seconds.
        Costs are those of the first payment, so that a cached call costs the same."""
        counted = [r for r in self.results if r.score is not None] or self.results
        n = max(1, len(counted))
        return {
            "score": self.score,
            "usd": sum(r.usd for r in counted) / n,
            "tokens": sum(r.tokens for r in counted) / n,
            "calls": sum(r.calls for r in counted) / n,
            "latency": sum(r.seconds for r in counted) / n,
            "p95_latency": self._percentile95(),
        }

    def _percentile95(self) -> float:
        """Return the seconds of the row at rank ceil(0.95 n). Rows that timed out count as the slowest."""
        seconds = [r.seconds for r in self.results]
        slowest = max(seconds, default=0.0)
        ranked = sorted(slowest if r.failure == FailureKind.TIMEOUT else r.seconds for r in self.results)
        return ranked[math.ceil(0.95 * len(ranked)) - 1] if ranked else 0.0

    @property
    def queued(self) -> float:
        """Return the mean seconds per example spent in our own queue, which `latency` does not include."""
        return sum(r.queued for r in self.results) / max(1, len(self.results))


def score_of(result: Result) -> float:
    """Return the score of a row. Raises ValueError for a row without a result."""
    if result.score is None:
        raise ValueError(f"the row {result.example.handle} has no result ({result.failure}): leave it out")
    return result.score


def mean_score(results: Iterable[Result]) -> float | None:
    """Return the mean score over the rows with a result; None if there are none."""
    scores = [r.score for r in results if r.score is not None]
    return math.fsum(scores) / len(scores) if scores else None


def filled_scores(results: Sequence[Result]) -> list[float]:
    """Return a score for each row. A row without a result gets the mean of the others: this keeps the mean, and favors
    no side of a paired comparison."""
    mean = mean_score(results) or 0.0
    return [mean if r.score is None else r.score for r in results]


def unanswered_error(evaluation: Evaluation) -> LMError | None:
    """Return the error if no row was answered: none has a result, or the server refused each as a bad request."""
    kinds = evaluation.failures
    if (
        not evaluation.results
        or not all(kind == FailureKind.BAD_REQUEST or FailureKind(kind).no_result for kind in kinds)
        or sum(kinds.values()) < len(evaluation.results)
    ):
        return None
    first = evaluation.results[0]
    asked = first.failure not in (FailureKind.DATA, FailureKind.JUDGE)
    said = "was answered" if asked else "has a result"
    return LMError(str(first.failure), f"none of the {len(evaluation.results)} rows {said}: {first.message}")
