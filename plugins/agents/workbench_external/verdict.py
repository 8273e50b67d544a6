"""Compares what two runs of an agent sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff

from workbench_external.slots.template import Template, mark_inputs


@dataclass(frozen=True)
class Difference:
    """A proved text, and the text that the changed source sends instead."""

    proved: str
    sent: str

    def lines(self) -> list[str]:
        found = unified_diff(self.proved.splitlines(), self.sent.splitlines(), "proved", "sent", lineterm="", n=1)
        return [*found]


@dataclass
class Verdict:
    """The result of a trial: texts that differ, by slot. is_unclear: the cause is unknown; trials with fewer changes
    find it. started: whether the agent was started for it."""

    differs: dict[str, Difference] = field(default_factory=dict[str, Difference])
    is_unclear: bool = False
    started: bool = False


@dataclass
class Sent:
    """The texts that an agent sent on a row, and the slots among them. failure: of the row."""

    texts: list[str] = field(default_factory=list[str])
    used: set[str] = field(default_factory=set[str])
    failure: str = ""


def judge(before: Sent, after: Sent, texts: Mapping[str, str]) -> Verdict:
    """Compare the requests of two runs on a row. A difference outside of all slots has the name ""."""
    verdict = Verdict(is_unclear=not after.texts)
    there = {_plain(text) for text in after.texts}
    for text in before.texts:
        if _plain(text) in there:
            continue
        nearest = _nearest(text, after.texts) if after.texts else f"nothing: {after.failure}"
        held = [name for name, new in texts.items() if name in before.used and holds(text, new)]
        lost = [name for name in held if not any(holds(other, texts[name]) for other in after.texts)]
        verdict.is_unclear |= not lost and len(held) > 1
        for name in lost or held or [""]:
            verdict.differs.setdefault(name, Difference(text, nearest))
    return verdict


def _plain(text: str) -> str:
    """Return a text without parts that vary between runs, such as dates."""
    return mark_inputs(text, {}).strip()


def holds(text: str, new: str) -> bool:
    """Return True if a text contains the constants of another, in order."""
    at = 0
    for constant in Template(new.strip()).constants:
        if (found := text.find(constant, at)) < 0:
            return False
        at = found + len(constant)
    return True


def _nearest(text: str, others: Sequence[str]) -> str:
    """Return the text with the longest common prefix."""

    def shared(other: str) -> int:
        return next((n for n, (one, two) in enumerate(zip(text, other, strict=False)) if one != two), len(other))

    return max(others, key=shared, default="")
