"""The diagnosis of why one log failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The agent and step that decided the failure of a log, according to a method.

    Args:
        agent, step: None if the method found no result; `failure` is then the reason.
        confidence: the share of the votes for this agent and step.
        evidence: the reason that was given.
        calls, usd: of all requests, including those that an earlier run of the command paid for.
        method: its name.
        failure: a kind of failure (`workbench.errors`), `no_fault` if the judge saw none, or `budget`.
        unread: number of answers that could not be read.
        votes: number of votes.
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
