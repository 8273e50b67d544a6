"""Writes the texts found for an agent back into its source: the place of each text, and the new content of the file."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

from workbench.base.text import one_line
from workbench_external.config import Slot
from workbench_external.slots.discover import FILES
from workbench_external.slots.files import content_of, is_as_found
from workbench_external.slots.template import Template
from workbench_external.sources import CannotWrite, Field, Part, Passage, read_texts
from workbench_external.sources.folder import Place, SourceFile, Sources, find_files, read_source, way_to_write
from workbench_external.sources.messages import Spliced, join as join_messages
from workbench_external.sources.treatments import Program

#: Characters; a shorter description may also be a name elsewhere, such as `query`.
_SHORTEST = 12


@dataclass(frozen=True)
class Edit:
    """A part of a file and its replacement. held: the content of the file when the part was found."""

    path: Path
    start: int
    end: int
    new: str
    held: str

    @property
    def place(self) -> tuple[Path, int, int]:
        """Return its place. Messages in one text have a place each."""
        return self.path, self.start, self.new.start if isinstance(self.new, Spliced) else 0


@dataclass(frozen=True)
class Finding:
    """The place of a slot's text, and how to write a new text there.

    ways: the ways to write it, the likeliest first, each as its edits; none if it cannot be written.
    why: the reason, if it cannot be written. several: the findings of all places, if several; a trial shows the sent.
    doubt: what the program may do to the new text and did not do to the old one.
    """

    ways: tuple[tuple[Edit, ...], ...] = ()
    line: int = 0
    why: str = ""
    where: str = ""
    several: tuple[Finding, ...] = ()
    doubt: str = ""

    @property
    def edits(self) -> tuple[Edit, ...]:
        """Return the edits of all ways, which share one place."""
        return tuple(edit for way in self.ways for edit in way)

    @property
    def is_certain(self) -> bool:
        """Return True if there is one way to write it, in one place, and no doubt."""
        return len(self.edits) == 1 and not self.doubt


def find_text(slot: Slot, sources: Sequence[Path] | Sources) -> Finding:
    """Find the text of a slot in some folders, and the edits that replace it."""
    sources = sources if isinstance(sources, Sources) else Sources(sources)
    if slot.in_ == "file":
        return _find_file(slot, sources.folders)
    if slot.in_ in ("tool", "parameter", "field") and len(slot.match) < _SHORTEST:
        return Finding(why=f"is too short to be found for certain: {one_line(slot.match)!r}")
    found = [_written(slot, place, sources) for place in sources.find(slot.match)]
    if len(found) > 1:
        where = ", ".join(one.where for one in found)
        return Finding(why=f"is in several places: {where}", where=where, several=tuple(found))
    if found:
        return found[0]
    if held := sources.find_unwritable(slot.match, any_case=True):
        told = "; ".join(f"{_name(path, sources)}:{line}, {why}" for path, line, why in held[:3])
        return Finding(why=f"was found, but cannot be written: {told}")
    return Finding(why=f"is not in {', '.join(one_line(folder) for folder in sources.folders) or 'a source'}")


def write_together(found: Sequence[Finding]) -> Finding:
    """Join the findings of a text in several places, to write it in all of them as the gateway replaces it."""
    most = max(len(one.ways) for one in found)
    ways = tuple(tuple(one.ways[min(n, len(one.ways) - 1)][0] for one in found) for n in range(most))
    return Finding(ways, found[0].line, "", ", ".join(one.where for one in found))


def _written(slot: Slot, place: Place, sources: Sources) -> Finding:
    """Return the edits of a place after which the file has the new text there and is unchanged elsewhere."""
    text, refused = wire_text(slot), ""
    file = next(file for file in sources.files if file.path == place.path)
    edits = dict[str, Edit]()
    for way in place.ways:
        try:
            new = way(text)
            check_written(place, file, new, text, sources.program, Template(slot.match).names)
        except CannotWrite as why:
            refused = refused or str(why)
            continue
        edits.setdefault(new, Edit(place.path, place.start, place.end, new, file.text))
    where = f"{_name(place.path, sources)}:{place.line}"
    if edits:
        doubt = refused or sources.program.doubts(slot.match, text, place.has_margin)
        return Finding(tuple((edit,) for edit in edits.values()), place.line, "", where, doubt=doubt)
    return Finding((), place.line, f"was found, but cannot be written: {where}, {refused}", where)


def wire_text(slot: Slot) -> str:
    """Return the new text as it is sent. Missing holes are appended. If the whole old text ended with newlines, so does
    the new one, as in `content_of`: proposals are stripped, and the proof ignores trailing space."""
    names = Template(slot.match).names
    text = slot.match if slot.text is None else slot.text
    text = "\n".join([text, *(f"{{{{{name}}}}}" for name in names if f"{{{{{name}}}}}" not in text)])
    tail = slot.match[len(slot.match.rstrip()) :]
    return text if slot.part or "\n" not in tail or text != text.rstrip() else text + tail


def check_written(
    place: Place, file: SourceFile, new: str, text: str, program: Program, names: Collection[str] = ()
) -> None:
    """Raise CannotWrite unless the changed file, read again, has the new text at its place and all others unchanged.

    names: of the holes in the text; anything else that looks like a hole is text.
    """
    before = file.texts
    written = file.text[: place.start] + new + file.text[place.end :]
    after = read_texts(place.path, written)
    if before is None or after is None:
        raise CannotWrite("the file would no longer be read")
    moved = len(new) - (place.end - place.start)
    kept = [(one.start, one.parts) for one in before if one.end <= place.start]
    kept += [(one.start + moved, one.parts) for one in before if one.start >= place.end]
    end = place.start + len(new)
    others = [(one.start, one.parts) for one in after if one.end <= place.start or one.start >= end]

    def trimmed(source: str, start: int, end: int) -> tuple[int, str]:
        text = source[start:end]  # brackets: around literals, an attribute of JSX, or a list of one line
        return start + len(text) - len(text.lstrip(" \t\r\n{[(")), text.strip(" \t\r\n{}[](),")

    def those_at(source: str, texts: Sequence[Passage], end: int) -> list[Passage]:
        return [one for one in texts if trimmed(source, one.start, one.end) == trimmed(source, place.start, end)]

    def beside(texts: Sequence[Passage]) -> list[tuple[Part, ...]]:
        """Return the other messages of the text, or pieces, if it consists of several."""
        others = [one for one in texts if any(one.inner) and one.inner[0] != place.inner[0]]
        return [one.parts for one in others if is_piece or not one.is_piece]

    here, there = those_at(written, after, end), those_at(file.text, before, place.end)
    is_piece = any(one.is_piece for one in there if one.inner == place.inner)
    is_beside = not any(place.inner) or beside(there) == beside(here)
    if {*kept} != {*others} or not is_beside:
        raise CannotWrite("other texts of the file would change")
    template = Template(text.strip(), names)
    here = [one for one in here if one.inner[0] == place.inner[0]]
    old = [one for one in before if (one.start, one.end) == (place.start, place.end)]
    olds = [reading for one in old for reading in program.readings(one)]
    known = {part.source for reading in olds for part in reading.parts if isinstance(part, Field)}
    if not any(way_to_write(reading, text, template) for one in here for reading in program.readings(one, known)):
        raise CannotWrite("it would be read as another text")


def _find_file(slot: Slot, folders: Sequence[Path]) -> Finding:
    for folder in folders:
        path = folder / slot.name
        if not path.is_file():
            continue
        if any(part.startswith(".") for part in Path(slot.name).parts[:-1]):
            return Finding(why=f"is never written: {one_line(slot.name)} lies in a folder whose name begins with a dot")
        if Path(slot.name).name not in FILES or path not in find_files(folder, hidden_files=FILES):
            return Finding(why=f"is never written: {one_line(slot.name)} is not a text file in the agent's folder")
        held = read_source(path)
        if not slot.match or held is None or not is_as_found(path, slot):
            return Finding(why=f"is another text in {one_line(slot.name)} than was found")
        new = content_of(slot)
        if "\0" in new or "\r" in new.replace("\r\n", "\n") or any(0xD800 <= ord(char) < 0xE000 for char in new):
            return Finding(why=f"cannot be written: {one_line(slot.name)} does not keep a character of it")
        new = new.replace("\r\n", "\n").replace("\n", "\r\n") if "\r\n" in held else new
        return Finding(((Edit(path, 0, len(held), new, held),),), 1, "", f"{one_line(slot.name)}:1")
    return Finding(why=f"has no place: there is no file {one_line(slot.name)}")


def write_edits(edits: Iterable[Edit]) -> dict[Path, str]:
    """Return the new content of each file. If edits overlap, as for two slots with one text, the first wins. Messages
    of one text are all written."""
    edits = [*_joined(edits)]
    found: dict[Path, str] = {}
    for path in dict.fromkeys(edit.path for edit in edits):
        own = sorted((one for one in edits if one.path == path), key=lambda one: -one.start)
        text, end = own[0].held, None
        for edit in own:
            if end is None or edit.end <= end:
                text, end = text[: edit.start] + edit.new + text[edit.end :], edit.start
        found[path] = text
    return found


def _joined(edits: Iterable[Edit]) -> Iterator[Edit]:
    """Yield the edits, with those of messages in one text joined."""
    texts: dict[tuple[Path, int, int, str], list[Spliced]] = {}
    for edit in edits:
        if isinstance(edit.new, Spliced):
            texts.setdefault((edit.path, edit.start, edit.end, edit.held), []).append(edit.new)
        else:
            yield edit
    for (path, start, end, held), news in texts.items():
        new = join_messages([(one.start, one.end, one.parts) for one in news], news[0].whole)
        yield Edit(path, start, end, new, held)


def find_changed(edits: Iterable[Edit]) -> list[Path]:
    """Return the files whose content changed since the edits were found."""
    held = {edit.path: edit.held for edit in edits}
    return [path for path, text in held.items() if read_source(path) != text]


def describe_changes(changed: dict[Path, str], folder: Path) -> str:
    """Return a diff in the format of `git apply`."""
    lines: list[str] = []
    for path, text in changed.items():
        name = path.relative_to(folder).as_posix()
        before, after = (re.findall(r"[^\n]*\n|[^\n]+", one) for one in (read_source(path) or "", text))
        around = 0 if path.name.endswith(".env") or path.name.startswith(".env") else 3  # nearby lines may hold keys
        lines += unified_diff(before, after, f"a/{name}", f"b/{name}", n=around)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _name(path: Path, sources: Sources) -> str:
    inside = (folder for folder in sources.folders if path.is_relative_to(folder))
    return one_line(path.relative_to(next(inside, path.parent)).as_posix())
