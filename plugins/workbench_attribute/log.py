"""The log of one run of several agents, and the diagnosis of why it failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Step:
    """What one agent did at one point: an answer of a model, the result of a tool, the outputs of a node.

    Args:
        agent: who acted; of a result of a tool, who called it.
        content: the text.
        role: what the log says of the agent's part, e.g. `user`, or `tool search`.
        error: how the step failed, where the log says so.
        node: of our own runs, the path of the node in the workflow.
    """

    agent: str
    content: str
    role: str = ""
    error: str | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True)
class StoredRow:
    """The result of a run of ours that a log was made of: the row, the repeat, and the hash of the workflow."""

    example: str
    replica: int
    candidate: str
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Log:
    """One run that failed. Steps count from 0.

    Args:
        id: names the log: a file, or a row of a run.
        steps: in the order of time; at least one.
        question: the problem that the run was to solve.
        ground_truth: the right answer, None where it is not known or must not be read.
        outcome: what came out, without anything of the right answer.
        gold_agent, gold_step: who is known to have decided the failure, and when.
        sealed: whether it is of a sealed row, so that nothing of a right answer is in it.
        row: where the log is of a run of ours.
    """

    id: str
    steps: tuple[Step, ...]
    question: str = ""
    ground_truth: str | None = None
    outcome: str = ""
    gold_agent: str | None = None
    gold_step: int | None = None
    sealed: bool = False
    row: StoredRow | None = None

    @property
    def agents(self) -> list[str]:
        """Each agent once, in the order of their first steps."""
        return list(dict.fromkeys(step.agent for step in self.steps))

    @property
    def has_gold(self) -> bool:
        return self.gold_agent is not None and self.gold_step is not None

    def as_dict(self) -> dict[str, Any]:
        """What a judge may read. Not where it is stored: the same log of two runs is judged once."""
        return {name: value for name, value in asdict(self).items() if name != "row"}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Who decided the failure of a log, as one method says.

    Args:
        agent, step: None where the method came to no result; `failure` then says why.
        confidence: the share of the votes that named this agent and step.
        evidence: the reason that was given.
        calls, usd: of all requests, also of those that an earlier run of the command paid for.
        method: its name.
        failure: a kind of failure (`workbench.failures`), `no_fault` where the judge saw none, or `budget`.
        unread: answers that could not be read.
        votes: how many there were.
    """

    agent: str | None
    step: int | None
    confidence: float
    evidence: str
    calls: int
    usd: float
    method: str
    failure: str | None = None
    unread: int = 0
    votes: int = 1

    def as_dict(self) -> Mapping[str, Any]:
        return asdict(self)
