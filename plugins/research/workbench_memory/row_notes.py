"""Notes that live for a row: the node `remember`, which writes them for `recall`.

Sources: notes with links, which a look-up follows, as in A-MEM (Xu et al., arXiv 2502.12110); two notes on one thing
are neighbours, as triples are in AriGraph (Anokhin et al., arXiv 2407.04363). Departures: notes are not rewritten when
later ones come (a `loop` with `carry` does so), and links are what other nodes write, not a call of this one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from workbench.errors import SpecError, suggest
from workbench.runtime import BATCH, Context
from workbench.workflow import NodeConfig, NodeKind, parse_signature
from workbench_kit.prompting import plain_adapter as plain

#: The most notes of a row that are searched by vectors; the budget counts their requests.
MAX_NOTES = 640
MAX_CALLS = 1 + MAX_NOTES // BATCH


@dataclass(frozen=True)
class Note:
    """A note. things: what it is about, and the ids of notes that it names, in small letters."""

    id: str
    text: str
    things: frozenset[str] = frozenset()

    def is_linked(self, other: Note) -> bool:
        return bool(self.things & other.things) or self.id in other.things or other.id in self.things


@dataclass
class Notes:
    """The notes of a row under one name, in the order in which they were written."""

    notes: list[Note] = field(default_factory=list[Note])

    def keep(self, text: str, things: frozenset[str], id_: str | None = None) -> str:
        """Keep a note that is not known yet; returns its id. id_: in place of the next one."""
        known = next((note.id for note in self.notes if note.text == text), None)
        if known is None:
            known = id_ or f"n{len(self.notes) + 1}"
            self.notes.append(Note(known, text, things))
        return known

    def follow(self, chosen: Sequence[Note], steps: int) -> list[Note]:
        """The notes within so many links of these, the nearer ones first."""
        found, ring = list(chosen), list(chosen)
        for _ in range(steps):
            ring = [note for note in self.notes if note not in found and any(note.is_linked(one) for one in ring)]
            found += ring
        return found

    async def aclose(self) -> None:
        self.notes.clear()


def notes_of(ctx: Context, name: str) -> Notes:
    """The notes of this row under a name."""
    return ctx.row.get(("notes", name), Notes)


class RememberConfig(NodeConfig):
    """Settings of a `remember` node."""

    signature: str = Field(description='fields that make a note, and the field for its id, e.g. "finding -> note"')
    into: str = Field("notes", description="the name of the store; each row has its own")
    links: list[str] = Field(
        default_factory=list,
        description="fields that name what a note is about, or other notes by their ids: notes are linked that name "
        "the same thing, or each other",
    )


class Remember(NodeKind):
    """Keeps its inputs as a note for the rest of the row, and writes the list of ids. A field that holds a list makes a
    note of each item. What is empty is not kept, and what is known already not twice."""

    Config = RememberConfig
    primary = "signature"
    config: RememberConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        self.signature = parse_signature(config.signature)
        if not self.signature.inputs or len(self.signature.outputs) != 1:
            raise SpecError(
                "a remember node reads at least one field and writes one, the ids of its notes",
                hint='Write e.g. remember: "finding, source -> note".',
                path=("signature",),
            )
        if len(self.inputs) > 1 and (lost := [name for name in config.links if name not in self.inputs]):
            hint = suggest(lost[0], self.inputs) or f"It reads {', '.join(self.inputs)}."
            raise SpecError(f"links names '{lost[0]}', which the node does not read", hint=hint, path=("links",))

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.signature.inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.signature.outputs[0].name,)

    @property
    def input_types(self) -> Mapping[str, Any]:
        return {f.name: f.type for f in self.signature.inputs}

    @property
    def tool_description(self) -> str:
        return "Keeps a note, for this task."

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        store = notes_of(ctx, self.config.into)
        notes = [(text, self._things(part)) for part in self._parts(inputs) if (text := _shown(part))]

        async def keep() -> list[str]:
            return [store.keep(text, things) for text, things in notes]

        # Journalled, since other nodes may be writing: in a resumed run each note has the id that it had.
        ids: list[str] = await ctx.effect("remember", [self.config.into, [text for text, _ in notes]], keep)
        for id_, (text, things) in zip(ids, notes, strict=True):
            store.keep(text, things, id_)
        ctx.note(notes=ids, into=self.config.into)
        return {self.outputs[0]: ids}

    def _parts(self, inputs: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The fields of each note."""
        first, *more = self.inputs
        listed = inputs[first]
        if more or not isinstance(listed, list | tuple):
            return [{name: inputs[name] for name in self.inputs}]
        return [item if isinstance(item, Mapping) else {first: item} for item in listed]

    def _things(self, part: Mapping[str, Any]) -> frozenset[str]:
        values = [part[name] for name in self.config.links if name in part]
        flat = [one for value in values for one in (value if isinstance(value, list | tuple) else [value])]
        return frozenset(plain.as_text(one).strip().casefold() for one in flat) - {""}


def _shown(part: Mapping[str, Any]) -> str:
    """A note as the model reads it, without fields that are empty; empty if all are."""
    given = {name: plain.as_text(value) for name, value in part.items() if value not in (None, [])}
    filled = {name: " ".join(text.split()) for name, text in given.items() if text.strip()}
    return "; ".join(text if len(part) == 1 else f"{name}: {text}" for name, text in filled.items())
