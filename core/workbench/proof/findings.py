"""Builds the report of a run: proof, both sides, leaks, earlier tests on the same rows, warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from workbench.errors import describe_missing
from workbench.ledger import Ledger
from workbench.proof.attacks import AttackRise, measure_rise
from workbench.proof.floor import find_floor
from workbench.proof.judged import JudgeCheck, prove_by_labels
from workbench.proof.leakage import Leak, find_leaks
from workbench.proof.learning_curves import read_learning_curves
from workbench.proof.report import Report
from workbench.proof.rerun import count_runs
from workbench.proof.reuse import find_earlier_tests, level_after, reuse_warning
from workbench.proof.savings import COST_FIELDS, Ceiling, Saving, find_ceilings, paired_saving
from workbench.proof.service_levels import ServiceLevels, measure_levels
from workbench.proof.sides import OrderEffect, Pair, check_sent, explained_by_order, find_order_effects
from workbench.proof.statistics import Proof, paired_proof
from workbench.store import Journal, RunRecord
from workbench.study import Aims, Evaluation, Result, pareto_set
from workbench.task import Task, describe_rows, highest_score
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
) -> Report:
    """Build the report of a run.

    Args:
        rows: results of the sealed rows, of the baseline, the winner and, with targets, the best candidate on val.
        kept_state: what was seen to outlive a row (`workbench.runtime.Runtime.kept_state`).
    """
    pairs = [(row[0], row[1]) for row in rows or ()]
    earlier = _find_earlier_tests(task, winner, pairs, ledger)
    claims, faults = _claims(task, rows or (), winner, best, evaluations, earlier, ledger)
    proof, baseline, leaks = claims["proof"], evaluations.get(task.workflow.hash), find_leaks(task, winner)
    claims["objections"] = [*_kept_state(task.workflow, winner, kept_state), *claims["objections"]]
    ledger.store.flush()
    roles = Journal(ledger.store, ledger.run_id).count_answers_by_role()
    baselines, winners = [a for a, _ in pairs], [b for _, b in pairs]
    on_val = _on_val(baseline, winner, evaluations)
    return Report(
        run=run,
        status=status,
        winner=winner,
        changes=_changes(task, winner),
        baseline=_side(baseline, baselines, task.workflow, proof and proof.baseline_mean),
        best=_side(evaluations.get(winner.hash), winners, winner, proof and proof.winner_mean),
        **claims,
        **_recorded(ledger),
        spent=ledger.summary(),
        budget=ledger.budget.model_dump(exclude_none=True),
        database=database,
        candidates=candidates,
        failures=dict(Counter(b.failure for b in winners if b.failure)),
        pareto=_pareto(task, evaluations),
        warnings=[*warnings, *faults, *on_val, *_warnings(task, winners, earlier, leaks, roles)],
        error=error,
        test_rows=len(pairs),
        untried=_untried(roles, status) if status in ("finished", "budget") and candidates < 2 else None,
        earlier_tests=earlier,
        leaks=leaks,
        sealed_rows=len(task.dataset.test),
        test_skipped=not pairs and winner == task.workflow and task.spec.proof.when_unchanged == "skip",
    )


def _recorded(ledger: Ledger) -> dict[str, Any]:
    """Read what the run recorded of itself, by the fields of a report."""
    record = RunRecord(ledger.store, ledger.run_id)
    return {
        "sandbox": record.find_sandbox(),
        "rate_limits": record.find_rate_limits(),
        "curves": read_learning_curves(ledger.store, ledger.run_id),
    }


def _claims(
    task: Task,
    rows: Sequence[tuple[Result, ...]],
    winner: Workflow,
    best: Workflow,
    evaluations: Mapping[str, Evaluation],
    earlier: Sequence[str],
    ledger: Ledger,
) -> tuple[dict[str, Any], list[str]]:
    """Collect what the sealed rows show, by the fields of a report; then what is wrong with the labels."""
    pairs, alpha = [(row[0], row[1]) for row in rows], level_after(earlier)
    sent, unsent = check_sent(task.workflow, winner, pairs)
    proof, judge, faults = _proof(task, pairs, sent, earlier, ledger)
    ceilings, effects = _ceilings(task, rows, winner, best), find_order_effects(pairs)
    saving = _saving(task, pairs, sent, alpha, ceilings) if winner != task.workflow else None
    objections = [unsent] if unsent is not None else []
    attacks = _attacks(task, pairs, alpha)
    if attacks is not None and attacks.objection is not None:
        objections.append(attacks.objection)
    if proof is not None and proof.shown and proof.ci95[0] <= (more := explained_by_order(effects, "score", pairs)):
        objections.append(f"the winner ran second on more rows, which explains {more:+.3f} of it")
    if saving is not None and saving.ci95[1] >= explained_by_order(effects, saving.objective, pairs):
        saving = replace(saving, shown=False, bound=f"{saving.bound}; the order of the sides may explain it")
    floor, failed = find_floor(task, [a.example for a, b in pairs if a.score is not None and b.score is not None])
    claims = {
        "proof": proof,
        "floor": floor,
        "old_runs": (1, "") if winner == task.workflow or task.spec.proof.rerun else count_runs(pairs),
        "judge": judge,
        "saving": saving,
        "attacks": attacks,
        "levels": _levels(task, rows, winner, best, evaluations, alpha, ceilings, effects),
        "order_effects": effects,
        "objections": objections,
    }
    return claims, faults + failed


def _attacks(task: Task, pairs: Sequence[Pair], alpha: float) -> AttackRise | None:
    """The rise of the attack rate, if the file limits it."""
    limits = task.spec.constraints
    if limits is None:
        return None
    return measure_rise(pairs, [task.cluster_of(a.example) for a, _ in pairs], margin=limits.attack, alpha=alpha)


def _unusable(baseline: Evaluation | None) -> list[str]:
    """A warning if the baseline has no answer on most rows of val that the metric could score."""
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
    """Warn of a baseline that cannot be used, and of rows of val that a mean leaves out."""
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
    """The runs that tested changed workflows on these sealed rows before; none if the winner is the baseline."""
    if winner == task.workflow:
        return []
    described = describe_rows([a.example for a, _ in pairs] or task.dataset.test.open(), task.inputs, task.rule)
    return find_earlier_tests(ledger.store, ledger.run_id, winner.hash, task, described)


def _kept_state(baseline: Workflow, winner: Workflow, seen: Sequence[str]) -> list[str]:
    """Describe state that outlives a row, as declared by the nodes or observed."""
    nodes = [node.kept_state for workflow in (baseline, winner) for node in workflow.walk()]
    return [f"no proof: {what}" for what in dict.fromkeys([*seen, *(what for what in nodes if what is not None)])]


def _proof(
    task: Task, pairs: Sequence[Pair], sent: Sequence[bool], earlier: Sequence[str], ledger: Ledger
) -> tuple[Proof | None, JudgeCheck | None, list[str]]:
    """The proof; what is known of the judge, if one scored; and what is wrong with the labels."""
    if not pairs:
        return None, None, []
    clusters = [task.cluster_of(a.example) for a, _ in pairs]
    baselines, winners = [a.score for a, _ in pairs], [b.score for _, b in pairs]
    alpha, margin, highest = level_after(earlier), task.spec.proof.margin, highest_score(task.metric)
    proof = paired_proof(baselines, winners, clusters=clusters, alpha=alpha, margin=margin, highest=highest)
    if not all(sent):  # where the change was not sent, a difference is not its own
        tied = [b.score for _, b in _tied(pairs, sent)]
        found = paired_proof(baselines, tied, clusters=clusters, alpha=alpha, highest=highest)
        proof = replace(proof, shown=proof.shown and found.shown, lowest=min(proof.lowest, found.lowest))
    if not getattr(task.metric, "needs_lm", False):
        return proof, None, []
    return prove_by_labels(task, _tied(pairs, sent), proof, earlier, ledger)


def _tied(pairs: Sequence[Pair], sent: Sequence[bool]) -> list[Pair]:
    """The pairs with the baseline on both sides where the change was not sent."""
    return [(a, b if was else a) for was, (a, b) in zip(sent, pairs, strict=True)]


def _pareto(task: Task, evaluations: Mapping[str, Evaluation]) -> list[dict[str, Any]]:
    """The Pareto set on val, where there are several objectives."""
    objectives = list(task.spec.objectives)
    front = pareto_set(list(evaluations.values()), objectives) if len(objectives) > 1 else []
    return [{"workflow": e.workflow.hash, **{o: e.objectives[o] for o in objectives}} for e in front]


def _warnings(
    task: Task, winners: Sequence[Result], earlier: Sequence[str], leaks: Sequence[Leak], roles: Sequence[Any]
) -> list[str]:
    """Warnings about the test, the winner and the calls. winners: the winner's results on the test rows."""
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


def _ceilings(
    task: Task, rows: Sequence[tuple[Result, ...]], winner: Workflow, best: Workflow
) -> Mapping[str, Ceiling]:
    """The most that a row can cost on any side."""
    columns = zip(*rows, strict=True)
    sides = [(side, column) for side, column in zip((task.workflow, winner, best), columns, strict=False)]
    return find_ceilings(sides, {**task.spec.proof.ceiling})


def _saving(
    task: Task, pairs: Sequence[Pair], sent: Sequence[bool], alpha: float, ceilings: Mapping[str, Ceiling]
) -> Saving | None:
    """The proof of the saving, if a cost decided the pick."""
    objectives = task.spec.objectives
    if len(objectives) < 2 or (task.spec.pick == "score" and task.spec.targets is None):
        return None
    considered = objectives[:2] if task.spec.pick == "knee" else objectives
    cost = next((o for o in considered if o in COST_FIELDS), None)
    tied, most = _tied(pairs, sent), ceilings.get(cost or "")
    if cost is None or most is None:
        return None

    def compare(counted: Sequence[tuple[Result, Result]]) -> Saving:
        def costs(side: int, unanswered: float) -> list[float]:
            found = [float(getattr(pair[side], COST_FIELDS[cost])) for pair in counted]
            return [unanswered if p[side].score is None else c for p, c in zip(counted, found, strict=True)]

        clusters = [task.cluster_of(a.example) for a, _ in counted]
        return paired_saving(cost, costs(0, 0.0), costs(1, most.most), most, clusters=clusters, alpha=alpha)

    answered = [pair for pair in tied if pair[0].score is not None and pair[1].score is not None]
    found = compare(answered) if answered else None
    if found is None or not (found.baseline_mean or found.winner_mean):  # free on both sides: it decided nothing
        return None
    # Rows that one side alone answered: the winner may be slow on just those that cost it most.
    sided = [pair for pair in tied if pair[0].score is not None or pair[1].score is not None]
    return replace(found, shown=found.shown and compare(sided).shown)


def _levels(
    task: Task,
    rows: Sequence[tuple[Result, ...]],
    winner: Workflow,
    best: Workflow,
    evaluations: Mapping[str, Evaluation],
    alpha: float,
    ceilings: Mapping[str, Ceiling],
    effects: Sequence[OrderEffect],
) -> ServiceLevels | None:
    """Evaluate the targets, if any, on the sealed rows."""
    targets = task.spec.targets
    if targets is None:
        return None
    aims = Aims.of(task.spec, list(evaluations.values())) if evaluations else None
    lines = _missed(aims, evaluations[winner.hash]) if aims is not None and winner.hash in evaluations else ()
    clusters = [task.cluster_of(row[0].example) for row in rows]
    loss = None
    if rows and winner != best:
        loss = paired_proof(
            [row[2].score for row in rows],
            [row[1].score for row in rows],
            clusters=clusters,
            alpha=alpha,
            margin=task.spec.proof.margin,
            highest=highest_score(task.metric),
        )
    warmed = {effect.objective for effect in effects}
    levels = measure_levels(targets, [row[1] for row in rows], clusters, ceilings=ceilings, alpha=alpha, warmed=warmed)
    return ServiceLevels(levels, best.hash, best == task.workflow, loss, task.spec.margin_of_targets is not None, lines)


def _missed(aims: Aims, on_val: Evaluation) -> tuple[str, ...]:
    """Lines on the targets that a winner misses on val."""
    limits = aims.targets.given
    return tuple(
        f"{name} {on_val.objectives[name]:.4g} of {limits[name]:g}"
        if name in limits
        else f"score {on_val.score:.4g} against {aims.best.score:.4g} of the best"
        for name in aims.shortfalls(on_val)
    )


def _changes(task: Task, after: Workflow) -> list[tuple[str, Any, Any]]:
    """The changed settings as (address, old, new), without those that only spell out the default."""
    before = task.workflow

    def in_force(address: str) -> Any:
        try:
            return setting_at(before, address)
        except KeyError:
            return None

    changes = list_changes(before, after, task.spec.lm)
    return [c for c in changes if c[1] is not None or c[2] != in_force(c[0])]


def _untried(roles: Sequence[Any], status: str) -> str:
    """Why no candidate was made."""
    asked = next((r for r in roles if r["role"] == "proposer"), None)
    if status == "budget" and (asked is None or asked["failed"] < asked["n"]):
        return "the budget ended before there was a candidate (see workbench estimate)"
    if asked is None:
        return "either the optimizers find nothing to change, or the budget is too small (see workbench estimate)"
    if asked["failed"] == asked["n"]:
        return f"the proposer did not answer: all {asked['n']} of its calls failed ({asked['kinds']})"
    failed = f", and {asked['failed']} more calls failed ({asked['kinds']})" if asked["failed"] else ""
    answers = asked["n"] - asked["failed"]
    return (
        f"none of the proposer's {answers} answers came to a candidate on val: what they propose lost on a few rows "
        f"first, is what there is already, or could not be read{failed}"
    )


def _side(val: Evaluation | None, test: list[Result], workflow: Workflow, mean: float | None) -> dict[str, Any]:
    """A side of the comparison. mean: its score in the proof, which counts each cluster once."""
    evaluation = Evaluation(workflow, "test", tuple(test), True)
    counted = [r.score for r in test if r.score is not None]
    cost = evaluation.objectives if test else val.objectives if val is not None else {}
    return {
        "workflow": workflow.hash,
        "val": val.score if val is not None else None,
        "missing": {"val": val.missing if val is not None else {}, "test": evaluation.missing},
        "test": {"score": mean if counted else None, "n": len(counted)},
        "cost": {k: v for k, v in cost.items() if k != "score"},
    }
