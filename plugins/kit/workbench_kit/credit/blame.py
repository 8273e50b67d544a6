"""Find the nodes of a workflow that decide its failures on train rows, for an optimizer to spend its edits there."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from workbench.runtime import Draw
from workbench.spec import LMSpec
from workbench.study import Evaluation, Evaluator, Result, Study, score_of
from workbench.task import Example
from workbench.workflow import Workflow
from workbench_kit.credit.repair import Address, Repair
from workbench_kit.credit.repaired_context import Repaired
from workbench_kit.credit.replay import bisect_steps, max_reruns
from workbench_kit.credit.spectrum import Element, elements_of, rank_nodes
from workbench_kit.credit.steps import steps_of

#: Share of draws that go to any node, independent of blame: a diagnosis may be wrong.
ANY = 0.15

#: Minimum suspiciousness by spectra; Ochiai's coefficient by chance is near the failure rate.
SUSPICIOUS = 0.5


@dataclass(frozen=True)
class Blame:
    """The number of examined failures that each node decides.

    Attributes:
        decisive: by node of the workflow, most first. Empty if nothing is known.
        examined: number of failures examined.
        method: `replay` (a model of another role repaired steps), or `spectrum`.
    """

    decisive: Mapping[str, float] = field(default_factory=dict[str, float])
    examined: int = 0
    method: str = ""

    def weight(self, node: str, nodes: Sequence[str]) -> float:
        """Return the share of edits that a node gets among some nodes; equal shares if none of them is blamed."""
        total = math.fsum(self.decisive.get(name, 0.0) for name in nodes)
        if not total:
            return 1 / len(nodes)
        return (1 - ANY) * self.decisive.get(node, 0.0) / total + ANY / len(nodes)

    def spares(self, node: str, nodes: Iterable[str], rng: random.Random) -> bool:
        """Return True to skip an edit of a node that is not blamed, if another editable node is.

        A share of `ANY` is kept. Settings outside nodes (node "") are never skipped. nodes: the editable ones.
        """
        blamed = any(self.decisive.get(name) for name in nodes)
        return bool(node) and blamed and not self.decisive.get(node) and rng.random() >= ANY

    def choose(self, addresses: Sequence[str], rng: random.Random) -> str:
        """Draw an address of a setting (nodes.NODE...) by the weight of its node."""
        names = [node_of(a) for a in addresses]
        nodes = list(dict.fromkeys(names))
        return rng.choices(addresses, [self.weight(n, nodes) / names.count(n) for n in names])[0]


def node_of(address: str) -> str:
    """Return the node of the workflow in an address; "" if there is none."""
    parts = address.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "nodes" else ""


async def blame_nodes(study: Study, workflow: Workflow, examples: Sequence[Example] | None = None) -> Blame:
    """Find which nodes of a workflow decide its failures on train rows (`guided: true` of some optimizers).

    If the file names a `proposer` that is another model than the task's, it repairs steps of failed rows, which are
    rerun: a few calls each, paid by the budget. Otherwise, or if no repair helps, failed and passed runs are compared,
    without a call.

    Args:
        study: that of the optimizer.
        workflow: the candidate.
        examples: of train; default: the first 16. Earlier runs and examinations are reused at no cost.

    Raises:
        BudgetSpent: at the ceiling.
    """
    rows = list(study.train[:16] if examples is None else examples)
    key = ("blame", workflow.hash, *sorted(row.id for row in rows))
    known: Blame | None = study.progress.memo.get(key)
    if known is None:
        known = study.progress.memo[key] = await _blame(study, workflow, rows)
        shares = ", ".join(f"{node} {share:g}" for node, share in known.decisive.items()) or "no node"
        study.log(f"failures are decided by: {shares}", examined=known.examined, method=known.method)
    return known


async def _blame(study: Study, workflow: Workflow, rows: Sequence[Example]) -> Blame:
    evaluation = await study.evaluate(workflow, rows, traces=True)
    spec, own = study.role_spec("proposer"), study.evaluator.runtime.lm_spec("task", workflow)
    if spec is not None and spec.model != own.model:
        failed = affordable_failures(evaluation, study.remaining() / 4)
        found = await replay_blame(study.evaluator, workflow, failed, spec)
        if found.decisive:
            return found
    return spectrum_blame(evaluation, list(workflow.nodes))


#: Maximum number of failed rows that are rerun.
REPEATED = 4


def affordable_failures(evaluation: Evaluation, calls: float) -> list[Result]:
    """Return failed rows with traces, at most REPEATED, and few enough for replays of all within `calls` calls."""
    failed = [r for r in evaluation.results if r.trace is not None and r.score is not None and r.score < 1]
    chosen: list[Result] = []
    for result in failed[:REPEATED]:
        assert result.trace is not None
        calls -= max_reruns(max(1, len(steps_of(result.trace)))) * max(1, result.calls)
        if calls < 0:
            break
        chosen.append(result)
    return chosen


async def replay_blame(evaluator: Evaluator, workflow: Workflow, failed: Sequence[Result], lm: LMSpec) -> Blame:
    """Blame by counterfactual replay: each failed row is rerun with steps repaired by `lm`.

    Args:
        evaluator: that of the run.
        workflow: the failed workflow.
        failed: rows with traces.
        lm: the model that repairs.

    Raises:
        BudgetSpent: at the ceiling.
    """
    program, counts = evaluator.program(workflow), Counter[str]()
    for result in failed:
        assert result.trace is not None

        async def run(repairs: Mapping[Address, Repair], result: Result = result) -> bool:
            again = await evaluator.run_one(program, result.example, Draw(variation=Repaired(repairs)))
            return again.score is not None and again.score > score_of(result)

        found = await bisect_steps(
            steps_of(result.trace), run, lambda step: [Repair(lm=lm)] if step.response is not None else []
        )
        if found.step is not None:
            counts[found.step.top] += 1
    return Blame(dict(counts.most_common()), len(failed), "replay")


def spectrum_blame(evaluation: Evaluation, order: Sequence[str]) -> Blame:
    """Blame by spectra, without a call: nodes whose elements occur in failed runs and not in passed ones."""
    sides: tuple[list[frozenset[Element]], list[frozenset[Element]]] = ([], [])
    for result in evaluation.results:
        if result.trace is not None and result.score is not None:
            sides[result.score >= 1].append(elements_of(result.trace))
    failed, passed = sides
    if not failed or not passed:
        return Blame({}, len(failed), "spectrum")
    ranked = [s for s in rank_nodes(passed, failed, order=order) if s.suspiciousness > SUSPICIOUS]
    found: dict[str, float] = {}
    for suspect in ranked:
        found.setdefault(suspect.node.partition(".")[0], suspect.suspiciousness)
    return Blame(found, len(failed), "spectrum")
