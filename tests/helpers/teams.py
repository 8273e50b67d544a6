"""A team of scripted members, with queries on its trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.lm import Request
from workbench.workflow import Span

OF = {"predict": "question -> answer", "instructions": "Answer."}


ROLES = {m: f"You are {m}." for m in ("ann", "bob", "cid", "dan")}


def team(kind: str, members: Sequence[str] = tuple(ROLES), **rest: Any) -> dict[str, Any]:
    return {kind: OF, "members": {m: ROLES[m] for m in members}, **rest}


def role_of(request: Request) -> str:
    return next((m for m in ROLES if f"You are {m}." in str(request.messages[0]["content"])), "")


def says(answers: dict[str, str | list[str]], ranker: str = "", rates: dict[str, str] | None = None):
    """A script of each member's answers, one per round; the last one repeats, and an empty one is a failure."""
    turns: dict[str, int] = {}

    def say(request: Request) -> str:
        system = str(request.messages[0]["content"])
        if "best ones" in system:
            return ranker
        if "Rate each" in system:
            return (rates or {}).get("all", "")
        member = role_of(request)
        given = answers[member]
        if isinstance(given, str):
            return given
        turns[member] = turns.get(member, -1) + 1
        return given[min(turns[member], len(given) - 1)]

    return say


def notes(outcome: Any) -> dict[str, Any]:
    span: Span = next(s for s in outcome.trace.spans if s.node == "n")
    return span.notes


def spoke(outcome: Any) -> list[str]:
    """The speakers in order, including answers from the journal."""
    return [str(span.agent) for span in outcome.trace.spans if span.node == "n.of"]
