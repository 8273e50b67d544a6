"""Kinds of failure, and what they count for."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of

ATTEMPTS = "tests/ledger/test_attempts.py"
FAILURES = "core/workbench/errors/failures.py"
EVALUATE_TESTS = "tests/study/test_evaluate.py"
FAILED: list[Mutant] = [
    *changes_of(
        FAILURES,
        ATTEMPTS,
        (
            "{FailureKind.RATE_LIMIT, FailureKind.SERVER, FailureKind.CONNECTION}",
            "{FailureKind.RATE_LIMIT, FailureKind.CONNECTION}",
            "a server's fault is not tried again",
        ),
        (
            "{FailureKind.BROKEN, FailureKind.TIMEOUT, FailureKind.BAD_BODY}",
            "{FailureKind.BROKEN, FailureKind.BAD_BODY}",
            "a timeout is not billed",
        ),
    ),
    *changes_of(
        FAILURES,
        "tests/ledger/test_dead_server.py",
        ("return self in _RETRYABLE or self is FailureKind.PROVIDER", "return False", "no server is ever dead"),
    ),
    *changes_of(
        FAILURES,
        EVALUATE_TESTS,
        (
            "return self in _RETRYABLE or self in (FailureKind.PROVIDER, FailureKind.AUTH)",
            "return False",
            "failures of the infrastructure count as wrong answers",
        ),
    ),
    *changes_of(
        "core/workbench/study/evaluate.py",
        EVALUATE_TESTS,
        (
            "score = None if FailureKind(outcome.failure).infrastructure else 0.0",
            "score = 0.0",
            "a timeout counts as a wrong answer in the proof",
        ),
        ("score = None if kind.infrastructure else 0.0", "score = 0.0", "a judge's timeout counts as a wrong answer"),
        (
            "kind = error.kind if isinstance(error, LMError | NodeError) else FailureKind.METRIC",
            "kind = FailureKind.METRIC",
            "a judge that fails is a metric's bug",
        ),
        (
            "raise next((e for e in stop if not isinstance(e, BudgetSpent)), stop[0])",
            "raise stop[0]",
            "a real error hides behind a spent budget",
        ),
        (
            "return Evaluation(workflow, split, tuple(results), False, draw.replica)",
            "return Evaluation(workflow, split, tuple(results), True, draw.replica)",
            "a candidate that was raced out counts as whole",
        ),
    ),
]
