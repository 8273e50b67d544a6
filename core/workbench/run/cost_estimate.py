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
    MAX_RUNS,
    TESTED_SECTIONS,
    find_floor,
    find_tests_of,
    level_after,
    sealed_runs,
    smallest_binary_gain,
    usable_sources,
)
from workbench.run.expected_cost import (
    RESULT,
    Cost,
    Models,
    candidate_cost,
    format_usd,
    largest,
    min_calls,
    row_cost,
)
from workbench.run.preflight import explain_choice, lm_warnings, lms_of, search_warnings
from workbench.run.rehearsal import Rehearsal, rehearse
from workbench.runtime import make_executor
from workbench.store import ReadOnlyStore, read_usual_row
from workbench.study import Optimizer
from workbench.task import Task
from workbench.workflow import called_lms

#: Assumed share of rows whose score changes.
_DISCORDANT = 0.3


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

    In the result, `baseline`, `search`, `proof` and `total` have the fields of `Cost`. `max_calls` bounds the whole
    run; it is None if an optimizer does not bound its calls, or the metric calls a model. `candidates`: evaluations on
    val that the budget leaves for the search. `lines`: the estimate as text.
    """
    plan = _Plan(task, optimizers, database, seconds_per_call)
    return {
        "calls_per_example": plan.calls,
        "baseline_calls": plan.calls * len(task.dataset.val),
        "proof_calls": plan.proof_calls,
        "input_tokens": round(plan.row.input_tokens / max(1, plan.calls)),
        **{name: cost and cost.as_dict() for name, cost in plan.parts.items()},
        "candidates": plan.candidates,
        "optimizer_calls": [{"optimizer": name, "calls": most} for name, most in plan.search],
        "max_calls": plan.total and min(plan.total, task.spec.budget.calls or plan.total),
        "smallest_gain": _smallest_gain(task)[0],
        "lines": [*plan.lines()],
    }


class _Plan:
    """The costs of a run, before it begins.

    row: of an example of the workflow as written. used: the share of its most calls that a row took in an earlier run.
    search: the most calls of each optimizer, if known. known: their sum. again: the calls of the rerun. rest: calls
    that baseline and proof leave. rows: the most rows of optimizers that bound these instead. ceilings: see
    `_ceilings`. total: the most calls.
    """

    def __init__(
        self,
        task: Task,
        optimizers: Sequence[tuple[str, Optimizer]],
        database: str | Path | None,
        seconds_per_call: float | None,
    ):
        self.task, self.optimizers, data, budget = task, optimizers, task.dataset, task.spec.budget
        self.calls, self.models, self.seen = task.workflow.max_calls, Models(database), rehearse(task, task.workflow)
        self.row = row = row_cost(task, self.models, self.seen, seconds_per_call)
        self.used, self.measured = used, _ = _usual_share(task, database)
        candidate, role_usd = candidate_cost(task, row, self.seen, self.models)
        if "proposer" in task.spec.roles or not task.spec.search or not all(o.reads_search() for _, o in optimizers):
            candidate = replace(candidate, max_input_tokens=None)  # the search may write longer texts
        tried = replace(candidate, max_usd=row.max_usd)  # ceilings count with the models and prompts as written
        sealed, tests = len(data.test), (sealed_runs(task) - 1) * len(data.test)
        baseline, one = (each.rows(len(data.val), used) for each in (row, tried))
        planned, proof = (row.rows(sealed, used) + each.rows(tests, used) for each in (tried, candidate))
        rounds = None if getattr(task.metric, "needs_lm", False) else task.spec.rounds
        most = [(name, made.max_calls(task.workflow, data.train, data.val)) for name, made in optimizers]
        self.search = [(name, None if n is None or rounds is None else rounds * n) for name, n in most]
        self.known = known = sum(n or 0 for _, n in self.search)
        unbounded = [made for made, (_, n) in zip(optimizers, most, strict=True) if n is None]
        rows = [(name, made.max_rows(data.train, data.val)) for name, made in unbounded]
        self.rows = [(name, rounds * n) for name, n in rows if n is not None and rounds is not None]
        bounded = bool(optimizers) and None not in [n for _, n in self.search]
        self.again = row.times((MAX_RUNS - 1) * sealed).calls if task.spec.proof.rerun else 0
        self.proof_calls = self.calls * (sealed + tests)
        self.total = self.calls * len(data.val) + self.proof_calls + known + self.again if bounded else None
        self.rest = math.inf if budget.calls is None else max(0, budget.calls - baseline.calls - proof.calls)
        self.ceilings = [*_ceilings(task, baseline, one, planned, 0 if bounded else known)]
        counts = [int(left / each) for _, left, each in self.ceilings if each]
        if rows and len(self.rows) == len(rows):
            counts.append(math.ceil(sum(n for _, n in self.rows) / max(1, len(data.val))))
        self.candidates = min(counts, default=None)
        declared = candidate.rows(known / max(1, self.calls), used)
        searching = declared if bounded else None
        if self.candidates is not None and not (bounded and self.candidates * one.calls >= declared.calls):
            searching = one.times(self.candidates) + (Cost() if bounded else declared)
        if searching is not None:  # the dearest role may take each of its calls
            dearest = largest([candidate.times(1 / max(1, self.calls)).max_usd, role_usd])
            searching = replace(searching, max_usd=dearest and dearest * searching.calls / used)
        whole = None if searching is None else baseline + proof + searching
        costs = {"baseline": baseline, "search": searching, "proof": proof, "total": whole}
        self.parts = {name: cost and cost.within(budget) for name, cost in costs.items()}

    def lines(self) -> Iterator[str]:
        task, row, each, parts = self.task, self.row, max(1, self.calls), self.parts
        if not task.spec.optimize and self.optimizers:
            yield explain_choice(task, [name for name, _ in self.optimizers])
        earlier = sum(model.usual.calls for model in self.models.values() if model.usual)
        known = f" ({row.output_tokens / each:.0f} by {earlier} earlier calls)" if row.output_tokens and earlier else ""
        yield (
            f"At most {self.calls} call(s) per example{self.measured}, about {row.input_tokens / each:.0f} input "
            f"tokens and at most {row.max_output_tokens / each:.0f} output tokens each{known}, and {row.input_bounds} "
            "tokens in for an example."
        )
        yield f"Baseline on val: {parts['baseline']}."
        yield f"Sealed test of baseline{', best candidate' * bool(task.spec.targets)} and winner: {parts['proof']}."
        yield from self.search_lines()
        if (total := parts["total"]) is not None:
            yield f"In all, search included: {total}."
        yield from self.unknown_lines()
        if (executor := make_executor(task.spec.executor)) is not None:
            yield from executor.describe(task, total.minutes if total else None)
        warned = (
            *budget_warnings(task, self.used, self.seen),
            *search_warnings(task, self.optimizers),
            *lm_warnings(task),
        )
        yield from (f"Warning: {line}" for line in warned)
        if self.again:
            yield f"The rerun takes what the budget leaves, up to {self.again} calls."
        floor, failed = find_floor(task, task.dataset.val)
        yield from [f"{floor.describe('val')}."] if floor is not None else [f"Warning: {line}" for line in failed]
        yield _smallest_gain(task)[1]
        yield from (line for node in task.workflow.walk() for line in node.warnings())

    def search_lines(self) -> Iterator[str]:
        budget, rounds = self.task.spec.budget, self.task.spec.rounds
        if getattr(self.task.metric, "needs_lm", False):
            yield "The metric calls a model, too; its calls are extra."
        in_rounds = f" in {rounds} rounds" * (rounds > 1)
        yield from (f"{name}: at most {most} calls{in_rounds}." for name, most in self.search if most is not None)
        yield from (f"{name}: runs at most {most} rows{in_rounds}." for name, most in self.rows)
        if self.total is not None:
            by = f" by these, and {budget.calls} by the budget" if (budget.calls or math.inf) < self.total else ""
            yield f"Total: at most {self.total} calls, without retries{by}."
        if self.known > self.rest:
            yield f"Warning: of {budget.calls} calls, {self.rest} are left for search, which may take {self.known}."
        for what, left, each in self.ceilings:
            count, ceiling = int(left / each) if each else 0, getattr(budget, what)
            room = "less than one candidate takes, so the proof may have fewer rows"
            room = f"about {count} candidate{'s' * (count > 1)}" if count else room
            if what == "calls":
                if self.known <= self.rest and self.total is None:
                    yield f"Of {ceiling} calls, {left:.0f} are left for search: {room}."
                continue
            usual = f"{ceiling:g} {what}", f"{left:.1f} {what}"
            named = {"usd": (f"${ceiling:g}", format_usd(left)), "tokens": (f"{ceiling} tokens", f"{left:.0f} tokens")}
            whole, text = named.get(what, usual)
            fits = "; a call is sent only if its worst case fits, and the proof is reserved" * (left < each)
            yield f"Of {whole}, about {text} are left for search{f': {room}' * bool(each)}{fits}."

    def unknown_lines(self) -> Iterator[str]:
        """Yield lines on what is unknown, how to make it known, and what earlier runs used up."""
        task, seen, database, nodes = self.task, self.seen, self.models.database, self.task.workflow.enabled_nodes
        if unseen := [name for name, node in nodes.items() if node.max_calls and name not in seen.prompts]:
            yield f"Prompts of {', '.join(unseen)} are unknown until they run: counted by the file's texts and rows."
        elif seen.acts:
            yield f"The bounds of tokens in count a result of a tool or a program as at most {RESULT} tokens."
        if unpriced := [model.spec.model for model in Models().of(lms_of(task)) if model.usd(1, 1) is None]:
            yield no_price_line([*dict.fromkeys(unpriced)])
        if self.row.minutes is None:
            asked = self.models.of(called_lms(task.workflow, task.spec.lm))
            names = ", ".join(sorted({model.spec.model for model in asked if model.seconds(None) is None}))
            run = "no earlier run" if database is None else f"no earlier run in {database}"
            yield f"Duration unknown: {run} shows how long a call to {names} takes. Add --seconds-per-call."
        if database is not None and Path(database).is_file() and len(task.dataset.test):
            with suppress(StoreError):  # a damaged file
                with closing(ReadOnlyStore(database)) as store:
                    earlier = find_tests_of(store, task)
                if earlier:
                    why = f"since workflows were tested on these rows before (run {', '.join(dict.fromkeys(earlier))})"
                    yield f"p must be below {level_after(earlier):.2g} here, {why}."


def _usual_share(task: Task, database: str | Path | None) -> tuple[float, str]:
    """Return the share of its most calls that a row of this workflow took in an earlier run, and words on it."""
    most = task.workflow.max_calls
    if database is not None and most:
        with suppress(StoreError), closing(ReadOnlyStore(database)) as store:
            found = read_usual_row(store, task.workflow.hash)
            if found is not None and 0 < found[0] < most:
                return found[0] / most, f" ({found[0]:.2g} measured on {found[1]} rows of run {found[2]})"
    return 1.0, ""


def _ceilings(task: Task, baseline: Cost, one: Cost, proof: Cost, known: int) -> Iterator[tuple[str, float, float]]:
    """Yield (what, left for search, taken by a candidate) for each ceiling whose use is known. The last calls of search
    and of proof must fit at their maximum. known: calls of the search that are not of candidates."""
    tokens = baseline.input_tokens + baseline.max_output_tokens
    used = (("calls", baseline.calls, baseline.calls, baseline.calls, proof.calls + known),)
    used += (("tokens", baseline.tokens, tokens, one.tokens, proof.tokens),)
    used += (("usd", baseline.likely_usd, baseline.max_usd, one.likely_usd, proof.likely_usd),)
    used += (("minutes", baseline.minutes, baseline.minutes, one.minutes, proof.minutes),)
    for what, base, most, each, test in used:
        ceiling = getattr(task.spec.budget, what)
        if ceiling is not None and base is not None and each is not None and test is not None:
            unused = 0.0 if most is None else 2 * (most - base) / max(1, baseline.calls)
            yield what, max(0.0, ceiling - base - test - unused), each


def _smallest_gain(task: Task) -> tuple[float | None, str]:
    """Return the smallest gain that the test can show, and a line that describes it."""
    rows, counted = len(task.dataset.test), _count_clusters(task)
    gain, shown = smallest_binary_gain(counted, _DISCORDANT), "no gain: use more rows."
    if gain is not None:
        shown = f"gains of about {gain:.2f} or more (80% power; smaller ones if fewer rows change)."
    clusters = "" if counted == rows else f" in {counted} clusters, each of which counts once"
    return gain and round(gain, 4), f"With {rows} test rows{clusters}, the test can show {shown}"


def _count_clusters(task: Task) -> int:
    return len({task.cluster_of(row) for row in task.dataset.test.open()})


def budget_warnings(task: Task, used: float = 1.0, seen: Rehearsal | None = None) -> list[str]:
    """Warn if the budget does not cover baseline and sealed test, at one judge call per row. used: the share of its
    most calls that a row takes. seen: the rehearsal of the workflow, if it was rehearsed."""
    calls = task.workflow.max_calls * used + bool(getattr(task.metric, "needs_lm", False))
    needed = math.ceil(calls * (len(task.dataset.val) + sealed_runs(task) * len(task.dataset.test)))
    sealed, most = _count_clusters(task), task.spec.budget.calls
    warned = [line for _, source in usable_sources(task.spec) for line in source.warn(task.spec, sealed)]
    kept = [f"no gain can be shown: {node.kept_state}" for node in task.workflow.walk() if node.kept_state is not None]
    warned += dict.fromkeys(kept)
    if (refusal := find_impossible_proof(task, seen)) is not None:
        return [f"{refusal.message}; `workbench optimize` refuses that without --allow-unproved", *warned]
    if most is not None and most < needed:
        warned.append(
            f"the budget of {most} calls may be too small: evaluating the baseline and testing it and a winner on all "
            f"sealed rows may take {needed}. Raise budget.calls, or use fewer rows."
        )
    return warned


def find_impossible_proof(task: Task, seen: Rehearsal | None = None) -> SpecError | None:
    """Return the error of a file that cannot end with a proof; None for others.

    Such a file has too few sealed rows, no plugin that tests its targets or constraints, or a budget that ends before
    baseline and sealed test even at the least cost: one call for each node that calls a model, one for a row of the
    winner; of tokens and dollars, the inputs alone.
    """

    def refusal(message: str, hint: str, *path: str) -> SpecError:
        return SpecError(message, hint=f"{hint} add --allow-unproved to search anyway.", path=path)

    val, test, budget = len(task.dataset.val), len(task.dataset.test), task.spec.budget
    if not test:
        hint = "Name rows of test that are in no other split, or"
        return refusal("there is no row to prove a gain on: all test rows are also in train or val", hint, "data")
    least = next(count for count in itertools.count(1) if smallest_binary_gain(count, _DISCORDANT) is not None)
    if _count_clusters(task) < least:
        hint = f"It takes {least} at least. Name more rows of test, or"
        return refusal(_smallest_gain(task)[1].partition(":")[0], hint, "data")
    for section in TESTED_SECTIONS:
        try:
            if getattr(task.spec, section) is not None:
                plugins().get("claims", section)
        except PluginError as error:
            missing = section not in plugins().names("claims") and not plugins().set_aside
            who, why = ("no installed plugin", "") if missing else ("no plugin", f": {error}")
            what = f"{who} tests `{section}`, so nothing can show that they are met{why}"
            return refusal(what, f"{how_to_get('claims', section)} Or", section)
    least = sum(map(min_calls, task.workflow.enabled_nodes.values()))
    needed: dict[str, float] = {"calls": least * (val + test) + min(1, least) * test}
    if least and (budget.tokens is not None or budget.usd is not None):
        row = row_cost(task, models := Models(), seen or rehearse(task, task.workflow))
        needed["tokens"] = row.min_input_tokens * needed["calls"] / least
        needed["usd"] = min((model.usd(needed["tokens"], 0) or 0.0 for model in models.values()), default=0.0)
    for what, amount in needed.items():
        if amount > (ceiling := getattr(budget, what) or math.inf):
            told = [format_usd(a) if what == "usd" else f"{a:.0f} {what}" for a in (ceiling, amount)]
            why = f"the baseline on val, and the sealed test of it and a winner, take at least {told[1]}"
            hint = f"Raise budget.{what}, use fewer rows, or"
            return refusal(f"the budget of {told[0]} cannot pay for the proof: {why}", hint, "budget", what)
    return None
