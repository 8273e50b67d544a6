"""The nodes `search` and `browse`: find documents of a corpus, and read long ones page by page.

Source: DeepResearcher (Zheng et al., arXiv 2504.03160), whose agent searches and then browses its findings. Departure:
a page is shown unchanged, where the paper has a second model that reads it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from pydantic import Field

from workbench.errors import NodeError, SpecError, errors_at
from workbench.runtime import BATCH, Context
from workbench.spec import lm_spec
from workbench.workflow import NodeConfig, NodeKind
from workbench_kit.searching import best_first, cosines, merge_rankings, split_words
from workbench_search.corpus import (
    FIELD,
    MAX_OF_ROW,
    Corpus,
    Document,
    Fields,
    open_corpus,
    read_field,
    split_pages,
)
from workbench_search.rerank import Reranker

#: The text returned by a search without results.
NOTHING = "nothing found"


class CorpusConfig(NodeConfig):
    """Settings of a node that reads a corpus."""

    corpus: str = Field(
        description="file of rows, text, or folder of texts, relative to the workflow file; field:NAME: the documents "
        "in a field of the row"
    )
    fields: Fields = Field(Fields.model_validate({}), description="fields of the rows")


class SearchConfig(CorpusConfig):
    """Settings of a `search` node."""

    by: Literal["words", "vectors", "both"] = Field(
        "words", description="words: BM25; vectors: cosine of the vectors of `embedder`; both: their ranks merged"
    )
    embedder: str | dict[str, Any] | None = Field(
        None, description="the language model that makes the vectors, e.g. openai/text-embedding-3-small or hf:PATH"
    )
    k: int = Field(3, ge=1, le=100, description="maximum number of documents")
    chars: int = Field(200, ge=1, le=100_000, description="characters shown of each, where it has most of the query")
    chunk: int | None = Field(
        None, ge=20, le=100_000, description="longer documents are cut into pieces of so many characters"
    )
    rerank: dict[str, Any] | None = Field(
        None,
        description="node that orders what was found: it reads `documents`, numbered, and writes `order`, a list of "
        "numbers; or reads each `document` and writes `score`",
    )
    candidates: int = Field(10, ge=1, le=100, description="documents of each ranking that are merged or reranked")
    query: str = Field("query", description="the input with the query")
    output: str = Field("documents", description="the output with the results, as text")
    ids: str | None = Field(None, description="another output: the ids of the results, as a list")
    items: str | None = Field(None, description="another output: the results as a list of {id, title, text, score}")


class BrowseConfig(CorpusConfig):
    """Settings of a `browse` node."""

    chars: int = Field(2000, ge=20, le=100_000, description="characters of a page")
    document: str = Field("document", description="the input with the document's id, or ID#PAGE")
    output: str = Field("page", description="the output with the page")


class CorpusNode(NodeKind):
    """A node that reads a corpus.

    A search by words depends only on corpus and query, so it is not journalled. A run cannot be resumed after its
    corpus files have changed.
    """

    primary = "corpus"
    config: CorpusConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        _ = self.of_files

    @property
    def field(self) -> str | None:
        """Return the field of the row with the corpus; None if it is read from files."""
        corpus = self.config.corpus
        return corpus.removeprefix(FIELD).strip() if corpus.startswith(FIELD) else None

    @cached_property
    def of_files(self) -> Corpus | None:
        """Return the corpus of files; None if it is in the row."""
        if self.field is None:
            with errors_at("corpus"):
                return open_corpus(self.config.corpus, self.base, self.config.fields)
        if not self.field.isidentifier():
            hint = "Write e.g. search: field:documents."
            raise SpecError(f"'{self.config.corpus}' names no field of a row", hint=hint, path=("corpus",))
        return None

    def read(self, inputs: Mapping[str, Any]) -> Corpus:
        """Return the corpus for a row."""
        if self.of_files is not None:
            return self.of_files
        assert self.field is not None
        return read_field(inputs[self.field], self.field, self.config.fields)

    def with_field(self, *names: str) -> tuple[str, ...]:
        """Return the names of inputs, and the field with the corpus."""
        return tuple(dict.fromkeys([*names, *([self.field] if self.field is not None else [])]))

    @property
    def row_inputs(self) -> Collection[str]:
        return self.with_field()

    def external_inputs(self) -> Any:
        return self.of_files.digest if self.of_files is not None else None


class SearchNode(CorpusNode):
    """The documents of a corpus that fit a query best, with ids, titles and snippets."""

    Config = SearchConfig
    learnable = {"k": "int", "chars": "int"}
    config: SearchConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        if config.embedder is not None:
            lm_spec(config.embedder)
            self.learnable = {**self.learnable, "by": "choice"}
        elif config.by != "words":
            hint = "Write e.g. embedder: openai/text-embedding-3-small."
            raise SpecError(f"by: {config.by} needs a language model that embeds", hint=hint, path=("embedder",))
        if config.by == "both" or self.reranker is not None:
            self.learnable = {**self.learnable, "candidates": "int"}

    @cached_property
    def reranker(self) -> Reranker | None:
        return Reranker(self.config.rerank, self.base, self.code) if self.config.rerank is not None else None

    def children(self) -> Mapping[str, NodeKind]:
        return {"rerank": self.reranker.node} if self.reranker is not None else {}

    @property
    def inputs(self) -> tuple[str, ...]:
        more = self.reranker.inputs if self.reranker is not None else ()
        return self.with_field(self.config.query, *more)

    @property
    def row_inputs(self) -> Collection[str]:
        return [name for name in self.inputs if name != self.config.query]

    @property
    def input_types(self) -> Mapping[str, Any]:
        return {self.config.query: str}

    @property
    def outputs(self) -> tuple[str, ...]:
        c = self.config
        return (c.output, *[name for name in (c.ids, c.items) if name is not None])

    @property
    def max_calls(self) -> int:
        c, calls = self.config, 0
        if c.by != "words":
            texts = MAX_OF_ROW if self.of_files is None else len(self._cut(self.of_files).texts)
            calls = 1 + -(-texts // BATCH)
        return calls + (self.reranker.calls_of(self._pool) if self.reranker is not None else 0)

    @property
    def tool_description(self) -> str:
        return f"Search. Shows [id], title and a part of up to {self.config.k} documents."

    @property
    def _pool(self) -> int:
        """Return the maximum number of documents that are reranked."""
        return max(self.config.k, self.config.candidates) * (2 if self.config.by == "both" else 1)

    def _cut(self, corpus: Corpus) -> Corpus:
        return corpus.cut(self.config.chunk) if self.config.chunk is not None else corpus

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        c, query, corpus = self.config, as_query(inputs[self.config.query]), self._cut(self.read(inputs))
        scores = await self._scores(corpus, query, ctx)
        found = [corpus.documents[number] for number in scores]
        if self.reranker is not None and len(found) > 1:
            shown = [_show(document, query, c.chars) for document in found]
            found = [found[number] for number in await self.reranker.order(shown, {**inputs, c.query: query}, ctx)]
        found = found[: c.k]
        by_id = {corpus.documents[number].id: score for number, score in scores.items()}
        ids = [document.id for document in found]
        ctx.note(query=query, found=ids)
        written: dict[str, Any] = {c.output: "\n".join(_show(one, query, c.chars) for one in found) or NOTHING}
        if c.ids is not None:
            written[c.ids] = ids
        if c.items is not None:
            written[c.items] = [
                {"id": one.id, "title": one.title, "text": one.text, "score": round(by_id[one.id], 6)} for one in found
            ]
        return written

    async def _scores(self, corpus: Corpus, query: str, ctx: Context) -> dict[int, float]:
        """Return the candidates by their numbers, best first; on a tie, the earlier one first."""
        c, rankings = self.config, list[dict[int, float]]()
        most = max(c.k, c.candidates) if c.by == "both" or self.reranker is not None else c.k
        if c.by != "vectors":
            rankings.append(best_first(corpus.index.scores(query), most))
        if c.by != "words" and corpus.texts and split_words(query):
            assert c.embedder is not None
            if self.of_files is None and len(corpus.texts) > MAX_OF_ROW:
                shown = f"'{self.field}' has {len(corpus.texts)} documents or pieces"
                raise NodeError("steps", f"{shown}, and vectors are made of {MAX_OF_ROW} at most")
            lm = lm_spec(c.embedder)
            near = cosines(await ctx.embed(corpus.texts, lm), (await ctx.embed([query], lm))[0])
            rankings.append(best_first(dict(enumerate(near)), most))
        return merge_rankings(rankings) if c.by == "both" else rankings[0] if rankings else {}


class BrowseNode(CorpusNode):
    """A page of a document."""

    Config = BrowseConfig
    learnable = {"chars": "int"}
    config: BrowseConfig

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.with_field(self.config.document)

    @property
    def input_types(self) -> Mapping[str, Any]:
        return {self.config.document: str}

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.config.output,)

    @property
    def tool_description(self) -> str:
        return "Read a document by its id, the first page; ID#2 is the second page."

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        asked = str(inputs[self.config.document]).strip()
        document, number = _find(self.read(inputs), asked.removeprefix("[").removesuffix("]"))
        pages = split_pages(document.text, self.config.chars)
        if not 1 <= number <= len(pages):
            raise NodeError("document", f"'{document.id}' has {len(pages)} pages, and no page {number}")
        ctx.note(document=document.id, page=number)
        title = f"{document.title}\n" if document.title else ""
        if len(pages) == 1:
            return {self.config.output: f"{title}{pages[0]}"}
        next_ = f"; the next one is {document.id}#{number + 1}" if number < len(pages) else ""
        return {self.config.output: f"{title}{pages[number - 1]}\n(page {number} of {len(pages)}{next_})"}


def as_query(value: Any) -> str:
    """Return a query as text; a model may write a list of words."""
    return " ".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)


def _find(corpus: Corpus, asked: str) -> tuple[Document, int]:
    known = corpus.by_id
    if asked in known:
        return known[asked], 1
    name, mark, page = asked.rpartition("#")
    if mark and name in known and page.isdecimal():
        return known[name], int(page[:9])
    raise NodeError("document", f"there is no document '{asked[:100]}'; write an id that a search has shown")


def _show(document: Document, query: str, chars: int) -> str:
    head = f"[{document.id}] {document.title}".rstrip()
    return f"{head}: {cut_snippet(document.text, query, chars)}"


def cut_snippet(text: str, query: str, chars: int) -> str:
    """Return the part of a text with most words of the query, on one line; on a tie, the first one."""
    text = " ".join(text.split())
    if len(text) <= chars:
        return text
    wanted = set(split_words(query))
    places = [m for m in re.finditer(r"[^\W_]+", text.lower()) if m[0] in wanted]
    begin, most = 0, 0
    for first in places:
        inside = {m[0] for m in places if first.start() <= m.start() and m.end() <= first.start() + chars}
        if len(inside) > most:
            begin, most = first.start(), len(inside)
    begin = min(begin, len(text) - chars)
    return (
        f"{'... ' if begin else ''}{text[begin : begin + chars].strip()}{' ...' if begin + chars < len(text) else ''}"
    )
