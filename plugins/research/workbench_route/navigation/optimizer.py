"""The optimizer `navigate`: learns from the scores of whole rows what to choose in which state.

Source: RL of Thoughts (Hao et al., arXiv 2505.14140). Departures, with reasons, are in the README.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pydantic import Field

from workbench import Evaluation, Example, Optimizer, Patch, Study, Workflow
from workbench.errors import SpecError, suggest
from workbench.workflow import Trace, learnable_addresses, node_at
from workbench_route.navigation.node import Navigate
from workbench_route.navigation.q_learning import Choice, learn_navigator, row_choices

#: Share of random choices in the second and in the last round; in the first one all are random.
EXPLORE = (0.5, 0.1)


class LearnNavigate(Optimizer):
    """Learns the navigators of `navigate` nodes by reinforcement: rows of train are run with random choices and choices
    learned so far, and Q-learning finds which choice leads to a high score from which state.

    Each round's navigator is scored on val, and the best one is taken.
    """

    rounds: int = Field(8, ge=1, le=100, description="number of times that rows of train are run and learned from")
    batch: int = Field(60, ge=1, le=10_000, description="maximum number of train rows in a round")
    judged: str | None = Field(
        None,
        description="an input of the navigator that says how good the partial solution is, from 0 to 1; what it rises "
        "by is rewarded at once. None: the score at the end is the only reward",
    )

    def reads_search(self) -> bool:
        return False

    def missing(self, workflow: Workflow) -> str | None:
        return None if find_navigators(workflow) else "a node of the kind `navigate`"

    async def ready(self, study: Study) -> None:
        for node in find_navigators(study.workflow).values() if self.judged is not None else ():
            field = next((f for f in node.signature.inputs if f.name == self.judged), None)
            if field is None or field.type not in (int, float):
                numbers = [f.name for f in node.signature.inputs if f.type in (int, float)]
                raise SpecError(
                    f"'{self.judged}' is no number that '{node.name}' reads",
                    hint=suggest(str(self.judged), numbers) or f"Write it in its signature as `{self.judged}: float`.",
                    path=("judged",),
                )

    def max_calls(self, workflow: Workflow, train: Sequence[Example], val: Sequence[Example]) -> int | None:
        return self.rounds * (min(self.batch, len(train)) + len(val)) * workflow.max_calls

    async def optimize(self, study: Study) -> Workflow:
        start, learned = study.best, dict[str, str]()
        nodes = find_navigators(start)
        episodes: dict[str, list[Choice]] = {address: [] for address in nodes}
        for number in range(self.rounds if nodes else 0):
            explore = {f"{address}.explore": self._explore(number) for address in nodes}
            explorer = start.patched(Patch({**learned, **explore}, note=f"try choices on train, {number + 1}"))
            rows = study.rng.sample(list(study.train), min(self.batch, len(study.train)))
            rows = rows[: self._affordable(study, explorer)]
            if not rows:
                break
            evaluation = await study.evaluate(explorer, rows, traces=True, replica=number)
            for address, node in nodes.items():
                episodes[address] += collect(evaluation, address.removeprefix("nodes."), node, self.judged)
            for address, node in nodes.items():
                if episodes[address]:
                    seed, choices = study.rng.randrange(2**31), [str(choice) for choice in node.choices]
                    fit = partial(learn_navigator, node.inputs, choices, tuple(episodes[address]), seed)
                    learned[f"{address}.learned"] = (await asyncio.to_thread(fit)).dump()
            if not learned:
                continue
            count = sum(map(len, episodes.values()))
            learner = start.patched(Patch(learned, note=f"navigator learned from {count} choices"))
            if not study.affords(learner):
                break
            scored = await study.evaluate(learner, race=True)
            study.log(report(number, count, evaluation, scored))
        return study.best

    def _explore(self, number: int) -> float:
        """Return the share of random choices in a round."""
        first, last = EXPLORE
        later = max(1, self.rounds - 2)
        return 1.0 if number == 0 else round(first + (last - first) * (number - 1) / later, 4)

    def _affordable(self, study: Study, explorer: Workflow) -> int:
        """Return how many rows can be explored so that the navigator can still be scored on val."""
        left = study.remaining("calls") - study.planned_calls(study.best, study.val)
        each = study.planned_calls(explorer, study.train[:1])
        return self.batch if not each or left == math.inf else max(0, min(self.batch, int(left // each)))


def find_navigators(workflow: Workflow) -> dict[str, Navigate]:
    """Return the `navigate` nodes by address, also those inside other nodes. Those of another file are not learned."""
    owners = [address.rpartition(".")[0] for address in learnable_addresses(workflow, "navigator")]
    found = {owner: node_at(workflow, f"{owner}.learned") for owner in owners}
    return {owner: node for owner, node in found.items() if isinstance(node, Navigate)}


def collect(evaluation: Evaluation, path: str, node: Navigate, judged: str | None) -> list[Choice]:
    """Return the choices of a node in all rows that were scored. A row that failed by its own choices has score 0."""
    found: list[Choice] = []
    for result in evaluation.results:
        if result.trace is not None and result.score is not None:
            found += _choices(result.trace, path, node, judged, result.score)
    return found


def _choices(trace: Trace, path: str, node: Navigate, judged: str | None, score: float) -> list[Choice]:
    spans = [
        span for span in sorted(trace.spans, key=lambda s: s.order) if span.node == path and "chosen" in span.notes
    ]
    notes: list[Mapping[str, Any]] = [span.notes for span in spans]
    values = None
    if judged is not None:
        values = [_read_number(node, judged, span.inputs) for span in spans]
    return row_choices([n["features"] for n in notes], [n["chosen"] for n in notes], score, values)


def _read_number(node: Navigate, name: str, inputs: Mapping[str, Any]) -> float:
    """Return the value of a field as the navigator reads it, limited to the range of a score."""
    field = next(f for f in node.space.fields if f.name == name)
    return min(1.0, max(0.0, type(node.space)([field]).encode(inputs)[0]))


def report(number: int, count: int, explored: Evaluation, scored: Evaluation) -> str:
    """Return the line of a round in the log."""
    whole = "" if scored.complete else ", stopped early as clearly worse than the best"
    return (
        f"round {number + 1}: score {explored.score:.3f} while exploring train, {count} choices so far; "
        f"score {scored.score:.3f} of the navigator on val{whole}"
    )
