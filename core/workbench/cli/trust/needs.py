"""The doors that a workflow file passes (`workbench.spec`), for the question to the user, and digests of files behind
them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.base.files import NEVER_COPIED, content_digest, file_digest
from workbench.base.text import one_line
from workbench.base.type_guards import is_dict
from workbench.errors import SpecError, placed_at
from workbench.run import trackers_not_ready
from workbench.runtime import make_executor
from workbench.spec import Consent, Passed, Source, apply_overrides, collecting, load_yaml_file, outer_settings
from workbench.store import is_run_database
from workbench.task import pass_sections

#: Loads what a file says beyond a workflow.
Further = Callable[[Source], object]
#: The most texts to show of each kind, and the most characters of each text.
_LISTED, _SHOWN = 12, 160
_OUTSIDE = "reads outside its folder"
_DATABASES = (".db", ".sqlite", ".sqlite3")
#: Limits on the files behind a capability: their number, and the bytes to digest. The rest count by size and time.
_MAX_FILES, _MAX_BYTES = 20_000, 500_000_000


class Needs:
    """The doors that a file passes, and the digests of the files behind them.

    `found` maps each kind to its texts as written, with their meaning independent of the file's location. The digest
    covers the folder, the workflow file, files that it refers to, and files that its doors depend on (not imports).
    """

    def __init__(self, folder: Path, text: str, passed: Sequence[Passed]):
        self.folder, self.passed = folder, [*dict.fromkeys(passed)]
        self.found: dict[str, dict[str, str]] = {}
        self.digests = {".": content_digest(text.encode("utf-8", "surrogatepass"))}
        self.further = list[tuple[str, ...]]()
        for one in dict.fromkeys(replace(one, at=()) for one in passed):
            self._take(one)

    def _take(self, one: Passed) -> None:
        if one.form == "text":
            self.digests[os.path.relpath(one.files[0], self.folder)] = one.what
        elif one.asked:
            self.add(one.kind, one.text, one.what)
            if one.kind != _OUTSIDE:
                self.digests |= _leaned_on(one, self.folder)

    def take_in(self, other: Needs, own: Sequence[Sequence[str]]) -> None:
        """Add what the same file needs with changes by the user. own: their addresses, which are not asked about."""
        known = self.consent.keys
        for one in other.passed:
            if one.asked and one.key not in known and not any(one.at[: len(place)] == (*place,) for place in own):
                self.further.append(one.key)
                self._take(one)
        self.passed += other.passed

    @property
    def consent(self) -> Consent:
        """Return what is approved together with this file, which itself is read once."""
        contents = {str((self.folder / place).resolve()): mark for place, mark in self.digests.items() if place != "."}
        return Consent(self.folder, {one.key for one in self.passed if one.asked}, contents)

    def add(self, kind: str, text: str, what: str) -> None:
        self.found.setdefault(kind, {})[text] = what

    def outside(self) -> dict[str, str | int]:
        """Return the texts that lead to files elsewhere, with the section of each."""
        return {one.text: (*one.at, "")[0] for one in self.passed if self._leads_out(one)}

    def _leads_out(self, one: Passed) -> bool:
        elsewhere = any(not file.is_relative_to(self.folder) for file in one.files)
        return one.asked and (one.kind == _OUTSIDE or elsewhere)

    def without_outside(self) -> Consent:
        """Return a consent for reading the file without those elsewhere."""
        return Consent(self.folder, {one.key for one in self.passed if one.asked and not self._leads_out(one)})

    def __bool__(self) -> bool:
        return bool(self.found)

    @property
    def digest(self) -> str:
        told = (str(self.folder), sorted(self.digests.items()))  # elsewhere, `./server.sh` is another program
        content = repr((*told, sorted(self.further)) if self.further else told)
        return content_digest(content.encode("utf-8", "surrogatepass"))

    def covers(self, other: Needs) -> bool:
        """Return True if the other file has no capability that this one does not have, or that needs no question."""
        return all(
            what in self.found.get(kind, {}).values() or (kind == _OUTSIDE and Path(what).is_relative_to(self.folder))
            for kind, texts in other.found.items()
            for what in texts.values()
        )

    def lines(self) -> list[str]:
        """Return a line for each kind, safe to show."""
        return [f"{kind}: {_listed(self.found[kind])}" for kind in sorted(self.found)]


def _listed(texts: Iterable[str]) -> str:
    """Join texts by commas, cut so that they cannot push other lines off the screen."""
    shown = [one_line(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...") for text in sorted(texts)]
    more = f" and {len(shown) - _LISTED} more" if len(shown) > _LISTED else ""
    return ", ".join(shown[:_LISTED]) + more


def collect_changed(
    source: Source, sets: Sequence[Sequence[tuple[str, Any]]], called: bool = False, further: Further = bool
) -> Needs:
    """Load a workflow file up to its doors, as it is and with lists of changes by the user (`collect_needs`)."""
    needs = collect_needs(source, called, further)
    for one in sets or ((),):
        with suppress(SpecError):  # reported when the file is used
            changed = apply_overrides(source, one)
            own = [address.split(".") for address, _ in (*outer_settings(source), *one)]
            if changed.value != source.value:
                needs.take_in(collect_needs(changed, called, further), own)
    return needs


def collect_needs(source: Source | Path, called: bool = False, further: Further = bool) -> Needs:
    """Load a workflow file up to its doors. Nothing acts.

    called: it is called, not improved. further: loads what the file says beyond a workflow. Raises SpecError if the
    file is unreadable.
    """
    source = source if isinstance(source, Source) else load_yaml_file(source)
    value, base = source.value, Path(source.file).resolve().parent
    with collecting(base) as passed:
        pass_sections(value, base, "outlined", called=called)
        if is_dict(value) and not called:
            with suppress(SpecError), placed_at("executor"):
                make_executor(value.get("executor"))
            tracked = value.get("track") or ()
            with placed_at("track"):
                list(trackers_not_ready([tracked] if isinstance(tracked, str) else tracked))
        with suppress(SpecError):
            further(source)
    return Needs(base, source.text, passed)


def _leaned_on(one: Passed, base: Path) -> dict[str, str]:
    found, left = dict[str, str](), _MAX_BYTES
    for path in (path for top in one.files for path in _within(top, base)):
        if len(found) >= _MAX_FILES:
            return {**found, "more": "files than are checked"}
        try:
            status = path.stat()
            left -= status.st_size
            mark = file_digest(path) if left >= 0 and path.is_file() else f"{status.st_size} {status.st_mtime_ns}"
        except OSError:
            mark = "cannot be read"
        found[os.path.relpath(path, base)] = mark
    return found


def _within(top: Path, base: Path) -> Iterator[Path]:
    """Yield a file, or the files of a folder that would be copied, links followed."""
    seen = set[str]()
    for folder, inner, names in os.walk(top, followlinks=True):
        if (real := os.path.realpath(folder)) in seen:
            inner.clear()
        inner[:] = sorted(name for name in inner if name not in NEVER_COPIED)
        found = (Path(folder, name) for name in sorted(names) if real not in seen and name not in NEVER_COPIED)
        yield from (path for path in found if not _is_written_by_runs(path, base))
        seen.add(real)
    if not top.is_dir():
        yield top


def _is_written_by_runs(path: Path, base: Path) -> bool:
    """Return True for run databases with their side files, and for results next to the workflow file: otherwise a run
    in the folder of its agent would change what the user approved."""
    if path.parent == base and path.suffix in (".yaml", ".yml"):
        with suppress(OSError, UnicodeDecodeError):
            return re.search(r"(?m)^nodes:", path.read_text(encoding="utf-8")) is not None
    names = (path.name.partition(suffix)[0] + suffix for suffix in _DATABASES if suffix in path.name)
    return any(is_run_database(path.with_name(name)) for name in names)
