"""Makes the claims of a run: the gain, the saving, and those of plugins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from workbench.ledger import Ledger
from workbench.proof.claim import Claim
from workbench.proof.evidence import Evidence, claim_sources
from workbench.proof.judged import prove_by_labels
from workbench.proof.savings import COST_FIELDS, find_ceilings, paired_saving
from workbench.proof.sides import Pair, check_sent, explained_by_order, find_order_effects
from workbench.proof.statistics import paired_proof
from workbench.study import Evaluation, Result
from workbench.task import Task, highest_score
from workbench.workflow import Workflow


def measure(
    task: Task,
    winner: Workflow,
    best: Workflow,
    rows: Sequence[tuple[Result, ...]],
    evaluations: Mapping[str, Evaluation],
    alpha: float,
) -> Evidence:
    """Collect what all claims on the sealed rows need. Arguments as of `Evidence`."""
    columns = zip(*rows, strict=True)
    sides = [(side, column) for side, column in zip((task.workflow, winner, best), columns, strict=False)]
    ceilings = find_ceilings(sides, {**task.spec.proof.ceiling})
    effects = find_order_effects([(row[0], row[1]) for row in rows])
    return Evidence(task, winner, best, rows, evaluations, alpha, ceilings, effects)


def find_claims(tested: Evidence, earlier: Sequence[str], ledger: Ledger) -> tuple[list[Claim], list[str], list[str]]:
    """Find the claims of a run, the objections to all of them, and warnings of what could not be computed.

    earlier: names of the runs that tested on these rows before.
    """
    sent, unsent = check_sent(tested.task.workflow, tested.winner, tested.pairs)
    others, faults = _others(tested)
    claims = [claim for found in others.values() for claim in found]
    gains, wrong = _gain(tested, sent, earlier, ledger)
    claims += gains
    if tested.winner != tested.task.workflow and (saving := _saving(tested, sent)) is not None:
        claims.append(saving)
    claims.sort(key=lambda claim: claim.kind.guards)
    objections = [unsent] if unsent is not None else []
    changed = bool(tested.pairs) and tested.winner != tested.task.workflow
    if changed and tested.task.spec.constraints is not None and not others.get("constraints"):
        # A guard that is missing, or failed, must not let a gain pass.
        objections.append("no plugin tested the `constraints` of the file")
    objections += [claim.why_not for claim in claims if claim.kind.guards and not claim.shown and claim.why_not]
    effects, pairs = tested.order_effects, tested.pairs
    for gain in gains[:1]:
        if gain.shown and gain.ci95[0] <= (more := explained_by_order(effects, "score", pairs)):
            objections.append(f"the winner ran second on more rows, which explains {more:+.3f} of it")
    return claims, objections, wrong + faults


def _others(tested: Evidence) -> tuple[dict[str, Sequence[Claim]], list[str]]:
    """The claims of plugins by source, and a warning for each source that failed."""
    claims, faults = dict[str, Sequence[Claim]](), list[str]()
    for name, load in claim_sources():
        try:
            claims[name] = list(load().find(tested))
        except Exception as error:
            faults.append(f"the claims '{name}' of a plugin are left out: {type(error).__name__}: {error}")
    return claims, faults


def _gain(
    tested: Evidence, sent: Sequence[bool], earlier: Sequence[str], ledger: Ledger
) -> tuple[list[Claim], list[str]]:
    """The gain; the judge's claim, if one scored; and what is wrong with the labels."""
    task, pairs, clusters, alpha = tested.task, tested.pairs, tested.clusters, tested.alpha
    if not pairs:
        return [], []
    baselines, winners = [a.score for a, _ in pairs], [b.score for _, b in pairs]
    margin, highest = task.spec.proof.margin, highest_score(task.metric)
    gain = paired_proof(baselines, winners, clusters=clusters, alpha=alpha, margin=margin, highest=highest)
    if not all(sent):  # where the change was not sent, a difference is not its own
        tied = [b.score for _, b in _tied(pairs, sent)]
        found = paired_proof(baselines, tied, clusters=clusters, alpha=alpha, highest=highest)
        gain = replace(gain, shown=gain.shown and found.shown, lowest=min(gain.lowest, found.lowest))
    if not getattr(task.metric, "needs_lm", False):
        return [gain], []
    return prove_by_labels(task, _tied(pairs, sent), gain, earlier, ledger)


def _tied(pairs: Sequence[Pair], sent: Sequence[bool]) -> list[Pair]:
    """The pairs with the baseline on both sides where the change was not sent."""
    return [(a, b if was else a) for was, (a, b) in zip(sent, pairs, strict=True)]


def _saving(tested: Evidence, sent: Sequence[bool]) -> Claim | None:
    """The saving, if a cost decided the pick."""
    spec, pairs, objectives = tested.task.spec, tested.pairs, tested.task.spec.objectives
    if len(objectives) < 2 or (spec.pick == "score" and spec.targets is None):
        return None
    considered = objectives[:2] if spec.pick == "knee" else objectives
    cost = next((o for o in considered if o in COST_FIELDS), None)
    tied, most = _tied(pairs, sent), tested.ceilings.get(cost or "")
    if cost is None or most is None:
        return None

    def compare(counted: Sequence[Pair]) -> Claim:
        def costs(side: int, unanswered: float) -> list[float]:
            found = [float(getattr(pair[side], COST_FIELDS[cost])) for pair in counted]
            return [unanswered if p[side].score is None else c for p, c in zip(counted, found, strict=True)]

        clusters = [tested.task.cluster_of(a.example) for a, _ in counted]
        return paired_saving(cost, costs(0, 0.0), costs(1, most.most), most, clusters=clusters, alpha=tested.alpha)

    answered = [pair for pair in tied if pair[0].score is not None and pair[1].score is not None]
    found = compare(answered) if answered else None
    if found is None or not (found.baseline or found.winner):  # free on both sides: it decided nothing
        return None
    # Rows that one side alone answered: the winner may be slow on just those that cost it most.
    sided = [pair for pair in tied if pair[0].score is not None or pair[1].score is not None]
    found = replace(found, shown=found.shown and compare(sided).shown)
    if found.ci95[1] >= explained_by_order(tested.order_effects, cost, pairs):
        return replace(found, shown=False, bound=f"{found.bound}; the order of the sides may explain it")
    return found
