"""How much of the budget is reserved for the sealed test."""

from __future__ import annotations

import math

from workbench.ledger import Ledger
from workbench.study import Evaluator, Progress, estimate_calls
from workbench.task import Task

#: The largest share of a ceiling that is reserved.
LARGEST_RESERVE = 0.5

#: Both the baseline and the winner are tested.
SIDES = 2

#: Safety factors on the cost of val rows, since sealed rows may cost more. The number of calls hardly varies, tokens
#: and dollars vary more, and minutes vary most, with the speed of the server.
MORE_CALLS, MORE_TOKENS, MORE_MINUTES = 1.02, 1.1, 1.5


def reserve_for_proof(task: Task, evaluator: Evaluator, progress: Progress, ledger: Ledger) -> None:
    """Reserve the estimated cost of testing the baseline and the best candidate, at the retry rate so far."""
    n, budget, judging = len(task.dataset.test), task.spec.budget, evaluator.judging
    base = progress.complete.get(task.workflow.hash)
    best = progress.best or base
    calls, tokens, usd, minutes = float(SIDES) * n * judging.calls, math.inf, math.inf, math.inf
    if base is None or best is None:
        calls += SIDES * n * evaluator.program(task.workflow).max_calls
    else:
        spent = ledger.spent
        waste = spent.calls / max(1, spent.calls - ledger.retries)
        runs = [base, best]  # while the baseline is best, it counts twice; a later winner replaces this reserve
        calls = (calls + sum(estimate_calls(e, n) for e in runs)) * waste * MORE_CALLS
        tokens = sum(e.objectives["tokens"] + judging.tokens for e in runs) * n * waste * MORE_TOKENS
        usd = sum(e.objectives["usd"] + judging.usd for e in runs) * n * waste * MORE_TOKENS
        seconds = sum(e.objectives["latency"] + e.queued + judging.seconds for e in runs) * n
        minutes = seconds / max(1, min(n, evaluator.concurrency)) / 60 * waste * MORE_MINUTES
    ledger.reserve_for_proof(
        calls=min(calls, (budget.calls or 0) * LARGEST_RESERVE),
        tokens=min(tokens, (budget.tokens or 0) * LARGEST_RESERVE),
        usd=min(usd, (budget.usd or 0) * LARGEST_RESERVE),
        minutes=min(minutes, (budget.minutes or 0) * LARGEST_RESERVE),
    )
