"""The account of one study that several runs search: who they are, and what each may spend of one budget.

Runs change it by operations that every one of them applies in the same order (`account_log`), so that all of them see
the same account. No clock is compared: a run that dies is noticed by its silence (`Account.expire`).

A run has a `share` of the budget, which covers the worst case of the candidate that it evaluates. Before it sends a
call, it raises its `mark`, what it may have spent by then, within its share. So where it dies, whatever it sent lies
below its mark, and only the rest of its share goes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

Amounts = dict[str, float]
#: Stands for the start of the search among the candidates, of which it is none.
BASELINE = "baseline"
#: What a member may do; `join` makes it one.
OPERATIONS = ("beat", "begin", "draw", "finish", "leave", "expire", "elect")
#: Rounding of sums of dollars.
_TINY = 1e-9


@dataclass
class Member:
    """A run. number: from 1, in the order in which they joined. operations: counted, to notice its silence.

    share, mark: in total over all its processes; share is never below mark. held: what it would reserve for the proof.
    ended: it has left the proof to others; a sign of life that arrives later does not make it one of those who search.
    """

    number: int
    host: str
    share: Amounts = field(default_factory=dict[str, float])
    mark: Amounts = field(default_factory=dict[str, float])
    held: Amounts = field(default_factory=dict[str, float])
    searching: bool = True
    operations: int = 0
    ended: bool = False


@dataclass
class Account:
    """budget: by what has a ceiling. begun: the member that evaluates or has evaluated a candidate, by hash; done: the
    candidates that are evaluated. prover: the member that makes the proof."""

    budget: Amounts = field(default_factory=dict[str, float])
    parts: dict[str, str] = field(default_factory=dict[str, str])
    members: dict[str, Member] = field(default_factory=dict[str, Member])
    begun: dict[str, str] = field(default_factory=dict[str, str])
    done: list[str] = field(default_factory=list[str])
    prover: str | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Account:
        """The account in JSON values of `asdict`."""
        members = {run: Member(**one) for run, one in values["members"].items()}
        return cls(**{**values, "members": members})

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def apply(self, operation: Mapping[str, Any]) -> str:
        """Carry out an operation: {do, by, ...}, with the arguments of the method that it names. Returns its answer:
        "" if it was done, else why it was not."""
        given = dict(operation)
        do, by = given.pop("do"), given.pop("by")
        if do == "join":
            return self.join(by, **given)
        if (member := self.members.get(by)) is None:
            return "unknown"
        if do not in OPERATIONS:
            raise ValueError(f"there is no operation {do!r:.40}")
        member.operations += 1
        member.searching |= not member.ended and do in ("beat", "begin", "draw", "finish")
        return getattr(self, do)(by, **given)

    # Operations

    def join(self, by: str, host: str, parts: Mapping[str, str], budget: Amounts, used: Amounts) -> str:
        """Come in, or come back with what was really spent. A member may come back with a larger budget."""
        if self.members and (differ := sorted(k for k in {*parts, *self.parts} if parts.get(k) != self.parts.get(k))):
            return f"other {', '.join(differ)}"
        old = self.members.get(by)
        larger = old is not None and budget.keys() == self.budget.keys()
        if self.members and budget != self.budget and not (larger and all(budget[w] >= self.budget[w] for w in budget)):
            return "other budget"
        self.parts, self.budget = dict(parts), dict(budget)
        number = old.number if old is not None else len(self.members) + 1
        operations = old.operations + 1 if old is not None else 0
        self.members[by] = Member(number, host, dict(used), dict(used), operations=operations)
        return ""

    def beat(self, by: str) -> str:
        """Be heard of."""
        return ""

    def begin(self, by: str, candidate: str, trials: int, need: Amounts, held: Amounts) -> str:
        """Take a share for a candidate, which nobody else then evaluates; of so many candidates in all."""
        member = self.members[by]
        member.held = held
        if self.begun.get(candidate, by) != by or candidate in self.done:
            return "known"
        if self.prover is not None:
            return "proof"
        if candidate not in (*self.begun, BASELINE) and len({*self.begun} - {BASELINE}) >= trials:
            return "trials"
        if not self._fits({w: member.mark.get(w, 0.0) + need.get(w, 0.0) - member.share.get(w, 0.0) for w in need}):
            return "budget"
        member.share = {w: max(member.share.get(w, 0.0), member.mark.get(w, 0.0) + n) for w, n in need.items()}
        self.begun[candidate] = by
        return ""

    def draw(self, by: str, used: Amounts, more: Amounts, held: Amounts) -> str:
        """Raise the mark to what is needed, and by more where there is room: then the next calls need no operation."""
        member = self.members[by]
        member.held = held
        if not self._fits({w: n - member.share.get(w, 0.0) for w, n in used.items()}):
            return "budget"
        for what, needed in used.items():
            share, wanted = member.share.get(what, 0.0), needed + more.get(what, 0.0)
            roomy = self._fits({what: wanted - share})
            member.share[what] = max(share, wanted if roomy else needed)
            member.mark[what] = max(member.mark.get(what, 0.0), min(wanted, member.share[what]))
        return ""

    def finish(self, by: str, used: Amounts, candidate: str = "", evaluated: bool = False) -> str:
        """End the evaluation of a candidate with what was really spent. The rest of the share goes back."""
        self.members[by].share, self.members[by].mark = dict(used), dict(used)
        if evaluated and self.begun.get(candidate) == by and candidate not in self.done:
            self.done.append(candidate)
        self._drop(by)
        return ""

    def leave(self, by: str, used: Amounts) -> str:
        """Go, with what was really spent."""
        self.members[by].searching = False
        return self.finish(by, used)

    def expire(self, by: str, member: str, operations: int) -> str:
        """Count a member out that was not heard of since so many operations. It is in again with its next one."""
        if self.members[member].operations != operations or not self.members[member].searching:
            return "heard"
        lost = self.members[member]
        lost.share, lost.searching = dict(lost.mark), False
        self._drop(member)
        return ""

    def elect(self, by: str) -> str:
        """Take the proof if nobody has it, and nobody else searches; else go."""
        others = any(one.searching for run, one in self.members.items() if run != by)
        if self.prover not in (None, by) or (self.prover is None and others):
            self.members[by].searching, self.members[by].ended = False, True
            return self.prover or "others"
        self.prover = by
        return ""

    # What is left

    def free(self, what: str) -> float:
        """Return what is in nobody's share, nor reserved for the proof."""
        if what not in self.budget:
            return float("inf")
        held = max((m.held.get(what, 0.0) for m in self.members.values() if m.searching), default=0.0)
        taken = sum(m.share.get(what, 0.0) for m in self.members.values())
        return self.budget[what] - taken - (held if self.prover is None else 0.0)

    def spent(self) -> Amounts:
        """Return what all of them have spent at most."""
        return {what: sum(m.mark.get(what, 0.0) for m in self.members.values()) for what in self.budget}

    def _fits(self, more: Amounts) -> bool:
        return all(n <= 0 or n <= self.free(what) + _TINY for what, n in more.items())

    def _drop(self, by: str) -> None:
        self.begun = {c: run for c, run in self.begun.items() if run != by or c in self.done}
