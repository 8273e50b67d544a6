"""`workbench agent apply`: find each changed text in the source, try the changed agent, write what is right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench_external.apply import Edit, Finding, find_text, write_edits
from workbench_external.config import Slot
from workbench_external.node import External
from workbench_external.sources.folder import Sources
from workbench_external.trial import Difference, NotTried, Trial, try_rows

#: Trials of a node: of a few ways to write a text, and without those that no way writes.
_ROUNDS = 12


@dataclass
class Entry:
    """A text that a run changed. why: why it is not written, behind its address; "" while it may be."""

    address: str
    node: str
    name: str
    slot: Slot
    finding: Finding
    is_there: bool = False
    why: str = ""
    difference: Difference | None = None
    way: int = 0

    @property
    def edit(self) -> Edit | None:
        return None if self.why or not self.finding.edits else self.finding.edits[self.way]

    @property
    def has_further_way(self) -> bool:
        return self.way + 1 < len(self.finding.edits)

    def refuse(self, why: str, difference: Difference | None = None) -> None:
        self.why, self.difference = self.why or why, difference

    def take_next_way(self, difference: Difference) -> None:
        """Write it in another way, or not at all where there is none left."""
        if self.has_further_way:
            self.way += 1
            return
        where = f"{self.finding.edits[0].path.name}:{self.finding.line}"
        self.refuse(f"is found in {where}, and cannot be written: the changed agent sends another text", difference)


def find_entries(agents: Mapping[str, External], folder: Path) -> list[Entry]:
    """The changed texts of some agents, with their places in a folder."""
    found = list[Entry]()
    for node, agent in agents.items():
        sources = Sources([folder], agent.sources.settings)
        for name, slot in (agent.config.slots or {}).items():
            if slot.text in (None, slot.match):
                continue
            turned = slot.model_copy(update={"match": slot.text, "text": slot.match})
            entry = Entry(f"nodes.{node}.slots.{name}", node, name, slot, find_text(slot, sources))
            if not entry.finding.edits:
                entry.is_there = bool(find_text(turned, sources).edits)
                entry.why = entry.finding.why
            found.append(entry)
    return found


def write_entries(entries: Sequence[Entry]) -> dict[Path, str]:
    """The new content of each file."""
    return write_edits(edit for entry in entries if (edit := entry.edit) is not None)


def try_entries(
    entries: Sequence[Entry], agents: Mapping[str, External], folder: Path, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Start each agent from the changed source, and refuse the texts that it then sends otherwise than was proved.
    Raises NotTried."""
    for node, agent in agents.items():
        own = [entry for entry in entries if entry.node == node and entry.edit is not None]
        if own:
            _try_node(own, entries, Trial(agent, folder, try_rows(rows, agent)))


def _try_node(own: Sequence[Entry], entries: Sequence[Entry], trial: Trial) -> None:
    tried_apart = len(_by_place(own)) == 1
    for _ in range(_ROUNDS):
        chosen = {entry.name: entry for entry in own if entry.edit is not None}
        if not chosen:
            return
        verdict = trial.compare(write_entries(entries), {name: entry.slot.text for name, entry in chosen.items()})
        for name in verdict.unsent:
            chosen[name].refuse("was not sent on the rows tried, so it is not proved")
        if verdict.unsent:
            continue
        if not verdict.differs:
            return
        wrong = [chosen[name] for name in verdict.differs if name] or [*chosen.values()]
        # Nobody is refused for what another text did: a name that is changed may lead to a file that is not there.
        if not tried_apart and (verdict.is_unclear or not all(entry.has_further_way for entry in wrong)):
            tried_apart = True
            for together in _by_place(chosen.values()):
                _try_node(together, together, trial)
            continue
        for entry in wrong:
            entry.take_next_way(verdict.differs.get(entry.name) or verdict.differs[""])
    for entry in own:
        entry.refuse("cannot be written: no way of it was found right")


def _by_place(entries: Iterable[Entry]) -> list[list[Entry]]:
    """Group the entries by place in the source, as a description that is also told in a system message: what is written
    there changes all of them."""
    found: dict[tuple[Path, int], list[Entry]] = {}
    for entry in entries:
        place = entry.finding.edits[0]
        found.setdefault((place.path, place.start), []).append(entry)
    return [*found.values()]


def refuse_uncertain(entries: Sequence[Entry]) -> None:
    """Refuse the texts of which only a trial tells how they are written."""
    for entry in entries:
        if entry.edit is not None and not entry.finding.is_certain:
            marks = sorted({"{", "}", "$", "%"} & {*(entry.slot.text or "")})
            told = f"its {' '.join(marks)} would be read as fields if it is a template, which a trial alone tells"
            where = f"{entry.edit.path.name}:{entry.finding.line}"
            entry.refuse(f"is found in {where}, and cannot be written without a check: {told}")


__all__ = ["Entry", "NotTried", "find_entries", "refuse_uncertain", "try_entries", "write_entries"]
