"""Cuts the texts of an agent to the parts that are in the user's source, so that improved ones can be written there.

A request often contains more than the user wrote: a framework adds sentences, lists are joined, a signature precedes a
docstring. Then each piece from the user is a slot of its own, a `part` of the sent text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from workbench_external.slots.discover import FILES, is_worth
from workbench_external.slots.template import HOLE, find_constants
from workbench_external.sources import Field, split
from workbench_external.sources.folder import LONG_WORD, SourceFile, Sources, cores
from workbench_external.sources.treatments import Program

#: Text without spaces, such as the name of a file or a model. Scripts without spaces have other letters.
_NAME = re.compile(r"[!-~]*")
#: Up to three words without closing punctuation: in a longer text a name, such as an agent's in a description.
_SHORT_NAME = re.compile(r"[!-\u04ff]+(?: [!-\u04ff]+){0,2}(?<![.!?:;])")
#: Text before a name of any length, in all languages of data and programs.
_NAMED = re.compile(r"\bname[\"']?\s*[:=]\s*\(?\s*\Z")
#: Characters before a text in which to look for the word `name`.
_BEFORE = 40
#: Descriptions; other slots are messages and files.
_DESCRIPTIONS = ("tool", "parameter", "field")


class Cut(NamedTuple):
    """The slots of an agent, and the number of its texts that are left out, as a framework's or a vendor's."""

    slots: dict[str, dict[str, Any]]
    left_out: int


class _Piece(NamedTuple):
    """The part of a text that is in a source: its position, and its template.

    own: the spans of its constants. Text in its fields may be a piece of its own.
    """

    start: int
    end: int
    match: str
    own: tuple[tuple[int, int], ...]


def cut_slots(found: Mapping[str, Mapping[str, Any]], sources: Sources, vendor: bool) -> Cut:
    """Return the slots of an agent. Those in its source, which the user can change, come first.

    Args:
        found: the slots as the agent sends them.
        sources: files that may contain its source.
        vendor: include texts that are not in them, which are a framework's or a vendor's.
    """
    applied, others = dict[str, dict[str, Any]](), dict[str, dict[str, Any]]()
    for name, slot in found.items():
        if slot["in"] == "file":
            applied[name] = dict(slot)
            continue
        pieces = _find_pieces(str(slot["match"]), sources)
        if not pieces:
            others[name] = dict(slot)
        for piece in pieces:
            is_part = (piece.start, piece.end) != (0, len(slot["match"]))
            part = {"part": True, "of": name} if is_part else {}
            cut = {**slot, "match": piece.match, "text": piece.match, **part}
            if cut not in applied.values():
                applied[_free(name, applied, {*found} - {name})] = cut
    kinds, left_out = {slot["in"] for slot in applied.values()}, 0
    for name, slot in others.items():
        if vendor or not is_vendors(slot["in"], str(slot["match"]), kinds, sources):
            applied[_free(name, applied, {})] = slot
        else:
            left_out += 1
    ordered = sorted(applied.items(), key=lambda one: (one[0] in others, one[1]["in"] in _DESCRIPTIONS))
    return Cut(dict(ordered), left_out)


def is_vendors(place: str, match: str, kinds: Collection[str], sources: Sources) -> bool:
    """Return True if a text that cannot be written is a vendor's: no part of it is in the source, but others of its
    kind are. If no message is, the source is elsewhere, and all texts may be the user's.

    Args:
        place: of its slot.
        match: the text.
        kinds: the places of slots that are in the source.
    """
    known = {*kinds} if place in _DESCRIPTIONS else {*kinds} - {*_DESCRIPTIONS}
    return bool(known) and not sources.find_unwritable(match)


def _free(name: str, taken: Collection[str], others: Collection[str]) -> str:
    """Return the name, with a number if it is taken, and then one that others do not have."""
    if name not in taken:
        return name
    base = re.sub(r"_\d+\Z", "", name)
    return next(new for n in range(2, 10_000) if (new := f"{base}_{n}") not in taken and new not in others)


def _find_pieces(text: str, sources: Sources) -> list[_Piece]:
    """Return the pieces of a text that are in a source, in order. Of overlapping ones, the longest is kept."""
    words = {*LONG_WORD.findall(text)}
    found = {
        piece
        for file in sources.files
        if (not words or words & file.words) and file.path.name not in FILES  # those are slots themselves
        for piece in _pieces_in(file, text, sources.program)
    }
    chosen: list[_Piece] = []

    def rank(piece: _Piece) -> tuple[int, int, str]:
        return sum(start - end for start, end in piece.own), len(piece.own), piece.match

    for piece in sorted(found, key=rank):
        taken = [span for other in chosen for span in other.own]
        if all(end <= other[0] or start >= other[1] for start, end in piece.own for other in taken):
            chosen.append(piece)
    return sorted(chosen, key=lambda one: (one.start, -one.end))


def _pieces_in(file: SourceFile, text: str, program: Program) -> Iterator[_Piece]:
    for passage in file.texts or ():
        words = LONG_WORD.findall(max((part for part in passage.parts if isinstance(part, str)), key=len, default=""))
        if words and not any(word in text for word in words[:3]):
            continue
        seen, before = set[tuple[Any, ...]](), file.text[max(0, passage.start - _BEFORE) : passage.start]
        for reading in program.readings(passage):
            if reading.parts in seen:
                continue
            seen.add(reading.parts)
            for _, core, _ in cores(reading.parts):
                constants, fields = split(core)
                said = "".join(constants)
                if not is_worth(said) or _NAME.fullmatch(said):
                    continue
                is_name = not fields and (_SHORT_NAME.fullmatch(said) or _NAMED.search(before))
                for piece in _pieces_of(text, constants, fields):
                    if not is_name or (piece.start, piece.end) == (0, len(text)):
                        yield piece


def _pieces_of(text: str, constants: Sequence[str], fields: Sequence[tuple[Field, ...]]) -> Iterator[_Piece]:
    """Yield the first place of a template in a text."""
    if any(HOLE.search(constant) for constant in constants):
        return  # a constant that looks like a hole
    places = find_constants(HOLE.sub(lambda hole: "\0" * len(hole[0]), text), constants)  # none begins in a hole
    if places is None:
        return
    start, end = (0 if not constants[0] else places[0]), places[-1] + len(constants[-1])
    if not constants[-1]:
        end = len(text)
    if (not constants[0] or not constants[-1]) and text[:start].strip() + text[end:].strip():
        return  # unknown where a field begins or ends
    if not text[:start].strip() and not text[end:].strip():
        start, end = 0, len(text)
    own = tuple((place, place + len(constant)) for place, constant in zip(places, constants, strict=True) if constant)
    yield _Piece(start, end, _as_template(text, constants, places, (start, end)), own)


def _as_template(text: str, constants: Sequence[str], places: Sequence[int], span: tuple[int, int]) -> str:
    """Return the template of the source, with the hole names of the text. Space around the whole is the text's."""
    words, names = [text[span[0] : places[0]] if constants[0] else ""], set[str]()
    for number, constant in enumerate(constants):
        words.append(constant)
        if number + 1 == len(constants):
            break
        behind = places[number] + len(constant)
        last = number + 2 == len(constants) and not constants[-1]
        inside = text[behind : span[1] if last else places[number + 1]]
        # Space at an end of the whole is the text's, such as at the end of a template of several lines.
        head = inside[: len(inside) - len(inside.lstrip())] if not number and not constants[0] else ""
        tail = inside[len(inside.rstrip()) :] if last else ""
        held = HOLE.fullmatch(inside.removeprefix(head).removesuffix(tail))
        name = held[1] if held is not None and not held[1].isdigit() and held[1] not in names else ""
        whole = (head, tail) if name else ("", "")
        name = name or next(str(n) for n in range(1, 10_000) if str(n) not in names)
        names.add(name)
        words.append(f"{whole[0]}{{{{{name}}}}}{whole[1]}")
    if constants[-1]:
        words.append(text[places[-1] + len(constants[-1]) : span[1]])
    return "".join(words)
