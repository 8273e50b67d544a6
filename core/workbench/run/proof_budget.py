"""What of a budget is set aside for the sealed test, so that search leaves enough for the proof."""

from __future__ import annotations

import math

from workbench.ledger import Ledger
from workbench.study import Evaluator, Progress, estimate_calls
from workbench.task import Task

#: The proof keeps at most this share of a ceiling from search.
LARGEST_RESERVE = 0.5

#: Both the baseline and the winner are tested.
SIDES = 2

#: Sealed rows may take more than rows of val did. So many times what those took is set aside: few more calls, since
#: their number hardly varies, more tokens and dollars, and most minutes, since the speed of a server varies most.
MORE_CALLS, MORE_TOKENS, MORE_MINUTES = 1.02, 1.1, 1.5


def reserve_for_proof(task: Task, evaluator: Evaluator, progress: Progress, ledger: Ledger) -> None:
    """Set aside what testing baseline and the best so far will take, with the retry rate seen so far."""
    n, budget, judging = len(task.dataset.test), task.spec.budget, evaluator.judging
    base = progress.complete.get(task.workflow.hash)
    best = progress.best or base
    calls, tokens, usd, minutes = float(SIDES) * n * judging.calls, math.inf, math.inf, math.inf
    if base is None or best is None:
        calls += SIDES * n * evaluator.program(task.workflow).max_calls
    else:
        spent = ledger.spent
        waste = spent.calls / max(1, spent.calls - ledger.retries)
        runs = [base, best]  # while the baseline is best, twice: what wins later costs as much, or holds its own
        calls = (calls + sum(estimate_calls(e, n) for e in runs)) * waste * MORE_CALLS
        tokens = sum(e.objectives["tokens"] + judging.tokens for e in runs) * n * waste * MORE_TOKENS
        usd = sum(e.objectives["usd"] + judging.usd for e in runs) * n * waste * MORE_TOKENS
        seconds = sum(e.objectives["latency"] + judging.seconds for e in runs) * n
        minutes = seconds / max(1, min(n, evaluator.concurrency)) / 60 * waste * MORE_MINUTES
    ledger.reserve_for_proof(
        calls=min(calls, (budget.calls or 0) * LARGEST_RESERVE),
        tokens=min(tokens, (budget.tokens or 0) * LARGEST_RESERVE),
        usd=min(usd, (budget.usd or 0) * LARGEST_RESERVE),
        minutes=min(minutes, (budget.minutes or 0) * LARGEST_RESERVE),
    )
