"""What a run will cost at most and what its test can show, before anything is spent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.lm import estimate_tokens
from workbench.proof import smallest_binary_gain
from workbench.run.preflight import lm_warnings
from workbench.study import Optimizer
from workbench.task import Example, Task


def estimate(task: Task, optimizers: Sequence[tuple[str, Optimizer]] = ()) -> dict[str, Any]:
    """Worst-case calls, tokens per example as far as they can be guessed, and the smallest gain that can be shown.

    optimizers: with their names, as `run.prepare` gives them. `most_calls` is of the whole run, None where one of them
    does not say what it takes, or the metric asks a model: how often, it does not say."""
    data, budget = task.dataset, task.spec.budget
    calls = task.workflow.max_calls
    baseline, proof = calls * len(data.val), 2 * calls * len(data.test)
    tokens = _prompt_tokens(task, data.val[:20])
    counted = len({task.cluster_of(row) for row in data.test.open()})
    smallest = detectable_gain(counted)
    can_show = (
        f"gains of about {smallest:.2f} and more can be shown (80% power; fewer rows disagree, smaller gains show)."
        if smallest is not None
        else "no gain can be shown: use more rows for the test."
    )
    lines = [
        f"{calls} call(s) an example at most, about {tokens} input tokens each.",
        f"Baseline on val: {baseline} calls. Sealed test of baseline and winner: {proof} calls.",
    ]
    rounds, asks = task.spec.rounds, getattr(task.metric, "needs_lm", False)
    search = [(name, made.most_calls(task.workflow, data.train, data.val)) for name, made in optimizers]
    search = [(name, None if most is None or asks else rounds * most) for name, most in search]
    known = sum(most for _, most in search if most is not None)
    total = baseline + proof + known if optimizers and all(most is not None for _, most in search) else None
    if asks:
        lines.append("The metric asks a model as well; its calls come on top.")
    in_rounds = f" in {rounds} rounds" if rounds > 1 else ""
    lines += [f"{name}: at most {most} calls{in_rounds}." for name, most in search if most is not None]
    if total is not None:
        lines.append(f"In all at most {total} calls, retries left out.")
    if budget.calls is not None:
        rest = max(0, budget.calls - baseline - proof)
        if known > rest:
            lines.append(f"Warning: of {budget.calls} calls {rest} are left for search, which may take {known}.")
        elif total is None:
            rest -= known
            lines.append(
                f"Of {budget.calls} calls, {rest} are left for search: about {rest // max(1, baseline)} candidates."
            )
    lines += [f"Warning: {line}" for line in (*too_small(task), *lm_warnings(task))]
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


def too_small(task: Task) -> list[str]:
    """A warning where the budget does not pay for the baseline and the whole sealed test, at worst; a judge is taken to
    ask once for a row."""
    calls = task.workflow.max_calls + bool(getattr(task.metric, "needs_lm", False))
    needed = calls * (len(task.dataset.val) + 2 * len(task.dataset.test))
    most = task.spec.budget.calls
    if most is None or most >= needed:
        return []
    return [
        f"the budget of {most} calls may be too small for the baseline and the whole sealed test, which take {needed}."
    ]


def detectable_gain(n: int, discordant: float = 0.3) -> float | None:
    """The gain in a 0/1 score that the exact paired test at 5% shows with 80% power where 30% of the rows change, or
    more where the gain itself is larger; None where so few rows can show none."""
    gain = smallest_binary_gain(n, discordant)
    return None if gain is None else round(gain, 4)


def _prompt_tokens(task: Task, rows: tuple[Example, ...]) -> int:
    """From the texts of the first nodes' inputs; what later nodes read is not known yet."""
    system = sum(len(str(t.get("instructions", ""))) for t in task.workflow.nodes.values()) // 3
    texts = [sum(estimate_tokens(({"content": str(row[n])},)) for n in task.inputs) for row in rows]
    return system + (sum(texts) // len(texts) if texts else 0)
