"""Prompts of the proposer, and parsers of its answers: causal insights, and preferences behind edits.

Sources: CLIN (Majumder et al., arXiv 2310.10134) rewrites a short list of causal statements after each trial, from the
trial and its last three lists; CIPHER (Gao et al., arXiv 2404.15269) asks which preference explains a user's edit. Our
own wording; that the proposer is told how earlier lists scored is ours, too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from workbench import Evaluation
from workbench.base.text import short
from workbench.study import score_of

LONGEST = 240  # characters of one statement

_INSIGHTS = """\
You keep the notes of an assistant that answers one kind of task again and again. After each trial you rewrite them.
A note is one causal statement that holds for more than one task: "X is necessary for Y", "X may help with Y" where you
are not sure, or "X does not contribute to Y". Keep what the trial confirms, turn "is necessary" into "may" where it
speaks against a note, drop what is wrong, add what is new. Never write down the answer to one single task.
Answer with at most {most} lines, each beginning with "- "."""

_PREFERENCE = """\
A user changed what an assistant had written. Which lasting preference of the user explains the change? Answer with one
short sentence about style or content that would hold for other texts of this kind, and nothing else."""


def insights_messages(
    trial: Evaluation,
    earlier: Sequence[tuple[Sequence[str], float | None]],
    most: int,
    shown: int,
    against: Collection[str] = (),
) -> list[dict[str, str]]:
    """Asks for the list after a trial. earlier: the last lists, each with its score on other tasks if it was tried.

    against: statements with which the answers were worse than without.
    """
    parts = []
    for lines, score in earlier[-3:]:
        about = "not tried alone" if score is None else f"score {score:.2f}"
        parts.append(f"Notes ({about}):\n" + ("\n".join(f"- {line}" for line in lines) or "none yet"))
    if against:
        parts.append("Answers were worse with these notes than without:\n" + "\n".join(f"- {line}" for line in against))
    parts.append(f"The trial (mean score {trial.score:.2f}):\n{_histories(trial, shown)}")
    return [{"role": "system", "content": _INSIGHTS.format(most=most)}, {"role": "user", "content": "\n\n".join(parts)}]


def read_insights(text: str, most: int) -> list[str]:
    """The statements of an answer: lines with a bullet or a number, each once. What is no list gives none."""
    found: list[str] = []
    for said in re.findall(r"(?m)^[ \t]*(?:[-*•]|\d{1,2}[.)])[ \t]+(\S.*)", text):
        statement = " ".join(said.split())
        if 8 <= len(statement) <= LONGEST and statement not in found:
            found.append(statement)
    return found[:most]


def preference_messages(context: Mapping[str, Any], draft: str, edited: str, shown: int) -> list[dict[str, str]]:
    share = max(200, shown // 3)
    text = f"The situation: {short(dict(context), share)}\nBefore:\n{draft[:share]}\nAfter:\n{edited[:share]}"
    return [{"role": "system", "content": _PREFERENCE}, {"role": "user", "content": text}]


def read_preference(text: str) -> str:
    """The first line that says something; '' if there is none."""
    lines = (" ".join(line.strip(" -*\"'").split()) for line in text.splitlines())
    return next((line[:LONGEST] for line in lines if len(line) >= 8), "")


def _histories(trial: Evaluation, shown: int) -> str:
    """Failures and successes by turns: a cause shows in the difference."""
    ordered = sorted((r for r in trial.results if r.score is not None), key=score_of)
    turns = [r for pair in zip(ordered, reversed(ordered), strict=True) for r in pair][: len(ordered)]
    share = max(160, shown // max(1, len(turns)))
    lines = []
    for result in turns:
        line = f"- score {score_of(result):.2f}; task: {short(dict(result.example.fields), share // 2)}; "
        line += f"answer: {short(dict(result.prediction), share // 3)}"
        if result.failure or result.feedback:
            line += f"; {result.message or result.feedback}"
        lines.append(line[:share])
    return "\n".join(lines)[:shown]
