"""Estimates before a run: calls, tokens, dollars and minutes; the smallest gain that its test can show; and whether its
budget can pay for a proof."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.base.distribution import how_to_get
from workbench.errors import PluginError, SpecError, StoreError
from workbench.ledger import no_price_line
from workbench.plugins import plugins
from workbench.proof import (
    MOST_RUNS,
    TESTED_SECTIONS,
    find_floor,
    find_tests_of,
    level_after,
    sealed_runs,
    smallest_binary_gain,
    usable_sources,
)
from workbench.run.preflight import explain_choice, lm_warnings, search_warnings
from workbench.runtime import (
    Cost,
    Model,
    dearest_role_usd,
    dearest_usd,
    format_usd,
    make_executor,
    models_of,
    prompt_tokens,
    row_cost,
    searched_row,
)
from workbench.spec import BudgetSpec
from workbench.store import ReadOnlyStore, read_usual_row
from workbench.study import Optimizer
from workbench.task import Task
from workbench.workflow import NodeKind

#: Real tokens are at least this fraction of what `estimate_tokens`, which is high, counts.
LEAST_TOKENS = 0.5


def estimate(
    task: Task,
    optimizers: Sequence[tuple[str, Optimizer]] = (),
    database: str | Path | None = None,
    seconds_per_call: float | None = None,
) -> dict[str, Any]:
    """Estimate the cost of a run, and the smallest gain that its test can show.

    Args:
        optimizers: (name, optimizer), as `run.prepare` returns them.
        database: a run database. Earlier calls of the same models there give output tokens and seconds.
        seconds_per_call: replaces these seconds.

    In the result, `baseline`, `search`, `proof` and `total` have the fields of `Cost`. `most_calls` bounds the whole
    run; it is None if an optimizer does not bound its calls, or the metric calls a model. `candidates`: evaluations on
    val that the budget leaves for the search. `lines`: the estimate as text.
    """
    data, calls, budget = task.dataset, task.workflow.max_calls, task.spec.budget
    models, sides = models_of(task, database), sealed_runs(task)
    row = row_cost(task, models, seconds_per_call)
    used, measured = _usual_share(task, database)
    candidate = searched_row(task, row, database)
    baseline, one = (each.rows(len(data.val), used) for each in (row, candidate))
    proof = row.rows(len(data.test), used) + candidate.rows((sides - 1) * len(data.test), used)
    search = _bounds(task, optimizers)
    known = sum(most for _, most in search if most is not None)
    bounded = bool(search) and all(most is not None for _, most in search)
    worst = calls * len(data.val), calls * sides * len(data.test)
    total = sum(worst) + known + _rerun_calls(task, row) if bounded else None
    candidates = _candidates(task, baseline, one, proof, 0 if bounded else known)
    searching = _search_cost(one, candidate.rows(known / max(1, calls), used), bounded, candidates)
    smallest, shown = _smallest_gain(task)
    parts = _parts(budget, baseline, *_at_the_dearest(task, searching, proof, used))
    lines = [
        *([] if task.spec.optimize or not optimizers else [explain_choice(task, [name for name, _ in optimizers])]),
        f"At most {calls} call(s) per example{measured}, {_call_text(row, calls, models)}.",
        f"Baseline on val: {parts['baseline']}.",
        f"Sealed test of baseline{', best candidate' * bool(task.spec.targets)} and winner: {parts['proof']}.",
        *_search_lines(task, search, known, total, baseline, one, proof),
        *([f"In all, search included: {parts['total']}."] if parts["total"] else []),
        *_unknown_lines(task, row, models, database),
        *_worker_lines(task, parts["total"]),
        *(f"Warning: {line}" for line in (*budget_warnings(task, used), *search_warnings(task, optimizers))),
        *(f"Warning: {line}" for line in lm_warnings(task)),
        *_proof_lines(task, row),
        shown,
        *(line for node in task.workflow.walk() for line in node.warnings()),
    ]
    return {
        "calls_per_example": calls,
        "baseline_calls": worst[0],
        "proof_calls": worst[1],
        "input_tokens": round(row.input_tokens / max(1, calls)),
        **{name: None if part is None else part.as_dict() for name, part in parts.items()},
        "candidates": candidates,
        "optimizer_calls": [{"optimizer": name, "calls": most} for name, most in search],
        "most_calls": total if total is None or budget.calls is None else min(total, budget.calls),
        "smallest_gain": smallest,
        "lines": lines,
    }


def _usual_share(task: Task, database: str | Path | None) -> tuple[float, str]:
    """Return the share of its most calls that a row of this workflow took in an earlier run, and words on it."""
    most = task.workflow.max_calls
    with suppress(StoreError):
        store = ReadOnlyStore(database) if database is not None and most else None
        if store is not None:
            with closing(store):
                found = read_usual_row(store, task.workflow.hash)
            if found is not None and 0 < found[0] < most:
                return found[0] / most, f" ({found[0]:.2g} measured on {found[1]} rows of run {found[2]})"
    return 1.0, ""


def _proof_lines(task: Task, row: Cost) -> list[str]:
    """Return lines next to the proof: the score reached without a model, and the most calls of the rerun."""
    floor, failed = find_floor(task, task.dataset.val)
    again = _rerun_calls(task, row)
    lines = [f"The rerun takes what the budget leaves, up to {again} calls."] if again else []
    if floor is not None:
        return [*lines, f"{floor.describe('val')}."]
    return lines + [f"Warning: {line}" for line in failed]


def _rerun_calls(task: Task, row: Cost) -> int:
    return row.times((MOST_RUNS - 1) * len(task.dataset.test)).calls if task.spec.proof.rerun else 0


def _search_cost(one: Cost, known: Cost, bounded: bool, candidates: int | None) -> Cost | None:
    """Estimate the cost of the search: the bound of its optimizers, or the share of the ceilings left for candidates if
    that is less. one: the cost of a candidate on val."""
    if candidates is None or (bounded and candidates * one.calls >= known.calls):
        return known if bounded else None
    return one.times(candidates) + (Cost() if bounded else known)


def _worker_lines(task: Task, total: Cost | None) -> Iterator[str]:
    executor = make_executor(task.spec.executor)
    if executor is not None:
        yield from executor.describe(task, total.minutes if total else None)


def _parts(budget: BudgetSpec, baseline: Cost, searching: Cost | None, proof: Cost) -> dict[str, Cost | None]:
    """Return the parts of a run and their sum, each cut at the ceilings."""
    whole = None if searching is None else baseline + proof + searching
    parts = {"baseline": baseline, "search": searching, "proof": proof, "total": whole}
    return {name: None if part is None else part.within(budget) for name, part in parts.items()}


def _at_the_dearest(task: Task, searching: Cost | None, proof: Cost, used: float) -> tuple[Cost | None, Cost]:
    """Return search and proof with the most dollars that a candidate of the space, or a searching role, may take. used:
    the share of the most calls that they count."""
    most, role, calls = dearest_usd(task), dearest_role_usd(task), max(1, task.workflow.max_calls)
    sides = sealed_runs(task)
    if most is None or proof.most_usd is None:
        dearest = None
    else:
        dearest = proof.most_usd / sides + most * (sides - 1) * len(task.dataset.test)
    if searching is not None:
        each = None if most is None or role is None else max(most / calls, role)
        searching = replace(searching, most_usd=None if each is None else each * searching.calls / used)
    return searching, replace(proof, most_usd=dearest)


def _bounds(task: Task, optimizers: Sequence[tuple[str, Optimizer]]) -> list[tuple[str, int | None]]:
    """Return the most calls of each optimizer in all rounds; None if its settings do not bound them, or if the metric's
    calls are added."""
    data, asks = task.dataset, getattr(task.metric, "needs_lm", False)
    found = [(name, made.most_calls(task.workflow, data.train, data.val)) for name, made in optimizers]
    return [(name, None if most is None or asks else task.spec.rounds * most) for name, most in found]


def _search_lines(
    task: Task,
    search: Sequence[tuple[str, int | None]],
    known: int,
    total: int | None,
    baseline: Cost,
    one: Cost,
    proof: Cost,
) -> Iterator[str]:
    rounds, budget = task.spec.rounds, task.spec.budget
    if getattr(task.metric, "needs_lm", False):
        yield "The metric calls a model, too; its calls are extra."
    in_rounds = f" in {rounds} rounds" if rounds > 1 else ""
    yield from (f"{name}: at most {most} calls{in_rounds}." for name, most in search if most is not None)
    if total is not None:
        ceiling = (
            "" if budget.calls is None or total <= budget.calls else f" by these, and {budget.calls} by the budget"
        )
        yield f"Total: at most {total} calls, without retries{ceiling}."
    if budget.calls is not None:
        rest = max(0, budget.calls - baseline.calls - proof.calls)
        if known > rest:
            yield f"Warning: of {budget.calls} calls, {rest} are left for search, which may take {known}."
        elif total is None:
            rest -= known
            yield f"Of {budget.calls} calls, {rest} are left for search: {_room(rest / max(1, baseline.calls))}."
    for what, left, each in _other_ceilings(task, baseline, one, proof):
        text = {"tokens": f"{left:.0f} tokens", "usd": format_usd(left), "minutes": f"{left:.1f} minutes"}[what]
        ceiling = getattr(budget, what)
        whole = {"tokens": f"{ceiling} tokens", "usd": f"${ceiling:g}", "minutes": f"{ceiling:g} minutes"}[what]
        some = f": {_room(left / each)}" if each else ""
        room = "; a call is sent only if its worst case fits, and the proof is reserved"
        yield f"Of {whole}, about {text} are left for search{some}{room if left < each else ''}."


def _other_ceilings(task: Task, baseline: Cost, one: Cost, proof: Cost) -> Iterator[tuple[str, float, float]]:
    """Yield (what, left for search, taken by a candidate) for each ceiling other than calls, if its use is known. The
    last calls of search and of proof must fit at their maximum."""
    tokens = baseline.input_tokens + baseline.most_output_tokens
    used = (("tokens", baseline.tokens, tokens, one.tokens, proof.tokens),)
    used += (("usd", baseline.likely_usd, baseline.most_usd, one.likely_usd, proof.likely_usd),)
    used += (("minutes", baseline.minutes, baseline.minutes, one.minutes, proof.minutes),)
    for what, base, most, each, test in used:
        ceiling = getattr(task.spec.budget, what)
        if ceiling is not None and base is not None and each is not None and test is not None:
            unused = 0.0 if most is None else 2 * (most - base) / max(1, baseline.calls)
            yield what, max(0.0, ceiling - base - test - unused), each


def _room(candidates: float) -> str:
    if count := int(candidates):
        return f"about {count} candidate{'s' * (count > 1)}"
    return "less than one candidate takes, so the proof may have fewer rows"


def _candidates(task: Task, baseline: Cost, one: Cost, proof: Cost, known: int) -> int | None:
    """Compute the number of candidates that the ceilings leave for search; None without a ceiling whose use is
    known."""
    found = [left / each for _, left, each in _other_ceilings(task, baseline, one, proof) if each]
    if task.spec.budget.calls is not None and baseline.calls:
        rest = max(0, task.spec.budget.calls - baseline.calls - proof.calls - known)
        found.append(rest / baseline.calls)
    return int(min(found)) if found else None


def _call_text(row: Cost, calls: int, models: Sequence[Model]) -> str:
    each = max(1, calls)
    most = f"at most {row.most_output_tokens / each:.0f} output tokens each"
    text = f"about {row.input_tokens / each:.0f} input tokens and {most}"
    if row.output_tokens is not None and any(model.usual for model in models):
        seen = sum(model.usual.calls for model in models if model.usual)
        text += f" ({row.output_tokens / each:.0f} by {seen} earlier calls)"
    return text


def _unknown_lines(task: Task, row: Cost, models: Sequence[Model], database: str | Path | None) -> Iterator[str]:
    """Yield lines on what is unknown, how to make it known, and what earlier runs used up."""
    every = models_of(task, searched=True, roles=True)
    if unpriced := [model.spec.model for model in every if model.usd(1, 1) is None]:
        yield no_price_line(unpriced)
    if row.minutes is None:
        names = ", ".join(sorted({model.spec.model for model in models if model.seconds(None) is None}))
        where = f" in {database}" if database is not None else ""
        yield f"Duration unknown: no earlier run{where} shows how long a call to {names} takes. Add --seconds-per-call."
    yield from _reuse_lines(task, database)


#: Assumed share of rows whose score changes.
_DISCORDANT = 0.3


def _reuse_lines(task: Task, database: str | Path | None) -> Iterator[str]:
    """Yield the significance level left by earlier tests of the sealed rows, if a database has any."""
    if database is None or not Path(database).is_file() or not len(task.dataset.test):
        return
    with suppress(StoreError):  # `models_of` reports what is wrong with the file
        store = ReadOnlyStore(database)
        try:
            earlier = find_tests_of(store, task)
        finally:
            store.close()
        if not earlier:
            return
        runs = ", ".join(dict.fromkeys(earlier))
        level = level_after(earlier)
        yield f"p must be below {level:.2g} here, since workflows were tested on these rows before (run {runs})."


def _smallest_gain(task: Task) -> tuple[float | None, str]:
    """Return the smallest gain that the test can show, and a line that describes it."""
    test = task.dataset.test
    counted = len({task.cluster_of(row) for row in test.open()})
    gain = smallest_binary_gain(counted, _DISCORDANT)
    smallest = None if gain is None else round(gain, 4)
    can_show = (
        f"the test can show gains of about {smallest:.2f} or more (80% power; smaller ones if fewer rows change)."
        if smallest is not None
        else "the test can show no gain: use more rows."
    )
    clusters = "" if counted == len(test) else f" in {counted} clusters, each of which counts once"
    return smallest, f"With {len(test)} test rows{clusters}, {can_show}"


# Can the run end with a proof?


def budget_warnings(task: Task, used: float = 1.0) -> list[str]:
    """Warn if the budget does not cover baseline and sealed test, at one judge call per row. used: the share of its
    most calls that a row takes."""
    calls = task.workflow.max_calls * used + bool(getattr(task.metric, "needs_lm", False))
    needed = math.ceil(calls * (len(task.dataset.val) + sealed_runs(task) * len(task.dataset.test)))
    sealed = len({task.cluster_of(row) for row in task.dataset.test.open()})
    most = task.spec.budget.calls
    warned = [line for _, source in usable_sources(task.spec) for line in source.warn(task.spec, sealed)]
    kept = [f"no gain can be shown: {node.kept_state}" for node in task.workflow.walk() if node.kept_state is not None]
    warned += dict.fromkeys(kept)
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
    """Return the error of a file that cannot end with a proof; None for others.

    Such a file has too few sealed rows, no plugin that tests its targets or constraints, or a budget that ends before
    baseline and sealed test even at the least cost: one call for each node that calls a model, one for a row of the
    winner; of tokens and dollars, the inputs alone.
    """
    if not len(task.dataset.test):
        return SpecError(
            "there is no row to prove a gain on: all test rows are also in train or val",
            hint="Name rows of test that are in no other split, or add --allow-unproved to search anyway.",
            path=("data",),
        )
    least = next(count for count in itertools.count(1) if smallest_binary_gain(count, _DISCORDANT) is not None)
    if len({task.cluster_of(row) for row in task.dataset.test.open()}) < least:
        return SpecError(
            _smallest_gain(task)[1].partition(":")[0],
            hint=f"It takes {least} at least. Name more rows of test, or add --allow-unproved to search anyway.",
            path=("data",),
        )
    for section in TESTED_SECTIONS:
        if getattr(task.spec, section) is None:
            continue
        try:
            plugins().get("claims", section)
        except PluginError as error:
            missing = section not in plugins().names("claims") and not plugins().set_aside
            return SpecError(
                f"{'no installed plugin' if missing else 'no plugin'} tests `{section}`, so nothing can show that they "
                f"are met{'' if missing else f': {error}'}",
                hint=f"{how_to_get('claims', section)} Or add --allow-unproved to search anyway.",
                path=(section,),
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
                hint=f"Raise budget.{what}, use fewer rows, or add --allow-unproved to search anyway.",
                path=("budget", what),
            )
    return None


def _least_calls(node: NodeKind) -> int:
    """Return the fewest calls of a node on one example, as far as its settings show."""
    if not node.max_calls:
        return 0
    return min(map(_least_calls, node.children().values()), default=1)
