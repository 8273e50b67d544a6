"""Whether a run can end with a proof: its budget pays for one, and there are sealed rows."""

from __future__ import annotations

from workbench.errors import SpecError
from workbench.proof import few_rows_warning
from workbench.run.call_costs import format_usd, models_of, prompt_tokens
from workbench.task import Task
from workbench.workflow import NodeKind

#: A token stands for at most so many times the bytes that `estimate_tokens`, which is high, takes it for.
LEAST_TOKENS = 0.5


def budget_warnings(task: Task) -> list[str]:
    """A warning if the budget does not cover the worst case of baseline and sealed test, at one judge call per row."""
    calls = task.workflow.max_calls + bool(getattr(task.metric, "needs_lm", False))
    needed = calls * (len(task.dataset.val) + task.spec.tested_sides * len(task.dataset.test))
    sealed = len({task.cluster_of(row) for row in task.dataset.test.open()})
    most, warned = task.spec.budget.calls, few_rows_warning(task.spec.targets, sealed)
    if (lacking := find_impossible_proof(task)) is not None:
        return [f"{lacking.message}; `workbench optimize` refuses that without --allow-unproved", *warned]
    if most is None or most >= needed:
        return warned
    return [
        *warned,
        f"the budget of {most} calls may be too small: evaluating the baseline and testing it and a winner on all "
        f"sealed rows may take {needed}. Raise budget.calls, or use fewer rows.",
    ]


def find_impossible_proof(task: Task) -> SpecError | None:
    """The error of a file without sealed rows, or of a budget that ends before baseline and sealed test could, however
    little these take; else None.

    The least is one call for each node that calls a model, and one for a row of the winner; of tokens and dollars, the
    inputs alone.
    """
    if not len(task.dataset.test):
        return SpecError(
            "there is no row to prove a gain on: of the test rows none is left that is not in train or val, too",
            hint="Name rows of test that are in no other split, or add --allow-unproved to search all the same.",
            path=("data",),
        )
    least = sum(map(_least_calls, task.workflow.enabled_nodes.values()))
    val, test, budget = len(task.dataset.val), len(task.dataset.test), task.spec.budget
    calls = least * (val + test) + min(1, least) * test
    inputs = LEAST_TOKENS * prompt_tokens(task, task.dataset.val[:20]) * calls
    needed: dict[str, float] = {"calls": calls, "tokens": inputs}
    if budget.usd is not None and calls:
        prices = [model.usd(inputs, 0) for model in models_of(task)]
        needed["usd"] = 0.0 if None in prices or not prices else min(price for price in prices if price is not None)
    for what, least_needed in needed.items():
        ceiling = getattr(budget, what)
        if ceiling is not None and least_needed > ceiling:
            amounts = [format_usd(a) if what == "usd" else f"{a:.0f} {what}" for a in (ceiling, least_needed)]
            return SpecError(
                f"the budget of {amounts[0]} cannot pay for the proof: the baseline on val, and the sealed test of it "
                f"and a winner, take at least {amounts[1]}",
                hint=f"Raise budget.{what}, use fewer rows, or add --allow-unproved to search all the same.",
                path=("budget", what),
            )
    return None


def _least_calls(node: NodeKind) -> int:
    """The fewest calls of a node on one example, as far as that shows from outside."""
    if not node.max_calls:
        return 0
    return min(map(_least_calls, node.children().values()), default=1)
