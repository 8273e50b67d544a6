"""The sealed test of a run, and the part of the budget reserved for it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from workbench.errors import BudgetSpent
from workbench.ledger import Ledger, price_of
from workbench.proof import find_perturbations, order_sides, record_test, sealed_runs
from workbench.run.expected_cost import MIN_TOKENS
from workbench.run.proof_size import Outlook, plan_test_size
from workbench.run.stored_scores import RowKeys, store_evaluation
from workbench.runtime import Runtime, dearest_call
from workbench.spec import LMSpec
from workbench.study import Evaluation, Evaluator, PerturbedRows, Progress, Result, estimate_calls, pick_winner
from workbench.task import Example, Task, describe_rows
from workbench.workflow import Workflow

#: Largest share of a ceiling to reserve if baseline and proof cost more than the ceiling, or the winner more than the
#: baseline. Without this limit nothing would be left for the search.
LARGEST_RESERVE = 0.5

#: Safety factors on the cost of val rows, since sealed rows may cost more. The number of calls hardly varies, tokens
#: and dollars vary more, and minutes vary most, with the speed of the server.
MORE = {"calls": 1.02, "tokens": 1.1, "usd": 1.1, "minutes": 1.5}

#: Costs of concurrent rows that add up; their minutes pass at the same time.
_ADDED_UP = ("calls", "tokens", "usd")


def reserve_for_proof(task: Task, evaluator: Evaluator, progress: Progress, ledger: Ledger) -> None:
    """Reserve the estimated cost of testing the baseline and the best candidate, at the retry rate so far.

    If the best score wins, the reserve covers the number of rows that makes a proved gain most likely
    (`plan_test_size`), and the search gets the rest. If costs decide, too, the whole test of a winner no more expensive
    than the baseline is reserved, if it fits.
    """
    n, judging, sides = len(task.dataset.test), evaluator.judging, task.spec.tested_sides
    n *= sealed_runs(task) // sides
    base = progress.complete.get(task.workflow.hash)
    best = progress.best or base
    if base is None or best is None:
        calls = sides * n * (judging.calls + evaluator.program(task.workflow).max_calls)
        largest = {w: LARGEST_RESERVE * (getattr(ledger.budget, w) or 0) for w in ("calls", "tokens", "usd", "minutes")}
        return ledger.reserve_for_proof(**{**largest, "calls": min(calls, largest["calls"])})
    spent = ledger.spent
    waste = spent.calls / max(1, spent.calls - ledger.retries)
    # While the baseline is best, it stands for all sides; a later winner replaces this reserve. A winner picked by cost
    # may be cheap in dollars and take more calls than the best.
    runs = [base, pick_winner([*progress.complete.values()], task.spec), best][:sides]
    headroom = _headroom(task, {e.workflow for e in runs}, ledger, evaluator.runtime)
    at_once = max(1, min(n, evaluator.concurrency)) * 60

    def cost(e: Evaluation, rows: int) -> dict[str, float]:
        return {
            "calls": rows * judging.calls + estimate_calls(e, rows),
            "tokens": rows * (e.objectives["tokens"] + judging.tokens),
            "usd": rows * (e.objectives["usd"] + judging.usd),
            "minutes": rows * (e.objectives["latency"] + e.queued + judging.seconds) / at_once,
        }

    def test_cost(e: Evaluation) -> dict[str, float]:
        safe = {what: value * MORE[what] for what, value in cost(e, n).items()}
        worst = n * (judging.calls + e.max_calls)
        return {what: waste * value for what, value in {**safe, "calls": min(safe["calls"], worst)}.items()}

    tests, own, own_test = [*map(test_cost, runs)], cost(base, n), test_cost(base)
    val = cost(base, len(task.dataset.val))
    planned, share = task.spec.objectives == ["score"] and not task.spec.targets, 1.0
    if planned:
        ledger.reserve_for_proof()  # nothing yet, so that `remaining` is for search and test together
        left = {what: ledger.remaining(what) - headroom.get(what, 0.0) for what in _ADDED_UP}
        full = {what: sum(test[what] for test in tests) for what in _ADDED_UP}
        found = plan_test_size(n, left, full, val, Outlook.of(base, best, [*progress.complete.values()]))
        planned, share = found > 0, found or 1.0  # 0: not even a small test can be paid for
    reserve = dict[str, float]()
    for what in MORE:
        most = LARGEST_RESERVE * (ceiling := getattr(ledger.budget, what) or 0)
        if val[what] + sides * own[what] <= ceiling:
            most = max(most, min(sides * own_test[what] + headroom.get(what, 0.0), ceiling - val[what]))
        needed = share * sum(test[what] for test in tests) + headroom.get(what, 0.0)
        reserve[what] = needed if planned and what in _ADDED_UP else min(needed, most)
    ledger.reserve_for_proof(**reserve)


def _headroom(task: Task, sides: Collection[Workflow], ledger: Ledger, runtime: Runtime) -> dict[str, float]:
    """Return the tokens and dollars to reserve beyond the expected cost of the sides' most expensive call. Without them
    the last call of the test is not sent."""

    def price(spec: LMSpec, prompt: int, completion: int) -> float:
        return price_of(runtime.pool.get(spec), prompt, completion, None) if ledger.budget.usd is not None else 0.0

    prompt = math.ceil(ledger.largest_prompt.get("task", 0) / MIN_TOKENS)  # estimates are high, and so are reserves
    dearest = [dearest_call(side, task.spec.lm, prompt, price) for side in sides]
    return {what: max(values) for what, values in zip(("tokens", "usd"), zip(*dearest, strict=True), strict=True)}


class _Room:
    """A gate that lets a row of the test begin once the budget pays for it in addition to the rows already begun.
    Otherwise the first sides of many rows could use up the budget, and leave no second side to compare them with."""

    def __init__(self, ledger: Ledger, row: Mapping[str, float], headroom: Mapping[str, float]):
        self._ledger, self._row, self._headroom = ledger, row, headroom
        self._begun, self._ended, self._over = 0, asyncio.Event(), list[Exception]()

    @classmethod
    def of(cls, task: Task, evaluator: Evaluator, progress: Progress, sides: Collection[Workflow]) -> _Room:
        """Make the gate for rows of these sides, at the cost of rows on val."""
        ledger, known = evaluator.runtime.ledger, [e for s in sides if (e := progress.complete.get(s.hash)) is not None]
        times = sealed_runs(task) / task.spec.tested_sides
        row = {w: times * sum(e.objectives[w] + getattr(evaluator.judging, w) for e in known) for w in _ADDED_UP}
        return cls(ledger, row, _headroom(task, sides, ledger, evaluator.runtime))

    async def __aenter__(self) -> None:
        while self._begun and not self._over and not self._pays_for(self._begun + 1):
            self._ended.clear()
            await self._ended.wait()
        if self._over:
            raise self._over[0]
        self._begun += 1

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._begun -= 1
        if isinstance(error, Exception):
            self._over.append(error)
        self._ended.set()

    def _pays_for(self, rows: int) -> bool:
        return all(
            self._ledger.remaining(what) >= rows * each + self._headroom.get(what, 0.0)
            for what, each in self._row.items()
        )


async def run_sealed_test(
    task: Task,
    evaluator: Evaluator,
    progress: Progress,
    sides: Sequence[Workflow],
    row_keys: RowKeys,
    on_pair: Callable[[int, int], None],
) -> list[tuple[Result, ...]]:
    """Run each side on the sealed rows, row by row, until the budget ends, and store the results.

    On each row the sides run one after the other, in a random order for each row. Baseline and winner then also run
    under each perturbation that a source of claims requests.

    Args:
        progress: its evaluations on val give the cost of a row.
        sides: the baseline, the winner and, with targets, the best on val. A workflow on several sides runs once.
        row_keys: the task's, for the stored rows.
        on_pair: called with the number of finished rows and of all rows.

    Returns:
        A result for each side, for each tested row.
    """
    baseline, test, seed = task.workflow, task.dataset.test.open(), task.spec.seed
    programs = {side.hash: evaluator.program(side) for side in sides}
    compared = sides[:2] if sides[1] != baseline else ()  # the same workflow cannot differ under a perturbation
    perturbations = find_perturbations(task)
    perturbed = {side.hash: PerturbedRows(evaluator, side, perturbations) for side in compared}
    rows: list[tuple[Result, ...] | None] = [None] * len(test)
    ledger, room = evaluator.runtime.ledger, _Room.of(task, evaluator, progress, {*sides})

    async def run_row(index: int) -> None:
        example: Example = test[index]
        found: dict[str, Result] = {}
        async with room:
            for turn, key in enumerate(order_sides(seed, example, [*programs]), start=1):
                result = await evaluator.run_one(programs[key], example, traces=True, split="test")
                if key in perturbed:
                    result = await perturbed[key].run(result)
                found[key] = replace(result, turn=turn if len(programs) > 1 else 0)
        rows[index] = tuple(found[side.hash] for side in sides)
        on_pair(sum(row is not None for row in rows), len(test))

    with suppress(BudgetSpent):
        await evaluator.gather(len(test), run_row)
    done = [row for row in rows if row is not None]
    if sides[1] != baseline:  # stored first, so that a kill hides no test of a row
        described = describe_rows([row[0].example for row in done], task.inputs, task.rule)
        record_test(ledger.store, ledger.run_id, sides[1].hash, described)
    for side, workflow in enumerate(sides):
        if workflow in sides[:side]:
            continue
        results = tuple(row[side] for row in done)
        evaluation = Evaluation(workflow, "test", results, len(done) == len(test))
        await store_evaluation(ledger.store, ledger.run_id, evaluation, row_keys)
    return done
