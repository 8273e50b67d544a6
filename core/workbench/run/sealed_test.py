"""The sealed test of a run: the part of the budget that is reserved for it, and the test itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress

from workbench.errors import BudgetSpent
from workbench.ledger import Ledger
from workbench.proof import record_test, sealed_row_keys
from workbench.run.stored_scores import RowKeys, store_evaluation
from workbench.study import Evaluation, Evaluator, Progress, Result, estimate_calls
from workbench.task import Example, Task
from workbench.workflow import Workflow

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


async def run_sealed_test(
    task: Task, evaluator: Evaluator, winner: Workflow, row_keys: RowKeys, on_pair: Callable[[int, int], None]
) -> list[tuple[Result, Result]]:
    """Run baseline and winner on the sealed rows, pair by pair, until the budget ends, and store what came out.

    Args:
        task: the file's.
        evaluator: that of the run.
        winner: may be the baseline, which then is both sides.
        row_keys: of the task, for what is stored.
        on_pair: called with the number of pairs that are done, and that of all rows.

    Returns:
        (baseline, winner) of the rows that were tested.
    """
    baseline, test = task.workflow, task.dataset.test.open()
    programs = [evaluator.program(w) for w in (baseline, winner)]
    pairs: list[tuple[Result, Result] | None] = [None] * len(test)

    async def both(index: int) -> None:
        example: Example = test[index]
        first = second = await evaluator.run_one(programs[0], example, traces=True)
        if winner != baseline:
            second = await evaluator.run_one(programs[1], example, traces=True)
        pairs[index] = (first, second)
        on_pair(sum(p is not None for p in pairs), len(test))

    with suppress(BudgetSpent):
        await evaluator.gather(len(test), both)
    done = [p for p in pairs if p is not None]
    ledger = evaluator.runtime.ledger
    sides = ((baseline, 0),) if winner == baseline else ((baseline, 0), (winner, 1))
    for workflow, side in sides:
        results = tuple(p[side] for p in done)
        evaluation = Evaluation(workflow, "test", results, len(done) == len(test))
        await store_evaluation(ledger.store, ledger.run_id, evaluation, row_keys)
    if winner != baseline:
        keys = sealed_row_keys(task, [a.example for a, _ in done])
        record_test(ledger.store, ledger.run_id, winner.hash, keys)
    return done
