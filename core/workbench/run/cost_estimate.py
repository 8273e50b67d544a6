"""Estimates, before a run: its maximum cost, and the smallest gain that its test can show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.lm import estimate_tokens
from workbench.proof import smallest_binary_gain
from workbench.run.preflight import lm_warnings
from workbench.study import Optimizer
from workbench.task import Example, Task


def estimate(task: Task, optimizers: Sequence[tuple[str, Optimizer]] = ()) -> dict[str, Any]:
    """Worst-case calls, estimated tokens per example, and the smallest gain that the test can show.

    optimizers: (name, optimizer), as `run.prepare` returns them. In the result, `most_calls` bounds the whole run; it
    is None if an optimizer does not bound its calls, or the metric calls a model. `lines` is the estimate as text.
    """
    data, budget = task.dataset, task.spec.budget
    calls = task.workflow.max_calls
    baseline, proof = calls * len(data.val), 2 * calls * len(data.test)
    tokens = _prompt_tokens(task, data.val[:20])
    counted = len({task.cluster_of(row) for row in data.test.open()})
    smallest = detectable_gain(counted)
    can_show = (
        f"the test can show gains of about {smallest:.2f} or more (80% power; smaller ones if fewer rows change)."
        if smallest is not None
        else "the test can show no gain: use more rows for it."
    )
    lines = [
        f"At most {calls} call(s) per example, about {tokens} input tokens each.",
        f"Baseline on val: {baseline} calls. Sealed test of baseline and winner: {proof} calls.",
    ]
    rounds, asks = task.spec.rounds, getattr(task.metric, "needs_lm", False)
    search = [(name, made.most_calls(task.workflow, data.train, data.val)) for name, made in optimizers]
    search = [(name, None if most is None or asks else rounds * most) for name, most in search]
    known = sum(most for _, most in search if most is not None)
    total = baseline + proof + known if optimizers and all(most is not None for _, most in search) else None
    if asks:
        lines.append("The metric calls a model, too; its calls are extra.")
    in_rounds = f" in {rounds} rounds" if rounds > 1 else ""
    lines += [f"{name}: at most {most} calls{in_rounds}." for name, most in search if most is not None]
    if total is not None:
        lines.append(f"Total: at most {total} calls, without retries.")
    if budget.calls is not None:
        rest = max(0, budget.calls - baseline - proof)
        if known > rest:
            lines.append(f"Warning: of {budget.calls} calls, {rest} are left for search, which may take {known}.")
        elif total is None:
            rest -= known
            lines.append(
                f"Of {budget.calls} calls, {rest} are left for search: about {rest // max(1, baseline)} candidates."
            )
    lines += [f"Warning: {line}" for line in (*budget_warnings(task), *lm_warnings(task))]
    clusters = "" if counted == len(data.test) else f" in {counted} clusters, each of which counts once"
    lines.append(f"With {len(data.test)} test rows{clusters}, {can_show}")
    lines += [line for node in task.workflow.walk() for line in node.warnings()]
    return {
        "calls_per_example": calls,
        "baseline_calls": baseline,
        "proof_calls": proof,
        "input_tokens": tokens,
        "optimizer_calls": [{"optimizer": name, "calls": most} for name, most in search],
        "most_calls": total,
        "smallest_gain": smallest,
        "lines": lines,
    }


def budget_warnings(task: Task) -> list[str]:
    """A warning if the budget does not cover the worst case of baseline and sealed test, at one judge call per row."""
    calls = task.workflow.max_calls + bool(getattr(task.metric, "needs_lm", False))
    needed = calls * (len(task.dataset.val) + 2 * len(task.dataset.test))
    most = task.spec.budget.calls
    if most is None or most >= needed:
        return []
    return [
        f"the budget of {most} calls may be too small: evaluating the baseline and testing it and a winner on all "
        f"sealed rows may take {needed}. Raise budget.calls, or use fewer rows."
    ]


def detectable_gain(n: int, discordant: float = 0.3) -> float | None:
    """The gain in a 0/1 score that the exact paired test at 5% shows with 80% power.

    discordant: the share of rows whose score changes, at least the gain itself. Returns None if n rows can show none.
    """
    gain = smallest_binary_gain(n, discordant)
    return None if gain is None else round(gain, 4)


def _prompt_tokens(task: Task, rows: tuple[Example, ...]) -> int:
    """Mean input tokens of a call, estimated from the rows' inputs: inputs of later nodes are not known yet."""
    system = sum(len(str(t.get("instructions", ""))) for t in task.workflow.nodes.values()) // 3
    texts = [sum(estimate_tokens(({"content": str(row[n])},)) for n in task.inputs) for row in rows]
    return system + (sum(texts) // len(texts) if texts else 0)
