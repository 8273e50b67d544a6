"""What a scripted model says in `rl_of_thoughts`: three kinds of questions, each solved by another order of blocks.

A long sum is added right only in parts, and what someone has only by a plan that others were weighed against. A short
calculation has a slip that a check mends; a right result is spoiled by one. Each block writes the notes anew.
"""

from __future__ import annotations

import re

from tests.helpers.gallery_speech import Case, numbers

SHORT = re.compile(r"(\d+) \* (\d+) - (\d+)")


def shown(found: re.Match[str], field: str) -> str:
    """What the prompt shows of a field; empty if it is not there."""
    values = re.findall(rf"(?m)^{field}: (.*)$", found.string)
    return values[-1] if values else ""


def kind_of(question: str) -> str:
    return "short" if SHORT.search(question) else "story" if re.search("fewer|more", question) else "long"


def plan_of(question: str) -> str:
    return "add" if "fewer" in question else "take away"


def truth(question: str) -> int:
    if short := SHORT.search(question):
        return int(short[1]) * int(short[2]) - int(short[3])
    values = numbers(question)
    if kind_of(question) == "long":
        return sum(values)
    return max(values) + min(values) if plan_of(question) == "add" else max(values) - min(values)


def result_of(notes: str) -> int | None:
    return numbers(notes)[0] if notes.startswith("result:") else None


def reason(found: re.Match[str]) -> str:
    question, notes = shown(found, "question"), shown(found, "notes")
    if result_of(notes) is not None:
        return notes
    values = numbers(question)
    if kind_of(question) == "short":
        return f"result: {truth(question) + 1}"
    if kind_of(question) == "long":
        return f"result: {sum(numbers(notes)) if notes.startswith('parts:') else sum(values[:-1])}"
    adds = notes == "plan: add" if notes.startswith("plan:") else plan_of(question) != "add"
    return f"result: {max(values) + min(values) if adds else max(values) - min(values)}"


def refine(found: re.Match[str]) -> str:
    notes, right = shown(found, "notes"), truth(shown(found, "question"))
    result = result_of(notes)
    if result is None:
        return notes
    mended = kind_of(shown(found, "question")) == "short" and result == right + 1
    return f"result: {right if mended else result + 1}"


def decompose(found: re.Match[str]) -> str:
    parts = shown(found, "question").split(" + ")
    return "parts: " + " | ".join(" + ".join(parts[n : n + 2]) for n in range(0, len(parts), 2))


def settle(found: re.Match[str]) -> str:
    """The number of the plan that fits; the first one if none does."""
    wanted = re.search(rf'(\d)\. \{{"notes": "plan: {plan_of(found.string)}"\}}', found.string)
    return wanted[1] if wanted else "1"


def rate(found: re.Match[str]) -> str:
    question, notes = shown(found, "question"), shown(found, "notes")
    kind, result = kind_of(question), result_of(notes)
    ready = notes.startswith("parts:") if kind == "long" else notes == f"plan: {plan_of(question)}"
    slip = kind == "short" and result == truth(question) + 1
    right = result == truth(question)
    ratings = {
        "sense": 3 if ready or right else 2,
        "clear": 3 if ready else 2,
        "sums": 1 if slip else 3,
        "hard": 3 if kind == "long" else 1,
        "ways": 3 if kind == "story" else 1,
        "close": 3 if result is not None else 1,
        "whole": 3 if right else 2,
        "value": 1.0 if right else 0.5 if slip or (ready and kind != "short") else 0.0,
    }
    return "\n".join(f"{name}: {value}" for name, value in ratings.items())


THOUGHTS: dict[str, Case] = {
    "rl_of_thoughts.yaml": Case(
        [
            ("Rate the notes", "question: ", rate),
            ("Reason one step", "question: ", reason),
            ("Cut the question", "question: ", decompose),
            ("Write a plan", "question: ", ["plan: none", "plan: take away", "plan: add"]),
            ("the number of the best answer", "plan: ", settle),
            ("Check the last step", "question: ", refine),
            ("Give the result", "notes: ", lambda found: str((*numbers(shown(found, "notes")), 0)[0])),
        ],
    ),
}
