"""The optimizer `fit_value`: learns from runs on train how good a state is, so that judging one takes no call.

No source: Koh et al. (arXiv 2407.01476) ask a model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from workbench import Evaluation, Optimizer, Patch, Study, Workflow
from workbench_tree_search import learned_value as learned
from workbench_tree_search.node import TreeSearch

#: Factor of states that a search visits on train.
WIDENING = 4


def _searches(workflow: Workflow) -> dict[str, TreeSearch]:
    return {name: node for name, node in workflow.enabled_nodes.items() if isinstance(node, TreeSearch)}


class FitValue(Optimizer):
    """Gives `tree_search` nodes a learned value: a logistic regression on the words of the states seen on train.

    On train the search visits more states, at first level by level without a judge, so that it meets successes to learn
    from. The label of a state is the best score that the environment returned from there on, less 20% for each step to
    it. The learned value has to win on val.
    """

    rounds: int = Field(2, ge=1, le=20, description="passes over train, each with the value learned so far")
    batch: int = Field(60, ge=1, le=1000, description="training rows in a pass")

    def reads_search(self) -> bool:
        return False

    def missing(self, workflow: Workflow) -> str | None:
        return None if _searches(workflow) else "a node of the kind `tree_search`"

    async def optimize(self, study: Study) -> Workflow:
        nodes = _searches(study.best)
        pairs: dict[str, dict[str, float]] = {name: {} for name in nodes}
        weights: dict[str, dict[str, float]] = {}
        for number in range(self.rounds if nodes else 0):
            rows = study.rng.sample(list(study.train), min(self.batch, len(study.train)))
            explorer = study.best.patched(Patch(self._wide(nodes, weights), note=f"look around on train, {number}"))
            rows = rows[: self._affordable(study, explorer)]
            if not rows:
                break
            _collect(await study.evaluate(explorer, rows, traces=True, replica=number), pairs)
            fits = {n: learned.fit_weights(list(p.items())) for n, p in pairs.items()}
            weights |= {n: w for n, w in fits.items() if w}
            if not weights:
                continue
            values = {f"nodes.{n}.weights": w for n, w in weights.items()}
            values |= {f"nodes.{n}.value": "learned" for n in weights}
            seen = sum(map(len, pairs.values()))
            learner = study.best.patched(Patch(values, note=f"value learned from {seen} states"))
            if not study.affords(learner):
                break
            await study.evaluate(learner, race=True)
        return study.best

    def _wide(self, nodes: Mapping[str, TreeSearch], weights: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
        """Settings that look at many states, and judge them by what was learned so far: that takes no calls."""
        values: dict[str, Any] = {}
        for name, node in nodes.items():
            known = weights.get(name, {})
            values[f"nodes.{name}.value"] = "learned"
            values[f"nodes.{name}.weights"] = dict(known)
            values[f"nodes.{name}.order"] = "best_first" if known else "bfs"
            values[f"nodes.{name}.evaluations"] = min(1000, WIDENING * node.config.evaluations)
        return values

    def _affordable(self, study: Study, explorer: Workflow) -> int:
        """Compute how many rows can be explored so that the learned value can still be tried on val."""
        left = study.remaining("calls") - study.planned_calls(study.best, study.val)
        each = study.planned_calls(explorer, study.train[:1])
        return self.batch if not each else max(0, min(self.batch, int(left // each) if left < math.inf else self.batch))


def _collect(evaluation: Evaluation, pairs: dict[str, dict[str, float]]) -> None:
    """Each state's text and the best that was seen to follow it, over all runs."""
    for result in evaluation.results:
        for span in result.trace.spans if result.trace is not None else ():
            if span.node in pairs:
                known = pairs[span.node]
                for text, worth in span.notes.get("states", ()):
                    known[text] = max(worth, known.get(text, 0.0))
