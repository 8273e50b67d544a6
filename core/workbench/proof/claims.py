"""The claims of a run: the gain, the saving, and those of plugins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from workbench.base.distribution import how_to_get
from workbench.proof.claim import Claim, Kind
from workbench.proof.evidence import TESTED_SECTIONS, Evidence, claim_sources
from workbench.proof.reuse import level_after
from workbench.proof.savings import COST_FIELDS, find_ceilings, paired_saving
from workbench.proof.sides import Pair, check_sent, explained_by_order, find_order_effects
from workbench.proof.statistics import GAIN, paired_proof, voided
from workbench.store import RunRecord
from workbench.study import Evaluation, Result
from workbench.task import Task, highest_score
from workbench.workflow import Workflow


def measure(
    task: Task,
    winner: Workflow,
    best: Workflow,
    rows: Sequence[tuple[Result, ...]],
    evaluations: Mapping[str, Evaluation],
    earlier: Sequence[str],
    record: RunRecord,
) -> tuple[Evidence, str | None]:
    """Collect the evidence for all claims, and the objection if the change was not sent. Arguments: see `Evidence`."""
    columns = zip(*rows, strict=True)
    sides = [(side, column) for side, column in zip((task.workflow, winner, best), columns, strict=False)]
    ceilings = find_ceilings(sides, {**task.spec.proof.ceiling})
    effects = find_order_effects([(row[0], row[1]) for row in rows])
    sent, unsent = check_sent(task.workflow, winner, [(row[0], row[1]) for row in rows])
    alpha = level_after(earlier)
    found = Evidence(task, winner, best, rows, evaluations, alpha, ceilings, effects, sent, earlier, record)
    return replace(found, gain=_gain(found) if found.pairs else None), unsent


def find_claims(tested: Evidence, unsent: str | None) -> tuple[list[Claim], list[str]]:
    """Find the claims of a run, and the objections to all of them. unsent: see `measure`."""
    by_source, gains = _others(tested), [tested.gain] if tested.gain is not None else []
    others = [claim for found in by_source.values() for claim in found]
    if tested.is_judged and gains:
        gains = [claim for claim in others if claim.name in _OF_JUDGES] or _opinions(gains[0])
        others = [claim for claim in others if claim not in gains]
    saving = _saving(tested) if tested.winner != tested.task.workflow else None
    if not tested.pairs:
        others = [replace(claim, shown=False) for claim in others]
    claims = [*others, *gains, *([saving] if saving is not None else ())]
    claims.sort(key=lambda claim: claim.kind.guards)
    objections = [unsent] if unsent is not None else []
    if tested.pairs and tested.winner != tested.task.workflow:
        for section in TESTED_SECTIONS:  # a missing guard must not let a gain pass
            if getattr(tested.task.spec, section) is not None and not by_source.get(section):
                objections.append(f"no plugin tested the `{section}` of the file")
    guards = [claim for claim in claims if claim.kind.guards and not claim.shown]
    objections += [claim.why_not or f"{claim.name} is not shown" for claim in guards]
    effects, pairs = tested.order_effects, tested.pairs
    for gain in gains[:1]:
        if gain.shown and gain.ci95[0] <= (more := explained_by_order(effects, "score", pairs)):
            objections.append(f"the winner ran second on more rows, which explains {more:+.3f} of it")
    return claims, objections


def _others(tested: Evidence) -> dict[str, list[Claim]]:
    """Return the claims of plugins by source. A source that fails becomes a warning."""
    claims = dict[str, list[Claim]]()
    taken = {"saving"} if tested.is_judged else {"saving", *_OF_JUDGES}
    for name, load in claim_sources():
        guards = False
        try:
            source = load()
            guards = source.guards
            found = [*source.find(tested)]
            if twice := taken & {claim.name for claim in found}:
                raise ValueError(f"the name '{min(twice)}' is taken")
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            tested.warnings.append(f"the claims '{name}' of a plugin are left out: {why}")
            if guards and tested.pairs:
                kind = Kind(None, proves=False, guards=True)
                claims[name] = [Claim(name, kind, why_not=f"the claims '{name}' could not be tested")]
        else:
            claims[name] = found
            taken |= {claim.name for claim in found}
    return claims


def _gain(tested: Evidence) -> Claim:
    """Make the claim of a gain by the metric's scores."""
    task, pairs, clusters, alpha = tested.task, tested.pairs, tested.clusters, tested.alpha
    baselines, winners = [a.score for a, _ in pairs], [b.score for _, b in pairs]
    margin, highest = task.spec.proof.margin, highest_score(task.metric)
    gain = paired_proof(baselines, winners, clusters=clusters, alpha=alpha, margin=margin, highest=highest)
    if not all(tested.sent):
        tied = [b.score for _, b in tested.sent_pairs]
        found = paired_proof(baselines, tied, clusters=clusters, alpha=alpha, highest=highest)
        gain = replace(gain, shown=gain.shown and found.shown, lowest=min(gain.lowest, found.lowest))
    return gain


#: Names of claims in a run that a language model scored.
_OF_JUDGES = ("gain", "judge")


def _say_opinion(claim: Claim, shown: bool, why: str | None) -> list[str]:
    """Describe a gain that no labels of people correct."""
    if why is not None:
        return [voided(claim, why)]
    why = f"The gain is not shown: {claim.diff_text} is the opinion of a judge, on {claim.n_rows} sealed test rows."
    return [f"{why} Labels of people can correct it. {how_to_get('commands', 'label')}".rstrip()]


def _opinion_figures(claim: Claim, shown: bool) -> dict[str, Any]:
    return {"diff": claim.diff, "ci95": list(claim.ci95), "labelled": 0, "calibrated": False}


def _opinions(gain: Claim) -> list[Claim]:
    """Make the claims of a run that a language model scored, if no plugin corrects them by labels of people."""
    judge = Claim("judge", Kind(None, _opinion_figures, proves=False), diff=gain.diff, ci95=gain.ci95)
    return [replace(gain, kind=replace(GAIN, words=_say_opinion, plain=None), shown=False, lowest=-1.0), judge]


def _saving(tested: Evidence) -> Claim | None:
    """Make the claim of a saving if a cost decided the pick; else None."""
    spec, tied, objectives = tested.task.spec, tested.sent_pairs, tested.task.spec.objectives
    if len(objectives) < 2 or (spec.pick == "score" and spec.targets is None):
        return None
    considered = objectives[:2] if spec.pick == "knee" else objectives
    cost = next((o for o in considered if o in COST_FIELDS), None)
    most = tested.ceilings.get(cost or "")
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
    if found is None or not (found.baseline or found.winner):  # free on both sides: the cost decided nothing
        return None
    # Rows answered by one side only: the winner may be slow on the very rows that cost it most.
    sided = [pair for pair in tied if pair[0].score is not None or pair[1].score is not None]
    found = replace(found, shown=found.shown and compare(sided).shown)
    if found.ci95[1] >= explained_by_order(tested.order_effects, cost, tested.pairs):
        return replace(found, shown=False, bound=f"{found.bound}; the order of the sides may explain it")
    return found
