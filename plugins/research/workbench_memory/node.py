"""The `recall` node: looks up memories for an input and writes them into a field for later nodes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from pydantic import Field, model_validator

from workbench.errors import NodeError, SpecError
from workbench.runtime import BATCH, Context
from workbench.spec import lm_spec
from workbench.workflow import NodeConfig, NodeKind, parse_signature
from workbench_kit.prompting import plain_adapter as plain
from workbench_kit.searching import WordIndex, best_first, cosines
from workbench_memory.learned_retrieval import extract_features, score_pair
from workbench_memory.row_notes import MAX_CALLS, MAX_NOTES, Note, notes_of
from workbench_memory.word_search import join_fields, scale_scores, split_words

Policy = Literal["lexical", "learned", "utility", "recent", "random", "embedding"]


class Entry(NodeConfig):
    """A memory. An entry without inputs holds for every input and is always shown."""

    kind: Literal["example", "case", "insight", "preference"] = Field("example", description="what it is")
    inputs: dict[str, Any] = Field(default_factory=dict, description="the situation: values of the node's input fields")
    outputs: dict[str, Any] = Field(default_factory=dict, description="the answer: values of the output fields")
    text: str = Field("", description="the lesson or the outcome, as text")
    source: str = Field("user", description="provenance, e.g. train:ROW, trial:2, user")
    utility: float = Field(0.5, ge=0, le=1, description="mean score of the answers that saw it, shrunk to the average")
    quarantined: str = Field("", description="why it is never retrieved nor shown; empty: it may be")


class RecallConfig(NodeConfig):
    """Settings of a `recall` node."""

    signature: str = Field(description='fields to look up by, and the field to write, e.g. "question -> notes"')
    entries: list[Entry] = Field(default_factory=list, description="the store")
    from_: str | None = Field(
        None,
        alias="from",
        exclude_if=lambda name: name is None,
        description="in place of entries: what `remember` kept in this row, under this name",
    )
    links: int = Field(
        0,
        ge=0,
        le=10,
        exclude_if=lambda links: links == 0,
        description="with `from`: notes within so many links of the nearest are added",
    )
    policy: Policy = Field(
        "lexical",
        description="lexical: nearest by words; learned: by `weights`; utility: nearest, weighted by utility; recent: "
        "the newest; random: a sample for each input, to explore; embedding: nearest by vectors of `embedder`",
    )
    embedder: str | dict[str, Any] | None = Field(
        None, description="the language model of the policy `embedding`, e.g. openai/text-embedding-3-small or hf:PATH"
    )
    k: int = Field(4, ge=0, le=64, description="entries or notes retrieved, besides entries without inputs")
    chars: int = Field(4000, ge=0, description="length of the written field; entries are dropped as a whole")
    weights: dict[str, float] = Field(default_factory=dict, description="of the policy `learned`, set by an optimizer")
    seed: int = Field(0, description="of the policy `random`")

    @model_validator(mode="after")
    def _one_store(self) -> RecallConfig:
        if self.from_ is None:
            if self.links:
                raise ValueError("links joins notes of the row: name their store, e.g. from: notes")
            return self
        if self.entries:
            raise ValueError("give either `entries`, a store of the file, or `from`, the notes of a row")
        if self.policy not in ("lexical", "recent", "embedding"):
            raise ValueError(f"notes of a row are found by lexical, recent or embedding, and not by {self.policy}")
        return self


class Recall(NodeKind):
    """Retrieves memories for an input, of the file or of this row, and writes them into one text field. Only the policy
    `embedding` calls a model, for vectors."""

    Config = RecallConfig
    primary = "signature"
    learnable = {"entries": "memories", "policy": "choice", "k": "int", "chars": "int"}
    config: RecallConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        self.signature = parse_signature(config.signature)
        if not self.signature.inputs or len(self.signature.outputs) != 1 or self.signature.outputs[0].type is not str:
            raise SpecError(
                "a recall node reads at least one field and writes one text",
                hint='Write e.g. recall: "question -> notes".',
                path=("signature",),
            )
        if config.from_ is not None:
            self.learnable = {"policy": "choice", "k": "int", "chars": "int", "links": "int"}
        if config.embedder is not None:
            lm_spec(config.embedder)
        elif config.policy == "embedding":
            raise SpecError(
                "the policy embedding needs a language model that embeds",
                hint="Write e.g. embedder: openai/text-embedding-3-small.",
                path=("embedder",),
            )

    @property
    def max_calls(self) -> int:
        """A request for the input's vector, and the requests for those of the store, in parts."""
        if self.config.from_ is not None:
            return MAX_CALLS if self.config.policy == "embedding" else 0
        return 1 + -(-len(self._specific) // BATCH) if self.config.policy == "embedding" else 0

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.signature.inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.signature.outputs[0].name,)

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        if self.config.from_ is not None:
            return await self._notes(self.config.from_, inputs, ctx)
        step_of = ctx.example if "." in ctx.node else None
        chosen = self.choose(inputs, await self._near(inputs, ctx), step_of)
        ctx.note(recalled=chosen, count=len(chosen))
        return {self.outputs[0]: "\n".join(self._texts[i] for i in chosen).strip()}

    async def _notes(self, name: str, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        """The notes of the row that fit, in the order in which they were written."""
        c, store, query = self.config, notes_of(ctx, name), join_fields(inputs, self.inputs)

        async def read() -> list[list[str]]:
            chosen = store.follow(await self._nearest_notes(store.notes, query, ctx), c.links)
            kept, left = list[Note](), c.chars
            for note in chosen:
                if (size := len(note.id) + len(note.text) + 4) <= left:
                    kept.append(note)
                    left -= size
            return [[note.id, note.text] for note in store.notes if note in kept]

        # Journalled, since other nodes may be writing: a resumed run reads what was read at this place.
        found = await ctx.recorded("recall", [name, c.policy, c.k, c.links, query], read)
        ctx.note(recalled=[id_ for id_, _ in found], count=len(found))
        return {self.outputs[0]: "\n".join(f"[{id_}] {text}" for id_, text in found)}

    async def _nearest_notes(self, notes: Sequence[Note], query: str, ctx: Context) -> list[Note]:
        """The k best notes, best first; of equal ones the earlier. Raises NodeError if there are too many for
        vectors."""
        c, texts = self.config, [note.text for note in notes]
        if c.policy == "recent":
            return list(notes[::-1][: c.k])
        if c.policy != "embedding" or c.embedder is None:
            return [notes[number] for number in best_first(WordIndex(texts).scores(query), c.k)]
        if not notes or not query.strip():
            return []
        if len(notes) > MAX_NOTES:
            raise NodeError("steps", f"'{c.from_}' has {len(notes)} notes, and vectors are made of {MAX_NOTES} at most")
        lm = lm_spec(c.embedder)
        near = cosines(await ctx.embed(texts, lm), (await ctx.embed([query], lm))[0])
        return [notes[number] for number in best_first(dict(enumerate(near)), c.k)]

    async def _near(self, values: Mapping[str, Any], ctx: Context) -> Mapping[int, float] | None:
        """For the policy `embedding` the cosine of each retrievable entry with the input, both less the store's mean:
        vectors of a language model's states all point the same way."""
        if self.config.policy != "embedding" or not self._specific:
            return None
        assert self.config.embedder is not None
        lm, entries = lm_spec(self.config.embedder), self.config.entries
        stored = await ctx.embed([join_fields(entries[i].inputs, self.inputs) for i in self._specific], lm)
        query = (await ctx.embed([join_fields(values, self.inputs)], lm))[0]
        return dict(zip(self._specific, cosines(stored, query), strict=True))

    def choose(
        self, values: Mapping[str, Any], near: Mapping[int, float] | None = None, step_of: str | None = None
    ) -> list[int]:
        """Numbers of the entries shown, the best one last; never an entry about the row itself. near: for the policy
        `embedding`, how near each entry is. step_of: inside another node, the row: its steps may be in a situation that
        steps of other rows were in, so entries are known by their source, and not by equal inputs."""
        own, entries = _situation(values, self.inputs), self.config.entries
        ranked = self._ranked(values) if near is None else sorted(near, key=lambda i: (-near[i], i))
        if step_of is None:
            ranked = [i for i in ranked if self._situations[i] != own]
        else:
            ranked = [i for i in ranked if not entries[i].source.endswith(f":{step_of}")]
        near_by = ranked[: self.config.k]
        kept, left = [], self.config.chars
        for index in [*self._general, *near_by]:
            size = len(self._texts[index]) + 1
            if size <= left:
                kept.append(index)
                left -= size
        general = [i for i in kept if i in self._general]
        return general + [i for i in reversed(kept) if i not in self._general]

    def _ranked(self, values: Mapping[str, Any]) -> list[int]:
        """Retrievable entries, the best one first. Ties go to the earlier entry."""
        policy, entries = self.config.policy, self.config.entries
        if policy == "recent":
            return self._specific[::-1]
        if policy == "random":
            text = f"{self.config.seed}|{_situation(values, self.inputs)}"
            return sorted(self._specific, key=lambda i: hashlib.sha256(f"{text}|{i}".encode()).digest())
        query = join_fields(values, self.inputs)
        near = {self._specific[i]: r for i, r in scale_scores(self._index.scores(query)).items()}
        if policy == "learned" and self.config.weights:
            words, weights = split_words(query), self.config.weights
            odds = {
                i: score_pair(weights, extract_features(words, self._words[i], near.get(i, 0.0)))
                for i in self._specific
            }
            return sorted(self._specific, key=lambda i: (-odds[i], i))
        if policy == "utility":
            near = {i: r * entries[i].utility for i, r in near.items()}
        return sorted(near, key=lambda i: (-near[i], i))

    @cached_property
    def _general(self) -> list[int]:
        return [i for i, e in enumerate(self.config.entries) if not e.inputs and not e.quarantined]

    @cached_property
    def _specific(self) -> list[int]:
        return [i for i, e in enumerate(self.config.entries) if e.inputs and not e.quarantined]

    @cached_property
    def _index(self) -> WordIndex:
        return WordIndex([join_fields(self.config.entries[i].inputs, self.inputs) for i in self._specific])

    @cached_property
    def _words(self) -> dict[int, frozenset[str]]:
        entries = self.config.entries
        return {i: frozenset(split_words(join_fields(entries[i].inputs, self.inputs))) for i in self._specific}

    @cached_property
    def _situations(self) -> list[str]:
        return [_situation(e.inputs, self.inputs) for e in self.config.entries]

    @cached_property
    def _texts(self) -> list[str]:
        return [_shown(e) for e in self.config.entries]


def _situation(values: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """Equal texts mean the same input, whatever its spaces and capitals."""
    return " | ".join(" ".join(plain.as_text(values.get(n, "")).lower().split()) for n in names)


def _shown(entry: Entry) -> str:
    """An entry as the model reads it. A preference is shown without the text that it was learned from."""
    if not entry.inputs:
        return f"- {entry.text}"
    fields = {} if entry.kind == "preference" else {**entry.inputs, **entry.outputs}
    lines = [f"{name}: {plain.as_text(value)}" for name, value in fields.items()]
    return "\n".join([*lines, *([f"- {entry.text}"] if entry.text else [])]) + "\n"
