"""The nodes `search` and `browse`: finding documents of a corpus, and reading long ones page by page.

Source: DeepResearcher (Zheng et al., arXiv 2504.03160), whose agent searches and then browses what it found. Departure:
a page is shown as it stands, where the paper has a second model that reads it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from pydantic import Field

from workbench.errors import NodeError, errors_at
from workbench.runtime import Context
from workbench.spec import PATH
from workbench.workflow import NodeConfig, NodeKind
from workbench_search.bm25 import split_words
from workbench_search.corpus import Corpus, Document, Fields, open_corpus

#: What a search that finds nothing says.
NOTHING = "nothing found"


class CorpusConfig(NodeConfig):
    """Settings of a node that reads a corpus."""

    corpus: str = Field(description="file of rows, text, or folder of texts, relative to the workflow file")
    fields: Fields = Field(Fields.model_validate({}), description="fields of the rows")


class SearchConfig(CorpusConfig):
    """Settings of a `search` node."""

    k: int = Field(3, ge=1, le=100, description="maximum number of documents")
    snippet: int = Field(200, ge=1, le=100_000, description="characters shown of each, where it has most of the query")
    query: str = Field("query", description="the input with the query")
    output: str = Field("documents", description="the output with the results, as text")


class BrowseConfig(CorpusConfig):
    """Settings of a `browse` node."""

    chars: int = Field(2000, ge=20, le=100_000, description="characters of a page")
    document: str = Field("document", description="the input with the document's id, or ID#PAGE")
    output: str = Field("page", description="the output with the page")


class CorpusNode(NodeKind):
    """A node that reads a corpus. Its results follow from the corpus alone, so they are not journalled; a run is not
    resumed once the corpus has changed."""

    primary = "corpus"
    powers = {"corpus": PATH}
    config: CorpusConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        _ = self.corpus

    @cached_property
    def corpus(self) -> Corpus:
        with errors_at("corpus"):
            return open_corpus(self.config.corpus, self.base, self.config.fields)

    def external_inputs(self) -> Any:
        return self.corpus.digest

    @property
    def input_types(self) -> Mapping[str, Any]:
        return dict.fromkeys(self.inputs, str)


class SearchNode(CorpusNode):
    """The documents of a corpus that fit a query best (BM25), with ids, titles and snippets."""

    Config = SearchConfig
    powers = {"corpus": PATH}
    learnable = {"k": "int", "snippet": "int"}
    config: SearchConfig

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.config.query,)

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.config.output,)

    @property
    def tool_description(self) -> str:
        return f"Search. Shows [id], title and a part of up to {self.config.k} documents."

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        query = as_query(inputs[self.config.query])
        found = self.corpus.search(query, self.config.k)
        ctx.note(query=query, found=[document.id for document in found])
        shown = [_show(document, query, self.config.snippet) for document in found]
        return {self.config.output: "\n".join(shown) or NOTHING}


class BrowseNode(CorpusNode):
    """A page of a document."""

    Config = BrowseConfig
    powers = {"corpus": PATH}
    learnable = {"chars": "int"}
    config: BrowseConfig

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.config.document,)

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.config.output,)

    @property
    def tool_description(self) -> str:
        return "Read a document by its id, the first page; ID#2 is the second page."

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        asked = str(inputs[self.config.document]).strip()
        document, number = self._find(asked.removeprefix("[").removesuffix("]"))
        pages = split_pages(document.text, self.config.chars)
        if not 1 <= number <= len(pages):
            raise NodeError("document", f"'{document.id}' has {len(pages)} pages, and no page {number}")
        ctx.note(document=document.id, page=number)
        title = f"{document.title}\n" if document.title else ""
        if len(pages) == 1:
            return {self.config.output: f"{title}{pages[0]}"}
        next_ = f"; the next one is {document.id}#{number + 1}" if number < len(pages) else ""
        return {self.config.output: f"{title}{pages[number - 1]}\n(page {number} of {len(pages)}{next_})"}

    def _find(self, asked: str) -> tuple[Document, int]:
        known = self.corpus.by_id
        if asked in known:
            return known[asked], 1
        name, mark, page = asked.rpartition("#")
        if mark and name in known and page.isdecimal():
            return known[name], int(page[:9])
        raise NodeError("document", f"there is no document '{asked[:100]}'; write an id that a search has shown")


def as_query(value: Any) -> str:
    """A query as text; a model may write a list of words."""
    return " ".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)


def split_pages(text: str, chars: int) -> list[str]:
    """A text in pages of limited length, which end between words where they can. One page if empty."""
    pages: list[str] = []
    rest = text.strip()
    while len(rest) > chars:
        end = rest.rfind(" ", chars // 2, chars + 1)
        end = chars if end < 0 else end
        pages.append(rest[:end].rstrip())
        rest = rest[end:].lstrip()
    return [*pages, rest]


def _show(document: Document, query: str, chars: int) -> str:
    head = f"[{document.id}] {document.title}".rstrip()
    return f"{head}: {cut_snippet(document.text, query, chars)}"


def cut_snippet(text: str, query: str, chars: int) -> str:
    """The part of a text with most words of the query, on one line; of equal ones the first."""
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
