"""Methods that call no model, for comparison: random, majority, lexical."""

from __future__ import annotations

import re
from collections import Counter

from workbench_attribute.diagnosis import Diagnosis
from workbench_attribute.judges import Judge, Method
from workbench_kit.logs import Log

#: Words in a step that failed, or that mentions a failure.
_TROUBLE = re.compile(
    r"traceback|exception|\berrors?\b|\bfail(?:ed|ure|s)?\b|exitcode: [1-9]|\bcannot\b|unable to|not found|incorrect"
    r"|\bwrong\b|\binvalid\b|apologi[sz]e|\bmistaken?\b|\btimed? ?out\b",
    re.IGNORECASE,
)
#: Agents whose steps are results of another agent's action.
_MACHINE = re.compile(r"terminal|\btool\b|environment|executor|computer", re.IGNORECASE)


def _found(name: str, agent: str, step: int, evidence: str) -> Diagnosis:
    return Diagnosis(agent, step, 1.0, evidence, 0, 0.0, name)


async def draw_at_random(log: Log, judge: Judge) -> Diagnosis:
    """Draw an agent and a step, each uniformly and independently, as in the paper."""
    rng = judge.rng(log)
    return _found("random", rng.choice(log.agents), rng.randrange(len(log.steps)), "drawn by the seed")


async def take_majority(log: Log, judge: Judge) -> Diagnosis:
    """Return the agent with most steps. The step is the most frequent mistake in the other logs of the command, if
    known, or else the first one of this agent. Ties go to the earlier step."""
    agent = Counter(step.agent for step in log.steps).most_common(1)[0][0]
    others = Counter(other.gold_step for other in judge.logs if other.gold_step is not None and other.id != log.id)
    if not others:
        first = next(number for number, step in enumerate(log.steps) if step.agent == agent)
        return _found("majority", agent, first, "the agent with most steps, at its first")
    most = max(others.values())
    usual = min(step for step, count in others.items() if count == most)
    why = f"the agent with most steps; step {usual} is the mistake in {most} of {others.total()} other logs"
    return _found("majority", agent, min(usual, len(log.steps) - 1), why)


async def search_words(log: Log, judge: Judge) -> Diagnosis:
    """Return the first step that failed or mentions trouble; if it is the result of a tool, the step before it.

    Lines shared by most logs of the command are the system's own, such as the questions of a ledger, and are skipped.
    """
    shared = judge.shared_lines
    for number, step in enumerate(log.steps):
        own = step.content if not shared else "\n".join(x for x in step.content.splitlines() if x.strip() not in shared)
        said = _TROUBLE.search(own)
        if not step.error and (number == 0 or said is None):  # the first step often states the problem
            continue
        why = step.error or f"step {number} says '{said[0] if said else ''}'"
        at = number - 1 if number and _MACHINE.search(f"{step.agent} {step.role}") else number
        return _found("lexical", log.steps[at].agent, at, why)
    return _found("lexical", log.steps[0].agent, 0, "no step speaks of trouble, so the first one")


BASELINES: dict[str, Method] = {"random": draw_at_random, "majority": take_majority, "lexical": search_words}
