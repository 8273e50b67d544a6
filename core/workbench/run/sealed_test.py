"""The sealed test of a run: the part of the budget that is reserved for it, and the test itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from workbench.errors import BudgetSpent
from workbench.ledger import Ledger
from workbench.proof import order_sides, record_test
from workbench.run.stored_scores import RowKeys, store_evaluation
from workbench.study import Evaluation, Evaluator, Progress, Result, estimate_calls, pick_winner
from workbench.task import Example, Task, describe_rows
from workbench.workflow import Workflow

#: The largest share of a ceiling that is reserved.
LARGEST_RESERVE = 0.5

#: Safety factors on the cost of val rows, since sealed rows may cost more. The number of calls hardly varies, tokens
#: and dollars vary more, and minutes vary most, with the speed of the server.
MORE_CALLS, MORE_TOKENS, MORE_MINUTES = 1.02, 1.1, 1.5


def reserve_for_proof(task: Task, evaluator: Evaluator, progress: Progress, ledger: Ledger) -> None:
    """Reserve the estimated cost of testing the baseline and the best candidate, at the retry rate so far."""
    n, budget, judging, sides = len(task.dataset.test), ledger.budget, evaluator.judging, task.spec.tested_sides
    base = progress.complete.get(task.workflow.hash)
    best = progress.best or base
    calls, tokens, usd, minutes = float(sides) * n * judging.calls, math.inf, math.inf, math.inf
    if base is None or best is None:
        calls += sides * n * evaluator.program(task.workflow).max_calls
    else:
        spent = ledger.spent
        waste = spent.calls / max(1, spent.calls - ledger.retries)
        # While the baseline is best, it counts for all sides; a later winner replaces this reserve. What is picked by
        # a cost may be cheap in dollars and take more calls than the best.
        winner = pick_winner(progress.eligible, task.spec)
        runs = [base, winner, best][:sides]
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
    task: Task,
    evaluator: Evaluator,
    sides: Sequence[Workflow],
    row_keys: RowKeys,
    on_pair: Callable[[int, int], None],
    shuffled: bool = True,
) -> list[tuple[Result, ...]]:
    """Run each side on the sealed rows, row by row, until the budget ends, and store what came out.

    On each row the sides run one after the other, in an order of its own.

    Args:
        task: the file's.
        evaluator: that of the run.
        sides: the baseline, the winner and, where there are targets, the best on val. What is on several sides runs
            once.
        row_keys: of the task, for what is stored.
        on_pair: called with the number of rows that are done, and that of all rows.
        shuffled: in a random order; in that of `sides` for a run that a version before began so.

    Returns:
        a result for each side, of the rows that were tested.
    """
    baseline, test, seed = task.workflow, task.dataset.test.open(), task.spec.seed
    programs = {side.hash: evaluator.program(side) for side in sides}
    rows: list[tuple[Result, ...] | None] = [None] * len(test)

    async def run_row(index: int) -> None:
        example: Example = test[index]
        found: dict[str, Result] = {}
        for turn, key in enumerate(order_sides(seed, example, [*programs]) if shuffled else programs, start=1):
            result = await evaluator.run_one(programs[key], example, traces=True, split="test")
            found[key] = replace(result, turn=turn if shuffled and len(programs) > 1 else 0)
        rows[index] = tuple(found[side.hash] for side in sides)
        on_pair(sum(row is not None for row in rows), len(test))

    with suppress(BudgetSpent):
        await evaluator.gather(len(test), run_row)
    done = [row for row in rows if row is not None]
    ledger = evaluator.runtime.ledger
    for side, workflow in enumerate(sides):
        if workflow in sides[:side]:
            continue
        results = tuple(row[side] for row in done)
        evaluation = Evaluation(workflow, "test", results, len(done) == len(test))
        await store_evaluation(ledger.store, ledger.run_id, evaluation, row_keys)
    if sides[1] != baseline:
        described = describe_rows([row[0].example for row in done], task.inputs)
        record_test(ledger.store, ledger.run_id, sides[1].hash, described)
    return done
