"""The reward of a proposed task: the solver should be about half sure of its answer (Agent0, arXiv 2511.16043, section
3).

The solver answers a task several times. The share of its answers that agree with the most frequent one is its
agreement p. A proposal earns 1 - 2 |p - 1/2|, more if the answers called tools, less if it is like others of its step,
never below 0, and nothing if it cannot be read or repeats a row of train.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from workbench.task import content_id
from workbench_training.papers.self_play.settings import ALIKE, BAND, MAX_TOOLS, REPETITION, Proposer


@dataclass
class Proposal:
    """A task and the solver's answers to it. fields: empty where the proposal could not be read.

    answers: the value of the answered field, one for each sample; None for a failure. tools: calls of tools in each.
    """

    fields: Mapping[str, Any]
    answers: list[Any] = field(default_factory=list[Any])
    tools: list[int] = field(default_factory=list[int])

    @property
    def id(self) -> str:
        return content_id(self.fields)

    @property
    def agreement(self) -> float:
        """The share of answers that equal the most frequent one; 0 without any."""
        return max(self._votes().values(), default=0) / max(1, len(self.answers))

    @property
    def label(self) -> Any:
        """The most frequent answer; of equally frequent ones the first."""
        votes = self._votes()
        best = max(votes, key=lambda name: votes[name])
        return next(answer for answer in self.answers if answer is not None and _normal(answer) == best)

    def _votes(self) -> Counter[str]:
        return Counter(_normal(answer) for answer in self.answers if answer is not None)


def name_task(fields: Mapping[str, Any]) -> str:
    """A name that tasks share whose fields differ in spaces, case or type alone."""
    return content_id({name: _normal(value) for name, value in fields.items()})


def _normal(answer: Any) -> str:
    text = answer if isinstance(answer, str) else json.dumps(answer, sort_keys=True, ensure_ascii=False, default=str)
    return " ".join(text.split()).casefold()


def reward_proposals(proposals: Sequence[Proposal], known: frozenset[str], settings: Proposer) -> list[float]:
    """The rewards of the proposals of one step.

    Args:
        proposals: all of a step, since what is alike in them earns less.
        known: names (`name_task`) of rows that the proposer is shown.
        settings: the weight of tools.
    """
    alike = _share_alike([_text(proposal) for proposal in proposals], ALIKE)
    return [
        0.0 if not proposal.fields or name_task(proposal.fields) in known else _earned(proposal, share, settings)
        for proposal, share in zip(proposals, alike, strict=True)
    ]


def _earned(proposal: Proposal, alike: float, settings: Proposer) -> float:
    uncertainty = 1.0 - 2.0 * abs(proposal.agreement - 0.5)
    calls = [min(n, MAX_TOOLS) / MAX_TOOLS for n in proposal.tools]
    tools = sum(calls) / max(1, len(calls))
    return max(0.0, uncertainty + settings.tools * tools - REPETITION * alike)


def _text(proposal: Proposal) -> str:
    return " ".join(_normal(value) for value in proposal.fields.values())


def _share_alike(texts: Sequence[str], least: float) -> list[float]:
    """For each text, the share of all texts in its cluster; clusters join texts that are alike. A text without a like
    has the share of one, as in the paper. An empty text is like none."""
    sets, cluster = [_pairs(text) for text in texts], list(range(len(texts)))
    for i, mine in enumerate(sets):
        for j in range(i):
            if mine and sets[j] and len(mine & sets[j]) / len(mine | sets[j]) >= least:
                old, new = cluster[i], cluster[j]
                cluster = [new if c == old else c for c in cluster]
    sizes = Counter(cluster)
    return [sizes[c] / len(texts) for c in cluster]


def _pairs(text: str) -> set[tuple[str, ...]]:
    """Pairs of neighbouring words; of a single word, the word."""
    words = text.split()
    return set(pairwise(words)) or {(word,) for word in words}


def choose_rows(proposals: Sequence[Proposal], known: frozenset[str]) -> list[Proposal]:
    """The proposals that the solver learns: each once, read, new, answered, and of an agreement within the band."""
    (low, high), found = BAND, dict[str, Proposal]()
    for proposal in proposals:
        agreement = proposal.agreement
        if proposal.fields and agreement > 0 and low <= agreement <= high:
            found[name_task(proposal.fields)] = proposal
    return [proposal for name, proposal in found.items() if name not in known]
