"""The optimizer `astar`: plans that did well on train become the memory of `astar` nodes.

Source: the long-term memory of ToolChain* (Zhuang et al., arXiv 2310.13227), which keeps solved tasks. Departures: a
memory must win on val, and several memories and weights compete, since a memory can mislead as well as help.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field

from workbench import Evaluation, Optimizer, Patch, Study, Workflow
from workbench.base.hashing import digest
from workbench.workflow import learnable_addresses

Entry = tuple[str, tuple[str, ...]]  # a task, and the names of the tools that solved it


class PlanMemory(Optimizer):
    """Fills the plan memory of `astar` nodes from solved training tasks, and compares memories and weights on val.

    Each round runs the best workflow on train. A better memory solves more tasks, and so grows.
    """

    powers = {}

    rounds: int = Field(3, ge=1, le=50, description="passes over train, each followed by evaluating memories on val")
    batch: int = Field(60, ge=1, le=1000, description="training rows in a pass")
    threshold: float = Field(1.0, gt=0, le=1, description="least score of a good plan")
    size: int = Field(60, ge=1, le=1000, description="plans in a memory, the most frequent ones first")
    weights: list[float] = Field([0.5, 0.8], min_length=1, description="values of alpha and beta to compare")
    trials: int = Field(4, ge=1, le=50, description="memories evaluated on val in a round")

    def reads_search(self) -> bool:
        return False

    def lacking(self, workflow: Workflow) -> str | None:
        return None if learnable_addresses(workflow, "plans") else "a node of the kind `astar`"

    async def optimize(self, study: Study) -> Workflow:
        addresses = list(learnable_addresses(study.best, "plans"))
        found: dict[str, Counter[Entry]] = {a: Counter() for a in addresses}
        tried: set[str] = set()
        for number in range(self.rounds if addresses else 0):
            rows = study.rng.sample(list(study.train), min(self.batch, len(study.train)))
            if not rows or not study.affords(study.best, [*rows, *study.val]):
                break
            self._collect(await study.evaluate(study.best, rows, traces=True, replica=number), found)
            left = self.trials
            for values, note in self._memories(study, found):
                if not left or (study.best_evaluation is not None and study.best_evaluation.score >= 1.0):
                    break
                if digest(values) in tried:
                    continue
                tried.add(digest(values))
                candidate = study.best.patched(Patch(values, note=note))
                if not study.affords(candidate):
                    return study.best
                left -= 1
                await study.evaluate(candidate, race=True)
        return study.best

    def _collect(self, evaluation: Evaluation, found: Mapping[str, Counter[Entry]]) -> None:
        for result in evaluation.results:
            if result.failure or (result.score or 0.0) < self.threshold or result.trace is None:
                continue
            for span in result.trace.spans:
                counter = found.get(f"nodes.{span.node}.plans")
                if counter is not None and span.notes.get("plan"):
                    counter[(span.notes["task"], tuple(span.notes["plan"]))] += 1

    def _memories(self, study: Study, found: Mapping[str, Counter[Entry]]) -> Iterator[tuple[dict[str, Any], str]]:
        """Yield the plans to try: all plans with each weight, those of sequences seen more than once, then halves at
        random."""
        full = {address: self._chosen(counter) for address, counter in found.items()}
        if not any(full.values()):
            return
        for weight in self.weights:
            yield self._values(full, weight), f"{_count(full)} plans, weight {weight}"
        often = {a: [e for e in entries if sum(e[1] == o[1] for o in entries) > 1] for a, entries in full.items()}
        if any(often.values()):
            yield self._values(often, self.weights[0]), f"{_count(often)} plans seen more than once"
        for _ in range(self.trials):
            half = {a: [e for e in entries if study.rng.random() < 0.5] for a, entries in full.items()}
            yield self._values(half, study.rng.choice(self.weights)), f"{_count(half)} plans, drawn"

    def _chosen(self, counter: Counter[Entry]) -> list[Entry]:
        """A plan per task, the most frequent one; of all tasks the most frequent ones first."""
        kept: dict[str, Entry] = {}
        for entry, _ in counter.most_common():
            kept.setdefault(entry[0], entry)
        return list(kept.values())[: self.size]

    def _values(self, memory: Mapping[str, Sequence[Entry]], weight: float) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for address, entries in memory.items():
            node = address.removesuffix(".plans")
            values[address] = [{"task": task, "tools": list(tools)} for task, tools in entries]
            values |= {f"{node}.alpha": weight, f"{node}.beta": weight}
        return values


def _count(memory: Mapping[str, Sequence[Entry]]) -> int:
    return sum(map(len, memory.values()))
