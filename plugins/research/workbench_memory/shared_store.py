"""A store of entries that outlives a run: what one run kept is where later ones begin.

Source: AgentRxiv (Schmidgall and Moor, arXiv 2503.18102), where laboratories upload their findings to one server and
build on those of others. Departures: a file of entries in place of papers; only what a winner holds is added, so what
did not pay in one run reaches no other; and an entry names the run that it comes from.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from workbench import Study
from workbench.errors import SpecError
from workbench_memory.entry_log import Bank
from workbench_memory.node import Entry

#: What a line keeps of an entry, in addition to its fields' names.
KEPT = ("kind", "inputs", "outputs", "text", "source", "utility")


async def add_shared(study: Study, file: str, banks: list[Bank]) -> int:
    """Add the entries of a shared file to the banks that look up by their fields. Returns how many there were.

    What was read is journalled: a resumed run begins with it, whatever other runs have added since. Entries about rows
    of val are left out. Raises SpecError for a line that is no entry.
    """
    place = _place(study, file)

    async def read() -> list[dict[str, Any]]:
        return [*_read(place)] if place.exists() else []

    lines = await study.ledger.effect("shared entries", [study.run_id, study.name, file], read)
    added = 0
    for bank in banks:
        val = [{name: row.get(name) for name in bank.site.inputs} for row in study.val]
        for line in lines:
            if tuple(line["reads"]) == bank.site.inputs and (not line["inputs"] or line["inputs"] not in val):
                key = bank.add(line["kind"], line["source"], line["inputs"], line["outputs"], line["text"])
                bank.entries[key]["utility"] = line["utility"]
                added += 1
        bank.insights = tuple(dict.fromkeys([*bank.insights, *(k for k, e in bank.entries.items() if not e["inputs"])]))
    return added


def share(study: Study, file: str, banks: list[Bank]) -> int:
    """Append the entries of the best workflow that the file does not have. Returns how many."""
    place, run = _place(study, file), f"{study.database.name}#{study.run_id}"
    known = {_identity(line) for line in _read(place)} if place.exists() else set[str]()
    lines = []
    for bank in banks:
        for entry in study.best.get(bank.site.address, []):
            if entry.get("quarantined"):
                continue
            own = str(entry.get("source", "user"))
            source = own if own.startswith("run ") else f"run {run}/{own}"
            line = {"reads": [*bank.site.inputs], **{n: entry[n] for n in KEPT if n in entry}, "source": source}
            if (identity := _identity(line)) not in known:
                known.add(identity)
                lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    if lines:
        place.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(handle, "".join(lines).encode())  # in one piece, so that runs may add at the same time
        finally:
            os.close(handle)
    return len(lines)


def _place(study: Study, file: str) -> Path:
    return (study.workflow.base / file).resolve()


def _read(place: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file. Raises SpecError for one that is no entry."""
    for number, text in enumerate(place.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            line = json.loads(text)
            reads = [str(name) for name in line.pop("reads")]
            yield {"reads": reads, **Entry.model_validate(line).model_dump(include={*KEPT})}
        except (ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
            raise SpecError(
                f"{place}:{number} is no entry of a memory: {str(error).splitlines()[0]}",
                hint="Remove the line, or name another file.",
                path=("shared",),
            ) from None


def _identity(line: Mapping[str, Any]) -> str:
    return json.dumps([line["reads"], *(line.get(name) for name in ("inputs", "outputs", "text"))], sort_keys=True)
