"""Reruns of the old workflow on tested rows, as many as the winner's cost pays for."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from workbench.errors import BudgetSpent, LMError, ServerDead
from workbench.proof import Alike, Rerun, alike_by, any_agree, compare_reruns, count_runs
from workbench.runtime import Draw
from workbench.study import Evaluator, Result
from workbench.task import Task, highest_score

#: Temperature of new answers if the file sets none, as for `samples` of a `predict` node.
TEMPERATURE = 0.7


async def rerun_baseline(
    task: Task, evaluator: Evaluator, rows: Sequence[tuple[Result, ...]]
) -> tuple[Rerun | None, list[str]]:
    """Run the baseline again on tested rows, as often as the winner's cost pays for, and compare the winner with its
    vote.

    Takes what the budget leaves. The first run is the tested one; the others use the file's temperature, or TEMPERATURE
    if it has none.

    Args:
        rows: for each row, a result of the baseline and one of the winner, as `run_sealed_test` returns them.

    Returns:
        The comparison, or None if the winner costs less than twice as much or there is nothing to compare; and warnings
        with the reasons.
    """
    runs, unit = count_runs([(row[0], row[1]) for row in rows])
    if runs < 2:
        return None, []
    before, warnings = evaluator.runtime.ledger.spent.calls, list[str]()
    found = await _run_again(task, evaluator, [row[0] for row in rows], runs, warnings)
    done, alike = sorted(found), alike_by(task.metric)
    reruns = [found[index] for index in done]
    drawn = evaluator.runtime.ledger.spent.calls > before
    if (why := _why_no_vote(reruns, drawn, alike)) is not None:
        return None, warnings or [why]
    if len(done) < len(rows):
        warnings.append(f"the rerun of the old workflow compares {len(done)} of {len(rows)} rows: the budget ended")
    winners, highest = [rows[index][1] for index in done], highest_score(task.metric)
    clusters = [task.cluster_of(one.example) for one in winners]
    return compare_reruns(reruns, winners, unit, alike=alike, clusters=clusters, highest=highest), warnings


async def _run_again(
    task: Task, evaluator: Evaluator, baselines: Sequence[Result], runs: int, warnings: list[str]
) -> dict[int, list[Result]]:
    """Return the results of all runs of the old workflow, by row position, for as many rows as the budget pays for."""
    named, ledger = task.spec.lm.temperature is not None, evaluator.runtime.ledger
    drawn = task.workflow if named else task.workflow.patched({"lm.temperature": TEMPERATURE})
    program, found, most = evaluator.program(drawn), dict[int, list[Result]](), len(baselines)
    for what in ("calls", "tokens", "usd"):
        mean = sum(getattr(one, what) for one in baselines) / len(baselines)
        if each := (runs - 1) * (mean + getattr(evaluator.judging, what)):
            most = min(most, int(min(ledger.remaining(what) / each, sys.maxsize)))

    async def run_row(index: int) -> None:
        example = baselines[index].example
        again = [await evaluator.run_one(program, example, Draw(replica), split="test") for replica in range(1, runs)]
        found[index] = [baselines[index], *again]

    try:
        await evaluator.gather(most, run_row)
    except BudgetSpent:
        pass
    except (LMError, ServerDead) as error:  # the test is already paid for, so report it
        warnings.append(f"the rerun ended early: {error}")
    return found


def _why_no_vote(reruns: Sequence[Sequence[Result]], drawn: bool, alike: Alike) -> str | None:
    if not reruns:
        return "the budget leaves nothing for the rerun of the old workflow"
    if not drawn:
        return "the old workflow draws nothing (its temperature is 0): run again, it answers alike"
    if not any(one.failure is None for runs in reruns for one in runs[1:]):
        return f"the old workflow, run again, fails: {reruns[0][1].message}"
    if not any_agree(reruns, alike):
        return "no two answers of the old workflow to a row are alike, so there is no vote"
    return None
