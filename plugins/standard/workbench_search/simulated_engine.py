"""The node `simulated_search`: a language model plays the search engine, and some of its documents are useless.

Source: ZeroSearch (Sun et al., arXiv 2505.04588), read in summaries of the paper and in its published code: a model is
told the question and its answer and writes five documents of about 30 words, useful ones or, with a probability that
rises in training, noisy ones. The rise itself is `schedules` of `grpo`. Departures: the prompts are ours; the model is
not fine-tuned for its part (yours may be); which of the two is decided for each search by a seeded draw, so that it is
the same in a resumed run.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

from pydantic import Field

from workbench.base.hashing import digest
from workbench.errors import NodeError
from workbench.runtime import Context
from workbench.spec import LMSpec, lm_spec
from workbench.workflow import NodeConfig, NodeKind
from workbench_kit.prompting import plain_adapter as plain
from workbench_search.node import as_query

_PLAY = """\
You play a search engine. For a query you write {count} documents of about {words} words each, and nothing else. Each \
begins on a line of its own with `Doc` and its number, as in `Doc 1: ...`.
{wanted}"""
#: Approximate number of words in a document.
WORDS = 30
USEFUL = "The documents are useful: they hold what a user with this task looks for."
NOISY = (
    "The documents are noisy: they are about the words of the query, and nothing in them helps the user with this task."
)
_DOCUMENT = re.compile(r"(?im)^\W*doc(?:ument)?\s*\d+\W*[:.]")


class SimulatedSearchConfig(NodeConfig):
    """Settings of a `simulated_search` node."""

    k: int = Field(5, ge=1, le=20, description="documents that the engine writes for a query")
    lm: str | dict[str, Any] = Field(description="the language model that plays the engine")
    noise: float = Field(0.0, ge=0, le=1, description="probability that the documents of a search are of no use")
    knows: list[str] = Field(
        default_factory=list, description="fields of the row that only the engine sees, e.g. [question, answer]"
    )
    seed: int = Field(0, description="another one draws anew which searches are noisy")
    query: str = Field("query", description="the input with the query")
    output: str = Field("documents", description="the output with the documents, as text")


class SimulatedSearch(NodeKind):
    """A search engine that a language model plays, with useful or noisy documents."""

    Config = SimulatedSearchConfig
    primary = "k"
    config: SimulatedSearchConfig

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.config.query, *self.config.knows)))

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.config.output,)

    @property
    def max_calls(self) -> int:
        return 1

    @property
    def row_inputs(self) -> Collection[str]:
        return self.config.knows

    @property
    def input_types(self) -> Mapping[str, Any]:
        return {self.config.query: str}

    @property
    def tool_description(self) -> str:
        return f"Search. Shows up to {self.config.k} documents."

    @cached_property
    def lm(self) -> LMSpec:
        return lm_spec(self.config.lm)

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        c, query = self.config, as_query(inputs[self.config.query])
        noisy = draw_noise(ctx) < c.noise
        wanted = NOISY if noisy else USEFUL
        known = [f"{name}: {plain.as_text(inputs[name])}" for name in c.knows]
        told = "\n".join(["The user's task, which the query does not tell:", *known] if known else [])
        messages = [
            {"role": "system", "content": _PLAY.format(count=c.k, words=WORDS, wanted=wanted)},
            {"role": "user", "content": f"{told}\nQuery: {query}".strip()},
        ]
        response = await ctx.complete(messages, lm=self.lm, role="engine")
        ctx.note(query=query, noisy=noisy)
        if response.finish in ("refusal", "empty") or not response.text.strip():
            raise NodeError("engine", f"the model that plays the engine wrote no documents ({response.finish})")
        return {c.output: cut_documents(response.text, c.k)}


def draw_noise(ctx: Context) -> float:
    """Return a number in [0, 1) for this search: uniform over searches, and the same in each rerun.

    A search is identified by the workflow (including its weights and settings, and so the seed), the row, the sample,
    and its position there.
    """
    where = [ctx.program.workflow.hash, ctx.example, ctx.node, ctx.draw.replica, list(ctx.draw.order)]
    return random.Random(digest(where)).random()


def cut_documents(text: str, most: int) -> str:
    """Return the first documents of an answer, renumbered; the whole answer if it marks none."""
    marks = [*_DOCUMENT.finditer(text)]
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    found = [" ".join(text[mark.end() : end].split()) for mark, end in zip(marks, ends, strict=True)] if marks else []
    return "\n".join(f"Doc {i}: {document}" for i, document in enumerate(found[:most], 1)) or text.strip()
