"""Builds the report of a run: proof, both sides, leaks, earlier tests on the same rows, warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from workbench.errors import describe_missing
from workbench.ledger import Ledger
from workbench.proof.claim import find_claim
from workbench.proof.claims import find_claims, measure
from workbench.proof.floor import find_floor
from workbench.proof.leakage import Leak, find_leaks
from workbench.proof.learning_curves import read_learning_curves
from workbench.proof.report import Report
from workbench.proof.rerun import count_runs
from workbench.proof.reuse import find_earlier_tests, reuse_warning
from workbench.proof.sides import Pair
from workbench.spec import BudgetSpec
from workbench.store import Journal, RunRecord
from workbench.study import Evaluation, Result, pareto_set
from workbench.task import Task, describe_rows
from workbench.workflow import Workflow, list_changes, setting_at


def build_report(
    *,
    run: str,
    status: str,
    task: Task,
    winner: Workflow,
    evaluations: Mapping[str, Evaluation],
    rows: Sequence[tuple[Result, ...]] | None,
    best: Workflow,
    ledger: Ledger,
    database: str,
    candidates: int,
    warnings: Sequence[str],
    kept_state: Sequence[str] = (),
    error: str | None = None,
    warned: Sequence[str] = (),
    shortfall: Mapping[str, int] = MappingProxyType({}),
) -> Report:
    """Build the report of a run.

    Args:
        rows: results of the sealed rows, of the baseline, the winner and, with targets, the best candidate on val.
        shortfall: by ceiling, the amount that a candidate lacked; 0 if the search reached it.
        kept_state: state observed to outlive a row (`workbench.runtime.Runtime.kept_state`).
    """
    pairs = [(row[0], row[1]) for row in rows or ()]
    earlier = _find_earlier_tests(task, winner, pairs, ledger)
    record = RunRecord(ledger.store, ledger.run_id)
    tested, unsent = measure(task, winner, best, rows or (), evaluations, earlier, record)
    claims, objections = find_claims(tested, unsent)
    gain, baseline = find_claim(claims, "gain"), evaluations.get(task.workflow.hash)
    (rows_tested, failed), leaks = _describe_test(task, winner, pairs), find_leaks(task, winner)
    ledger.store.flush()
    roles = Journal(ledger.store, ledger.run_id).count_answers_by_role()
    untried = _untried(roles, ledger.budget, shortfall) if status in ("finished", "budget") and candidates < 2 else None
    baselines, winners = [a for a, _ in pairs], [b for _, b in pairs]
    on_val = _on_val(baseline, winner, evaluations)
    return Report(
        run=run,
        status=status,
        winner=winner,
        changes=_changes(task, winner),
        baseline=_side(baseline, baselines, task.workflow, gain and gain.baseline),
        best=_side(evaluations.get(winner.hash), winners, winner, gain and gain.winner),
        claims=claims,
        objections=[*_kept_state(task.workflow, winner, kept_state), *objections],
        order_effects=[*tested.order_effects],
        **rows_tested,
        **_recorded(ledger),
        spent=ledger.summary(),
        budget=ledger.budget.model_dump(exclude_none=True),
        database=database,
        candidates=candidates,
        pareto=_pareto(task, evaluations),
        warnings=[*warnings, *tested.warnings, *failed, *on_val, *_warnings(task, winners, earlier, leaks, roles)],
        error=error,
        untried=untried,
        earlier_tests=earlier,
        leaks=leaks,
        warned=[*warned],
    )


def _describe_test(task: Task, winner: Workflow, pairs: Sequence[Pair]) -> tuple[dict[str, Any], list[str]]:
    """Return the report's fields about the tested rows, with warnings."""
    answered = [a.example for a, b in pairs if a.score is not None and b.score is not None]
    floor, failed = find_floor(task, answered)
    unchanged = winner == task.workflow
    found = {
        "floor": floor,
        "old_runs": (1, "") if unchanged or task.spec.proof.rerun else count_runs(pairs),
        "failures": dict(Counter(b.failure for _, b in pairs if b.failure)),
        "test_rows": len(pairs),
        "sealed_rows": len(task.dataset.test),
        "test_skipped": not pairs and unchanged and task.spec.proof.when_unchanged == "skip",
    }
    return found, failed


def _recorded(ledger: Ledger) -> dict[str, Any]:
    """Return the report's fields that the run recorded."""
    record = RunRecord(ledger.store, ledger.run_id)
    return {
        "sandbox": record.find_sandbox(),
        "rate_limits": record.find_rate_limits(),
        "curves": read_learning_curves(ledger.store, ledger.run_id),
    }


def _unusable(baseline: Evaluation | None) -> list[str]:
    """Warn if the baseline has no answer on most rows of val that the metric could score."""
    failed = [result for result in baseline.results if result.failure is not None] if baseline is not None else []
    if baseline is None or not failed or 2 * len(failed) < len(baseline.results):
        return []
    kinds = ", ".join(f"{kind} {count}" for kind, count in baseline.failures.items())
    few = "any" if len(failed) == len(baseline.results) else str(len(failed))
    return [
        f"the baseline gave no answer that can be scored on {few} of the {len(baseline.results)} rows of val: {kinds}, "
        f"e.g. {failed[0].message or failed[0].failure}"
    ]


def _on_val(baseline: Evaluation | None, winner: Workflow, evaluations: Mapping[str, Evaluation]) -> list[str]:
    """Warn about an unusable baseline, and about rows of val that a mean leaves out."""
    best = evaluations.get(winner.hash)
    sides = [("baseline", baseline), ("winner", best if best is not baseline else None)]
    return _unusable(baseline) + [
        f"val: {said} for the {name}, so its mean is of the other {len(found.results) - sum(found.missing.values())}"
        for name, found in sides
        if found is not None and (said := describe_missing(found.missing))
    ]


def _find_earlier_tests(
    task: Task, winner: Workflow, pairs: Sequence[tuple[Result, Result]], ledger: Ledger
) -> list[str]:
    """Return the runs that tested changed workflows on these sealed rows before; none if the winner is the baseline."""
    if winner == task.workflow:
        return []
    described = describe_rows([a.example for a, _ in pairs] or task.dataset.test.open(), task.inputs, task.rule)
    return find_earlier_tests(ledger.store, ledger.run_id, winner.hash, task, described)


def _kept_state(baseline: Workflow, winner: Workflow, seen: Sequence[str]) -> list[str]:
    """Describe state that outlives a row, as declared by the nodes or observed."""
    nodes = [node.kept_state for workflow in (baseline, winner) for node in workflow.walk()]
    return [f"no proof: {what}" for what in dict.fromkeys([*seen, *(what for what in nodes if what is not None)])]


def _pareto(task: Task, evaluations: Mapping[str, Evaluation]) -> list[dict[str, Any]]:
    """Return the Pareto set on val if there are several objectives."""
    objectives = list(task.spec.objectives)
    front = pareto_set(list(evaluations.values()), objectives) if len(objectives) > 1 else []
    return [{"workflow": e.workflow.hash, **{o: e.objectives[o] for o in objectives}} for e in front]


def _warnings(
    task: Task, winners: Sequence[Result], earlier: Sequence[str], leaks: Sequence[Leak], roles: Sequence[Any]
) -> list[str]:
    """Return warnings about the test, the winner and the calls. winners: the winner's results on the test rows."""
    warnings: list[str] = []
    if winners and len(winners) < len(task.dataset.test):
        warnings.append(
            f"the budget covered only {len(winners)} of the {len(task.dataset.test)} test rows; raise it to test "
            "the rest"
        )
    if winners and earlier:
        warnings.append(reuse_warning(earlier))
    warnings += map(str, leaks)
    warnings += [
        f"{r['failed']} of {r['n']} calls of the {r['role']} failed ({r['kinds']}): {(r['message'] or '')[:200]}"
        for r in roles
        if r["failed"]
    ]
    if lost := [r.unreadable_calls for r in winners if r.unreadable_calls]:
        warnings.append(
            f"in {len(lost)} of the {len(winners)} test rows, the winner's model wrote {sum(lost)} tool calls that "
            "could not be read. It was shown the right form, but its scores may be too low"
        )
    return warnings


def _changes(task: Task, after: Workflow) -> list[tuple[str, Any, Any]]:
    """Return the changed settings as (address, old, new), without those that only spell out the default."""
    before = task.workflow

    def in_force(address: str) -> Any:
        try:
            return setting_at(before, address)
        except KeyError:
            return None

    changes = list_changes(before, after, task.spec.lm)
    return [c for c in changes if c[1] is not None or c[2] != in_force(c[0])]


def _untried(roles: Sequence[Any], budget: BudgetSpec, shortfall: Mapping[str, int]) -> str:
    """Return the reason why no candidate was made, and the setting that changes it."""
    asked = next((r for r in roles if r["role"] == "proposer"), None)
    if asked is None or (shortfall and asked["failed"] < asked["n"]):
        if (calls := shortfall.get("calls")) and budget.calls is not None:
            more = f"a candidate takes {calls} calls more than are left for search"
            return f"{more}. Write budget.calls: {budget.calls + calls}"
        if what := next(iter(shortfall), None):
            return f"the budget ended before there was a candidate. Raise budget.{what} (see workbench estimate)"
        return "the optimizers find nothing to change. Name others under `optimize:`"
    if asked["failed"] == asked["n"]:
        return f"the proposer did not answer: all {asked['n']} of its calls failed ({asked['kinds']})"
    failed = f", and {asked['failed']} more calls failed ({asked['kinds']})" if asked["failed"] else ""
    answers = asked["n"] - asked["failed"]
    return (
        f"none of the proposer's {answers} answers came to a candidate on val: what they propose lost on a few rows "
        f"first, is what there is already, or could not be read{failed}"
    )


def _side(val: Evaluation | None, test: list[Result], workflow: Workflow, mean: float | None) -> dict[str, Any]:
    """Describe a side of the comparison. mean: its score in the proof, which counts each cluster once."""
    evaluation = Evaluation(workflow, "test", tuple(test), True)
    counted = [r.score for r in test if r.score is not None]
    cost = evaluation.objectives if test else val.objectives if val is not None else {}
    return {
        "workflow": workflow.hash,
        "val": val.score if val is not None else None,
        "missing": {"val": val.missing if val is not None else {}, "test": evaluation.missing},
        "test": {"score": mean if counted else None, "n": len(counted)},
        "cost": {k: v for k, v in cost.items() if k != "score"} | _uncached(test),
    }


def _uncached(test: list[Result]) -> dict[str, float]:
    """Return the mean tokens of a row that the server had not cached, if it reports them. A prompt that begins
    differently for every row has more of them at the same number of tokens."""
    counted = [r for r in test if r.score is not None]
    if not any(r.cached_tokens for r in counted):
        return {}
    return {"uncached_tokens": sum(r.tokens - r.cached_tokens for r in counted) / len(counted)}
