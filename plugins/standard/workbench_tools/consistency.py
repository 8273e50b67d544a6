"""Self-consistent actions: several answers are drawn at a step, their calls are made, and the results decide.

Source: Agent Distillation (Kang et al., arXiv 2505.17612), as in the authors' code at
github.com/Nardien/agent-distillation (`check_code_integrity`, `get_most_common_output_code`): what cannot be read or
run is dropped; of the rest the first answer with the most frequent result counts, and the first of all if nothing ran.
Departures: calls of tools stand in for the paper's code, a final answer votes with its outputs, and the winner's calls
are not made a second time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workbench.lm import Response

#: Sampling temperature if the file gives none: that of the authors' examples.
TEMPERATURE = 0.4


@dataclass(frozen=True)
class Attempt:
    """An answer at a step.

    outcome: of its calls, or its outputs, as text; None if a call failed or the answer could not be read. results:
    messages that report its calls to the model; empty for other answers.
    """

    response: Response
    outcome: str | None
    results: Sequence[dict[str, Any]] = ()


def choose_attempt(attempts: Sequence[Attempt]) -> Attempt:
    """Return the first attempt with the most frequent outcome; the first of all if none has an outcome."""
    counts = Counter(a.outcome for a in attempts if a.outcome is not None)
    if not counts:
        return attempts[0]
    most = counts.most_common(1)[0][0]  # on a tie, the first
    return next(a for a in attempts if a.outcome == most)
