"""`workbench agent apply`: finds changed texts in the source, tries the changed agent, and writes the proved texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from workbench.base.text import short
from workbench_external.apply import Edit, Finding, find_text, write_edits, write_together
from workbench_external.config import Slot
from workbench_external.node import External
from workbench_external.sources.folder import Sources
from workbench_external.trial import NotTried, Trial, try_rows
from workbench_external.verdict import Difference, Verdict


@dataclass
class Entry:
    """A text that a run changed. why: the reason why it is not written; "" while it may be. spaced: for a text in
    several places, the edits of each place that double a space of the old text, to see which places are sent."""

    address: str
    node: str
    name: str
    slot: Slot
    finding: Finding
    is_there: bool = False
    why: str = ""
    difference: Difference | None = None
    way: int = 0
    spaced: tuple[Finding, ...] = ()

    @property
    def edits(self) -> tuple[Edit, ...]:
        return () if self.why or not self.finding.ways else self.finding.ways[self.way]

    @property
    def may_be_written(self) -> bool:
        """Return True if a trial can show how to write it."""
        return not self.why or bool(self.finding.several)

    def refuse(self, why: str, difference: Difference | None = None) -> None:
        self.why, self.difference = self.why or why, difference


def find_entries(agents: Mapping[str, External], folder: Path) -> list[Entry]:
    """Return the changed texts of some agents, with their places in a folder."""
    found = list[Entry]()
    for node, agent in agents.items():
        sources, slots = Sources([folder], agent.sources.settings), agent.config.slots or {}
        unchanged = {name: slot for name, slot in slots.items() if slot.text in (None, slot.match)}
        own = list[Entry]()
        for name, slot in slots.items():
            if name in unchanged:
                continue
            turned = slot.model_copy(update={"match": slot.text, "text": slot.match})
            entry = Entry(f"nodes.{node}.slots.{name}", node, name, slot, find_text(slot, sources))
            entry.why = entry.finding.why
            if entry.finding.several:
                spaced = slot.model_copy(update={"text": _spaced(slot.match)})
                entry.spaced = find_text(spaced, sources).several
            elif not entry.finding.ways:
                entry.is_there = bool(find_text(turned, sources).ways)
                if entry.why.startswith("is not in"):
                    entry.why += f", where the search had {short(slot.match, 60)}: it may have been edited since"
            own.append(entry)
        kept = {edit.place: name for name, slot in unchanged.items() if own for edit in find_text(slot, sources).edits}
        for entry in own:
            if (other := next((kept[edit.place] for edit in entry.edits if edit.place in kept), None)) is not None:
                doubt = f"{other}, which was not changed, stands there, too"
                entry.finding = replace(entry.finding, doubt=entry.finding.doubt or doubt)
        found += own
    return found


def _spaced(text: str) -> str:
    """Return a text with one space doubled, which changes nothing for its readers, not even for a shell."""
    return re.sub(r"(?<=\S) (?=\S)", "  ", text, count=1)


def write_entries(entries: Iterable[Entry]) -> dict[Path, str]:
    """Return the new content of each file."""
    return write_edits(edit for entry in entries for edit in entry.edits)


def try_entries(
    entries: Sequence[Entry],
    agents: Mapping[str, External],
    folder: Path,
    rows: Sequence[Mapping[str, Any]],
    report: Callable[[str], None] = lambda line: None,
) -> None:
    """Start each agent from the changed source, and refuse the texts that it sends differently from the proved ones.

    report: takes a line for each trial. Raises NotTried.
    """
    numbers = count(1)
    trials = {
        node: Trial(agent, folder, try_rows(rows, agent))
        for node, agent in agents.items()
        if any(entry.node == node and entry.may_be_written for entry in entries)
    }
    for _ in trials:  # texts accepted for the last one are also tried with the first one
        for node, trial in trials.items():
            own = [entry for entry in entries if entry.node == node and entry.may_be_written]
            _Search(trial, [entry for entry in entries if entry.node != node], numbers, report).settle(own)


@dataclass
class _Group:
    """The entries of one place in the source, as for a description that a system message repeats. An edit there changes
    all of them. wrong: the ways that failed."""

    entries: list[Entry]
    wrong: set[int] = field(default_factory=set[int])

    @property
    def ways(self) -> int:
        return min(len(entry.finding.ways) for entry in self.entries)

    def turn(self) -> bool:
        """Switch to the next way that has not failed. Returns False if there is none."""
        present = self.entries[0].way
        others = [way % self.ways for way in range(present + 1, present + self.ways)]
        for entry in self.entries:
            entry.way = next((way for way in others if way not in self.wrong), present)
        return self.entries[0].way != present


class _Search:
    """The search for the texts of an agent that can be written together, in few starts."""

    def __init__(self, trial: Trial, others: Sequence[Entry], numbers: Iterable[int], report: Callable[[str], None]):
        self.trial, self.others, self.numbers, self.report = trial, others, iter(numbers), report

    def settle(self, own: Sequence[Entry]) -> None:
        """Find the way to write each text, and refuse those without one. Raises NotTried."""
        unsent = self.trial.find_unsent({entry.name: entry.slot.text for entry in own})
        for entry in own:  # texts that no request uses cannot be checked, so they are not tried
            if entry.name in unsent:
                entry.refuse("was not sent on the rows tried, so it is not proved")
            elif entry.finding.several:
                self._narrow(entry)
        groups = [_Group(group) for group in _by_place(entry for entry in own if entry.edits)]
        good = self._add([], groups, every=False)
        if good and self._try([], good, every=True).differs:
            self._add([], good, every=True)

    def _narrow(self, entry: Entry) -> None:
        """Limit a text in several places to those from which it is sent. Other places may have another purpose, such as
        a command, so the old text is used to find out."""
        sent, left = list[Finding](), list[str]()
        for one, spaced in zip(entry.finding.several, entry.spaced, strict=True):
            changed = write_edits(spaced.ways[0]) if spaced.ways else {}
            is_sent = bool(changed) and self.trial.is_sent(changed, _spaced(entry.slot.match))
            sent += [one] if is_sent else []
            left += [] if is_sent else [one.where]
        if not sent or not all(one.ways for one in sent):
            return
        entry.finding, entry.why = write_together(sent), ""
        if left:
            self.report(f"{entry.name} stands in {', '.join(left)}, too, and is left there: no request tried needs it")

    def _add(self, good: Sequence[_Group], new: Sequence[_Group], every: bool) -> list[_Group]:
        """Add those of the new groups that work together with the good ones; refuse the others.

        All are tried at once, in each way, then in two halves: the groups that the difference names come last. every:
        on every row.
        """
        if not new:
            return [*good]
        tried = set[tuple[int, ...]]()
        while True:
            tried.add(tuple(group.entries[0].way for group in new))
            verdict = self._try(good, new, every)
            if not verdict.differs:
                return [*good, *new]
            named = [group for group in new if any(entry.name in verdict.differs for entry in group.entries)]
            is_clear = len(new) == 1 or (bool(named) and not verdict.is_unclear)
            moving = [*new] if len(new) == 1 or not is_clear else named
            for group in moving if is_clear else ():
                group.wrong.add(group.entries[0].way)
            turned = [group.turn() for group in moving]
            if not (all(turned) if is_clear else any(turned)):
                break
            if tuple(group.entries[0].way for group in new) in tried:
                break
        if len(new) == 1:
            return self._refuse(good, new[0], verdict, every)
        for group in new:  # another one may have been the cause
            group.wrong.clear()
        last = named if is_clear and len(named) < len(new) else [*new[(len(new) + 1) // 2 :]]
        first = [group for group in new if group not in last]
        return self._add(self._add(good, first, every), last, every)

    def _refuse(self, good: Sequence[_Group], group: _Group, verdict: Verdict, every: bool) -> list[_Group]:
        named = [entry for entry in group.entries if entry.name in verdict.differs] or group.entries
        for entry in named:
            why = f"is found in {entry.finding.where}, and cannot be written: the changed agent sends another text"
            entry.refuse(why, verdict.differs.get(entry.name) or next(iter(verdict.differs.values())))
        left = [entry for entry in group.entries if entry not in named]
        return self._add(good, [_Group(left)] if left else [], every)

    def _try(self, good: Sequence[_Group], new: Sequence[_Group], every: bool) -> Verdict:
        chosen = [entry for group in (*good, *new) for entry in group.entries]
        texts = {entry.name: entry.slot.text for entry in chosen}
        of = None if every else {entry.name for group in new for entry in group.entries}
        verdict = self.trial.compare(write_entries([*chosen, *self.others]), texts, of)
        if verdict.started:
            told = [f"{entry.name} in {entry.finding.where}" for group in new for entry in group.entries]
            what = ", ".join(told[:3]) + (f" and {len(told) - 3} more" if len(told) > 3 else "")
            named = ", ".join(name for name in verdict.differs if name)
            end = "sends them" if len(told) > 1 else "sends it"
            end = f"sends another text{f' for {named}' if named and len(told) > 1 else ''}" if verdict.differs else end
            self.report(f"trial {next(self.numbers)}: {what} ... {end}")
        return verdict


def _by_place(entries: Iterable[Entry]) -> list[list[Entry]]:
    """Group the entries by place in the source."""
    found: dict[tuple[Path, int, int], list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.finding.ways[0][0].place, []).append(entry)
    return [*found.values()]


def refuse_uncertain(entries: Sequence[Entry]) -> None:
    """Refuse the texts that need a trial to be written."""
    for entry in entries:
        if entry.edits and not entry.finding.is_certain:
            marks = sorted({*"{}$%\\`"} & {*(entry.slot.text or "")})
            told = entry.finding.doubt or f"its {' '.join(marks)} would be read as fields if it is a template"
            entry.refuse(
                f"is found in {entry.finding.where}, and cannot be written without a check: {told}: a trial tells"
            )


__all__ = ["Entry", "NotTried", "find_entries", "refuse_uncertain", "try_entries", "write_entries"]
